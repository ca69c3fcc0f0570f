"""Replacing one unit: remove it, then add another in its place.

Let T' be T with the unit t replaced by t', so that T - t is T without t and T'
without t'. For b, c > 0 and any three distributions

  H_(bc)(X || Z)  <=  H_b(X || Y) + b H_c(Y || Z),

since [x - bc z]_+ <= [x - b y]_+ + b [y - c z]_+. Let R bound the run for
removing a unit, and A for adding one. For every epsilon = a + b,

  H_(e^epsilon)(M(T) || M(T'))  <=  R(a) + e^a A(b),

and the minimum over the split is returned. As a function of e^a this is convex
(R is, and so is the perspective of A), so one search along a finds it. Any
split is a bound. The whole run is split, not its steps, because the run without
both units is a run.

For a in the hundreds, e^a overflows a double. Then Renyi divergences bound the
exchange (Mironov, "Renyi Differential Privacy", 2017, proposition 11, with p =
q = 2): for an order l > 1

  D_l(X || Z)  <=  (l - 1/2) / (l - 1) D_(2l)(X || Y) + D_(2l - 1)(Y || Z),

which for Gaussians on a line is an equality.
"""

from collections.abc import Callable, Sequence
import dataclasses
import math

import numpy as np

from episodic_dp.accounting.accountants import base
from episodic_dp.accounting.accountants import moments
from episodic_dp.accounting.accountants.base import Phases
from episodic_dp.accounting.profiles import amplification
from episodic_dp.plan import sampler_error

# Points along the split, and how often the search narrows to the best one.
_LOOKS, _NARROWINGS = 17, 7
# The largest ln of the odds between the two parts' shares of delta.
_ODDS = 24.0
# Number of times that curves are refined at the best split.
_ROUNDS = 3
# The smallest delta that is requested from an accountant.
_LEAST_DELTA = 1e-290
# Above the first a, e^-a is zero as a double. Above the second epsilon Renyi
# divergences may give a smaller bound.
_NO_SHARE, _LARGE = 746.0, 200.0
# Orders of the Renyi divergences of an exchange, useful at large epsilons.
_MOST_ORDER = 64


@dataclasses.dataclass(frozen=True, eq=False)
class Exchanged:
  """The profile of a run for replacing a unit.

  Attributes:
    remove: bound on the run for removing a unit.
    add: bound on the run for adding one.
  """

  remove: base.Curve
  add: base.Curve

  def epsilon(self, delta: float) -> float:
    """See `base.Curve`."""
    return self.split_of_delta(delta)[0]

  def delta(self, epsilon: float) -> float:
    """See `base.Curve`."""
    return self.split_of_epsilon(epsilon)[0]

  def split_of_delta(self, delta: float) -> tuple[float, float, float]:
    """Find the least a + b, and the shares of delta for R and A.

    Returns:
      (a + b, R(a), A(b)); R(a) and e^a A(b) add up to delta.
    """

    def tried(log_odds: float) -> tuple[float, float, float]:
      first = delta / (1 + math.exp(log_odds))
      a = self.remove.epsilon(first)
      if math.isinf(a):
        return math.inf, first, 0.0
      second = (delta - first) * math.exp(-a)
      # A bound that holds everywhere holds at delta = 0 too.
      return a + self.add.epsilon(second), first, second

    return _least(tried, -_ODDS, _ODDS)

  def split_of_epsilon(self, epsilon: float) -> tuple[float, float, float]:
    """Find the least R(a) + e^a A(b), and its a and b."""

    def tried(a: float) -> tuple[float, float, float]:
      b = max(epsilon - a, 0.0)
      second = self.add.delta(b)
      if second > 0:
        second = math.exp(min(a + math.log(second), 0.0))
      return min(1.0, self.remove.delta(a) + second), a, b

    return _least(tried, 0.0, epsilon)


_Tried = tuple[float, float, float]


def _least(
    tried: Callable[[float], _Tried], low: float, high: float
) -> _Tried:
  """Minimise the first value of a function that decreases, then increases."""
  found: list[_Tried] = []
  for _ in range(_NARROWINGS):
    step = (high - low) / (_LOOKS - 1)
    points = [low + step * i for i in range(_LOOKS)]
    looks = [tried(x) for x in points]
    at = min(range(_LOOKS), key=lambda i: looks[i][0])
    found.append(looks[at])
    low, high = max(points[at] - step, low), min(points[at] + step, high)
  return min(found)


