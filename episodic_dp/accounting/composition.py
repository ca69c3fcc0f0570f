"""Composition: from the ways to compose a run to its epsilon or delta.

A run has several ways, and the best of them holds. The most expensive type of
unit counts. A group costs no more than its units one after another.

Replacing a unit is to remove it, then to add another in its place.

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

from episodic_dp.accounting import sensitivity
from episodic_dp.accounting.accountants import base
from episodic_dp.accounting.accountants import moments
from episodic_dp.accounting.accountants import pld
from episodic_dp.accounting.accountants.base import Phases
from episodic_dp.accounting.profiles import amplification
from episodic_dp.accounting.profiles import random_count
from episodic_dp.accounting.profiles import recurrence
from episodic_dp.plan import sampler_error

# Relative spacing of two guesses of the epsilon of one unit of a group, the
# smallest delta of one unit to try, and how many of its epsilons are tried.
_SLACK, _LEAST_SHARE, _LINKS = 1e-3, 1e-290, 4
# Types of units whose profiles count clip units: see `_charged`.
_COUNTING = (
    random_count.RandomCount, random_count.RandomType, recurrence.Recurrence
)
# More types of units than this are composed together: looser, but faster.
_MAX_APART = 8
# Tolerance of the curve for replacing a unit, which has only one direction.
_PRECISE = 1e-6
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

# Direction -> epsilon at delta (or delta at epsilon), and the name of the
# accountant that computed them.
Found = tuple[dict[str, float], str]


@dataclasses.dataclass(frozen=True)
class Query:
  """The value that is computed for a run.

  Attributes:
    accountant: composes the steps.
    delta: in (0, 1), to compute epsilon, or None.
    epsilon: at least 0, to compute delta, or None.
    error: error of the sampler, all steps together.
    directions: those to compute; one is enough if both are equal.
    one_of_many: whether queries of other deltas follow; see `base.Shared`.
  """

  accountant: base.Accountant
  delta: float | None
  epsilon: float | None
  error: sampler_error.SamplerError
  directions: tuple[amplification.Direction, ...] = amplification.DIRECTIONS
  one_of_many: bool = False

  @property
  def nothing(self) -> dict[str, float]:
    """Return the values of a run that guarantees nothing."""
    return self.both(math.inf if self.epsilon is None else 1.0)

  def both(self, value: float) -> dict[str, float]:
    """Return one value for both directions."""
    return dict.fromkeys(amplification.DIRECTIONS, value)


def cost(query: Query, ways: sensitivity.Ways) -> Found:
  """Compute what a group of units costs, one after another.

  Returns:
    The values of both directions. Replaced units of a tree are always composed
    by loss distributions.
  """
  return _of_one(query, ways) if ways.group == 1 else _of_chain(query, ways)


def values(
    accountant: base.Accountant,
    ways: sensitivity.Ways,
    delta: float | None,
    epsilon: float | None,
) -> dict[str, float]:
  """Compute one of many points of a run's privacy curve, by direction."""
  query = Query(accountant, delta, epsilon, ways.error, one_of_many=True)
  return cost(query, ways)[0]


def _of_one(query: Query, ways: sensitivity.Ways) -> Found:
  """Compute what one unit costs."""
  if ways.tree is None:
    return _best(query, ways.runs), query.accountant.name
  # Replacing is symmetric: one direction is both.
  by_way, precise = (
      dataclasses.replace(query, accountant=each, directions=("remove",))
      for each in (Exchange(query.accountant), pld.PLD(tolerance=_PRECISE))
  )
  return min(
      (_best(by_way, ways.runs), query.accountant.name),
      (_best(precise, ways.tree), pld.PLD.name),
      key=_most,
  )


def _most(found: Found) -> float:
  """Return the larger of the values of two directions."""
  return max(found[0].values())


def _best(query: Query, runs: Sequence[Phases]) -> dict[str, float]:
  """Find the smallest bound among the ways to compose a run.

  Returns:
    Direction -> epsilon at delta (or delta at epsilon); infinity (or 1) without
    a way.
  """
  return min(
      [*(_charged(query, run) for run in runs), query.nothing],
      key=lambda v: max(v.values()),
  )


def _charged(query: Query, run: Phases) -> dict[str, float]:
  """Compute the values of a run under the sampler's error.

  `unmatched` is known for a unit that is on one path of each step. It is
  unknown for a profile that counts clip units below it, or the places that hold
  it: if nothing is guaranteed then, the numbers are raised.
  """
  units = [unit for phase in run for unit in phase.unit_profiles]
  if not any(isinstance(unit, _COUNTING) for unit in units):
    return _values(query, run, query.error.unmatched)
  found = _values(query, run, math.inf)
  if max(found.values()) < max(query.nothing.values()):
    return found
  return _values(
      query, _raised(run, query.error.tails), query.error.unmatched
  )