def exchanged(
    accountant: base.Accountant,
    run: Phases,
    *,
    delta: float | None = None,
    epsilon: float | None = None,
    enough: float = 0.0,
) -> Exchanged:
  """Bound the exchange by an accountant, precisely near delta or epsilon.

  Args:
    accountant: composes the steps.
    run: the phases to compose.
    delta: in (0, 1), or None if epsilon is given.
    epsilon: at least 0, or None if delta is given.
    enough: deltas at or below this need not be distinguished.
  """
  removes: list[base.Curve] = []
  adds: list[base.Curve] = []
  if epsilon is not None:
    a = b = epsilon / 2
    for _ in range(_ROUNDS):
      removes.append(
          accountant.curve(run, "remove", epsilon=a, enough=enough / 2)
      )
      less = enough / 2 * math.exp(-min(a, 700.0))
      adds.append(accountant.curve(run, "add", epsilon=b, enough=less))
      found = Exchanged(base.Least(tuple(removes)), base.Least(tuple(adds)))
      _, a, b = found.split_of_epsilon(epsilon)
    return found
  assert delta is not None
  at_remove = delta / 2
  remove = accountant.curve(run, "remove", delta=at_remove)
  a = remove.epsilon(at_remove)
  if remove.epsilon(delta) > _NO_SHARE:
    return Exchanged(remove, base.UNPROTECTED)  # No split leaves A any delta.
  at_add = at_remove * math.exp(-min(a, 600.0))
  for _ in range(_ROUNDS):
    removes.append(
        accountant.curve(run, "remove", delta=max(at_remove, _LEAST_DELTA))
    )
    adds.append(
        accountant.curve(run, "add", delta=max(at_add, _LEAST_DELTA))
    )
    found = Exchanged(base.Least(tuple(removes)), base.Least(tuple(adds)))
    total, at_remove, at_add = found.split_of_delta(delta)
    if math.isinf(total):
      break
  return found


def by_moments(run: Phases) -> moments.RenyiCurve:
  """Bound the exchange by Renyi divergences."""
  order = np.asarray(moments.orders(_MOST_ORDER))
  at = tuple(sorted({*(2 * order).tolist(), *(2 * order - 1).tolist()}))
  # (order - 1) times the divergence, at every order.
  remove, add = (
      dict(zip(at, moments.total_log_moments(run, direction, at)))
      for direction in amplification.DIRECTIONS
  )
  first, second = (
      np.asarray([logs[x] / (x - 1) for x in at.tolist()])
      for logs, at in ((remove, 2 * order), (add, 2 * order - 1))
  )
  return moments.RenyiCurve(order, (order - 0.5) / (order - 1) * first + second)


def value(
    accountant: base.Accountant,
    runs: Sequence[Phases],
    delta: float | None,
    epsilon: float | None,
    error: sampler_error.SamplerError,
) -> float:
  """Bound epsilon at delta, or delta at epsilon, of replacing a unit.

  Args:
    accountant: composes the steps.
    runs: one for each type of unit; the largest of them counts.
    delta: in (0, 1), or None.
    epsilon: at least 0, or None.
    error: error of the sampler, all steps together.
  """
  left, enough = None, 0.0
  if delta is not None:
    left = base.remaining_delta(delta, error)
    if left <= 0:
      return math.inf
  else:
    enough = base.negligible(error, float(epsilon or 0))
  largest = 0.0
  for run in runs:
    curves: list[base.Curve] = [
        exchanged(accountant, run, delta=left, epsilon=epsilon, enough=enough)
    ]
    if delta is not None and curves[0].epsilon(delta) > _LARGE:
      curves += [by_moments(run), exchanged(moments.RDP(), run, delta=left)]
    charged = base.charge_sampler_error(base.Least(tuple(curves)), error)
    found = (
        charged.epsilon(delta)
        if delta is not None
        else charged.delta(float(epsilon or 0))
    )
    largest = max(largest, found)
  return largest