def _values(query: Query, run: Phases, unmatched: float) -> dict[str, float]:
  """Compute the values of the most expensive unit.

  Values below the largest one so far are not distinguished.
  """
  error = dataclasses.replace(query.error, unmatched=unmatched)
  accountant = query.accountant
  if query.one_of_many:
    accountant = base.Shared(accountant)
  values = query.both(0.0)
  for direction in query.directions:
    value = 0.0
    for part in _apart(run):
      enough = (1 - 1e-6) * value
      if query.delta is not None:
        found = accountant.epsilon(part, direction, query.delta, error, enough)
      else:
        epsilon = float(query.epsilon or 0)
        found = accountant.delta(part, direction, epsilon, error, enough)
      value = max(value, found)
    values[direction] = value
  return values if len(query.directions) > 1 else query.both(value)


def _apart(run: Phases) -> tuple[Phases, ...]:
  """Split a run by the types of units of its level; the largest result holds.

  A unit has one type in all steps, so a bound for one type need not cover
  others. If several phases have several types, it is unknown which belong
  together: such a run is not split.

  Returns:
    A run for each type, those with probably the largest values first.
  """
  several = [i for i, phase in enumerate(run) if len(phase.unit_profiles) > 1]
  if len(several) != 1 or len(run[several[0]].unit_profiles) > _MAX_APART:
    return (run,)
  (i,) = several
  units = sorted(run[i].unit_profiles, key=lambda unit: -math.prod(unit.tail))
  return tuple(
      (*run[:i], base.Phase((unit,), run[i].times), *run[i + 1 :])
      for unit in units
  )


def _raised(run: Phases, chance: float) -> Phases:
  """Raise the numbers that units sample by the probability that tables cut off.

  It costs more, but requires no more of a step than the unmatched probability:
  see section 7 of the proof.
  """
  return tuple(
      base.Phase(
          tuple(
              unit.raised(chance) if isinstance(unit, _COUNTING) else unit
              for unit in phase.unit_profiles
          ),
          phase.times,
      )
      for phase in run
  )


def _of_chain(query: Query, ways: sensitivity.Ways) -> Found:
  """Bound what a group costs by the curve of one of its units.

  If (e, d) holds for each of k links of a chain of neighbours, the ends of the
  chain have (k e, d (1 + e^e + ... + e^((k - 1) e))): section 12 of the proof.
  A given delta is reached by the least such e; a given epsilon by the best of a
  few.
  """
  link, group = 0.0, ways.group
  if query.epsilon is not None:
    found: list[Found] = []
    for link in np.linspace(0.0, query.epsilon / group, _LINKS).tolist():
      values, name = _of_one(dataclasses.replace(query, epsilon=link), ways)
      links = _links(link, group)
      found.append(({d: min(1.0, v * links) for d, v in values.items()}, name))
    return min(found, key=_most)
  assert query.delta is not None
  while (share := query.delta / _links(link, group)) > _LEAST_SHARE:
    values, name = _of_one(dataclasses.replace(query, delta=share), ways)
    most = max(values.values())
    if most <= link or math.isinf(most):
      return {d: group * v for d, v in values.items()}, name
    link = most * (1 + _SLACK)
  return query.nothing, query.accountant.name


def _links(epsilon: float, group: int) -> float:
  """Compute 1 + e^epsilon + ... + e^((group - 1) epsilon)."""
  log_sum = float(np.logaddexp.reduce(np.arange(group) * epsilon))
  return math.exp(min(log_sum * (1 + 1e-12), 700.0))


# Replacing one unit ----------------------------------------------------------


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
      dict(
          zip(at, moments.total_log_moments(run, direction, at), strict=True)
      )
      for direction in amplification.DIRECTIONS
  )
  first, second = (
      np.asarray([logs[x] / (x - 1) for x in at.tolist()])
      for logs, at in ((remove, 2 * order), (add, 2 * order - 1))
  )
  return moments.RenyiCurve(order, (order - 0.5) / (order - 1) * first + second)


@dataclasses.dataclass(frozen=True)
class Exchange(base.Accountant):
  """Bounds the replacing of a unit by what an accountant says of one.

  Attributes:
    accountant: composes the steps; both directions of an exchange are equal.
  """

  accountant: base.Accountant
  name = "exchange"

  def curve(
      self,
      phases: Phases,
      direction: amplification.Direction,
      *,
      delta: float | None = None,
      epsilon: float | None = None,
      enough: float = 0.0,
  ) -> base.Curve:
    """See `Accountant`."""
    found: list[base.Curve] = [
        exchanged(
            self.accountant, phases, delta=delta, epsilon=epsilon, enough=enough
        )
    ]
    if delta is not None and found[0].epsilon(delta) > _LARGE:
      found.append(by_moments(phases))
      found.append(exchanged(moments.RDP(), phases, delta=delta))
    return base.Least(tuple(found))
