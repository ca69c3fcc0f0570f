"""Replace-one neighbours: equal sizes, and other data in one unit.

No pair of outputs is known to dominate all others under sampling, and the
obvious one does not (Lebeda, Regehr, Kamath and Steinke, "Avoiding Pitfalls for
Privacy Accounting of Subsampled Mechanisms under Composition", 2024). What
holds, and the least of it is told:

  exchanged   remove the unit, then add the other one, for every plan and level
              with a bound for adding or removing (`accountants.exchange`). Both
              pairs of the chain have the sizes at hand in their larger data
              set, T and T' in turn, and share the smaller one;
  revealed    both data sets draw alike: with the draws told, a step moves the
              sum by at most d, and only if it draws the unit. So the run is at
              most a Gaussian at distance d sqrt(K), K of its steps (or passes)
              drawing the unit, each with the unit's rate;
  fixed size  the unit's own stage is `FixedSize`, and every stage above has
              rate 1: Renyi accounting of Wang, Balle and Kasiviswanathan,
              "Subsampled Renyi Differential Privacy and Analytical Moments
              Accountant" (AISTATS 2019).

d = 2 M / z, with M the clip units under the unit, and where another unit can
take its place also at least what the sum moves by then. The noise multiplier of
the theorem of "fixed size" is over this sensitivity, and so it is for
dp_accounting's `SampledWithoutReplacementDpEvent`: 1 / d here, not z. Whatever
is drawn below the unit is randomness of the base mechanism: Renyi divergences,
like their theorem's moments of likelihood ratios, are largest where the sum
moves by all of d (joint convexity).
"""

from collections.abc import Sequence
import dataclasses
import functools
import math

import numpy as np
from scipy import special

from episodic_dp import plan as plan_lib
from episodic_dp.accounting import run_phases
from episodic_dp.accounting import sensitivity
from episodic_dp.accounting.accountants import base
from episodic_dp.accounting.accountants import curves as curves_lib
from episodic_dp.accounting.accountants import exchange
from episodic_dp.accounting.accountants import rdp
from episodic_dp.accounting.accountants.phases import Phases
from episodic_dp.accounting.profiles import amplification

_MAX_ORDER = 512
# Spacing, in standard deviations, of the trapezoidal rule for moments: for
# Gaussian integrands its error falls as exp(-2 (pi / spacing)^2).
_SPACING = 0.1
_FAR = 200.0
_ROUNDING = 1e-9


def best(
    accountant: base.Accountant,
    runs: Sequence[Phases],
    entries: Sequence[run_phases.Entry],
    level: str,
    error: plan_lib.SamplerError,
    *,
    delta: float | None = None,
    epsilon: float | None = None,
) -> tuple[float, str]:
  """The least bound for replacing one unit's data, sampler error charged.

  Args:
    accountant: how steps are composed, where the unit is removed and added.
    runs: the ways to compose all that was released, for adding or removing a
      unit; () where there is no noise.
    entries: the same, where it is steps alone, () otherwise; both neighbours
      have the sizes of their hierarchies.
    level: the privacy unit.
    error: of the samplers, all steps together.
    delta: in (0, 1), to be told epsilon, or None.
    epsilon: at least 0, to be told delta, or None.

  Returns:
    (epsilon or delta, the name of the accountant that it is from); infinity or
    1 where there is no noise.
  """
  nothing = math.inf if epsilon is None else 1.0
  if not runs:
    return nothing, accountant.name
  values = [(nothing, accountant.name)]

  def charge(
      curve: curves_lib.Curve, name: str, charged: plan_lib.SamplerError
  ) -> None:
    whole = curves_lib.charge_sampler_error(curve, charged)
    values.append((
        whole.epsilon(delta)
        if delta is not None
        else whole.delta(float(epsilon or 0)),
        name,
    ))

  direct = _direct(entries, level, accountant.name)
  for curve, name in direct:
    charge(curve, name, error)
  if direct and _certain(entries, level):
    return min(values)  # One Gaussian is the truth.
  for run in runs:
    charged = run_phases.matched(error, (run,))
    left, enough = None, 0.0
    if delta is not None:
      left = curves_lib.left_by_sampler(delta, charged)
      if left <= 0:
        continue
    else:
      enough = curves_lib.negligible(charged, float(epsilon or 0))
    parts = [
        exchange.exchanged(
            accountant, part, delta=left, epsilon=epsilon, enough=enough
        )
        for part in run_phases.apart(run)
    ]
    charge(curves_lib.Largest(tuple(parts)), accountant.name, charged)
  if min(values)[0] == nothing:
    for run in runs:
      renyi = exchange.by_moments(run)
      if renyi is not None:
        charge(renyi, rdp.RDP.name, run_phases.matched(error, (run,)))
  return min(values)


@dataclasses.dataclass(frozen=True)
class _Part:
  """Equal steps (or passes) as they are to one kind of unit that is replaced.

  Attributes:
    rate: the probability that a step draws it.
    distance: how far the sum moves then, in standard deviations of the noise.
    times: how many steps.
    fixed: whether the theorem of "fixed size" applies.
  """

  rate: float
  distance: float
  times: int
  fixed: bool


def _direct(
    entries: Sequence[run_phases.Entry], level: str, name: str
) -> list[tuple[curves_lib.Curve, str]]:
  """The bounds "revealed" and "fixed size", where they are proved."""
  if any(e.release.sample_level for e in entries):
    return []
  parts = [_parts(e, level) for e in entries]
  if not parts or not all(parts):
    return []
  if len(parts) == 1:  # The largest of the kinds of units, kind by kind.
    units = [[[part]] for part in parts[0]]
  else:
    units = [parts]
  bounds = [_bound(unit) for unit in units]
  if any(part.fixed and part.rate < 1 for kinds in parts for part in kinds):
    name = rdp.RDP.name
  return [(curves_lib.Largest(tuple(bounds)), name)]


def _certain(entries: Sequence[run_phases.Entry], level: str) -> bool:
  """Whether every step draws every unit of the level."""
  return all(
      not isinstance(entry.release.plan.stages[0], plan_lib.RandomAllocation)
      and part.rate == 1
      for entry in entries
      for part in _parts(entry, level)
  )


def _bound(parts: Sequence[Sequence[_Part]]) -> curves_lib.Curve:
  """For units of any of the kinds in every entry."""
  every = [part for kinds in parts for part in kinds]
  revealed = curves_lib.RevealedCurve(
      rate=max(part.rate for part in every),
      distance=max(part.distance for part in every),
      times=sum(max(part.times for part in kinds) for kinds in parts),
  )
  if revealed.rate == 1 or not all(part.fixed for part in every):
    return revealed
  orders = np.arange(2.0, _MAX_ORDER + 1)
  log_moments = sum(
      np.max([_log_moments(part, orders) for part in kinds], axis=0)
      for kinds in parts
  )
  return curves_lib.Least(
      (revealed, rdp.RenyiCurve(orders, log_moments / (orders - 1)))
  )


def _parts(entry: run_phases.Entry, level: str) -> list[_Part]:
  """One for each kind of unit; () where records recur in a step."""
  release = entry.release
  kinds = sensitivity.unit_profiles(release, level, replaced=True)
  own = release.plan.stages[release.hierarchy.level_index(level)]
  first = release.plan.stages[0]
  result = []
  for kind in kinds:
    if not isinstance(kind, amplification.Amplification):
      return []
    rate, times = kind.parent_rate * kind.rate, int(entry.steps)
    if isinstance(first, plan_lib.RandomAllocation):  # Once in every pass.
      times = -(-times // first.steps)
      rate = math.prod((*kind.outer_rates, kind.rate)[1:])
    fixed = kind.parent_rate == 1 and (
        isinstance(own, plan_lib.FixedSize) or kind.rate == 1
    )
    result.append(_Part(rate, kind.unit_sensitivity, times, fixed))
  return result


def _log_moments(part: _Part, orders: np.ndarray) -> np.ndarray:
  """(order - 1) D_order of all its steps."""
  if part.rate == 1:
    return part.times * orders * (orders - 1) * part.distance**2 / 2
  return part.times * subsampled_log_moments(
      part.rate, part.distance, _MAX_ORDER
  )


@functools.lru_cache(maxsize=32)
def subsampled_log_moments(
    rate: float, distance: float, max_order: int
) -> np.ndarray:
  """Bound (order - 1) D_order of a Gaussian sampled without replacement.

  Wang, Balle and Kasiviswanathan (2019), theorem 27 of the arXiv version: with
  B(j) = E (P/Q - 1)^j for the Gaussian pair at `distance`,

    ln(1 + sum over j = 2 .. order of  binomial(order, j) rate^j
       min(4 sqrt(B(2 floor(j/2)) B(2 ceil(j/2))), 2 E (P/Q)^j)).

  Args:
    rate: the share that is drawn, below 1.
    distance: replace-one sensitivity in noise standard deviations.
    max_order: even.

  Returns:
    float64[max_order - 1], for orders 2, 3, ...; not to be written to.
  """
  order = np.arange(2, max_order + 1)
  even = _log_even_moments(distance, max_order)
  below, above = even[order // 2 - 1], even[(order + 1) // 2 - 1]
  terms = order * math.log(rate) + np.minimum(
      math.log(4) + (below + above) / 2,
      math.log(2) + order * (order - 1.0) * distance**2 / 2,
  )
  ways = (
      special.gammaln(order[:, None] + 1.0)
      - special.gammaln(order + 1.0)
      - special.gammaln(np.maximum(order[:, None] - order, 0) + 1.0)
  )
  ways = np.where(order <= order[:, None], ways, -np.inf)
  total = np.logaddexp.reduce(ways + terms, axis=1)
  result = np.logaddexp(0.0, total) * (1 + _ROUNDING)
  result.flags.writeable = False
  return result


def _log_even_moments(distance: float, max_order: int) -> np.ndarray:
  """ln E (P/Q - 1)^j for j = 2, 4, ..., by sums of positive terms.

  The integrand has a hump on either side of 0, no further than sqrt(j) on the
  left and the larger of j d and sqrt(j) on the right, 15 deviations wide at
  most. Far out (P/Q - 1)^j <= 1 + (P/Q)^j will do.
  """
  orders = np.arange(2.0, max_order + 1, 2)
  result = np.empty_like(orders)
  for i, j in enumerate(orders):
    if j * distance > _FAR:
      result[i] = np.logaddexp(0.0, j * (j - 1) * distance**2 / 2)
      continue
    root = math.sqrt(j)
    x = np.arange(-root - 15, max(j * distance, root) + 15, _SPACING)
    log_ratio = distance * x - distance**2 / 2
    with np.errstate(divide="ignore"):
      size = np.where(
          log_ratio > 1,
          log_ratio + np.log1p(-np.exp(-np.maximum(log_ratio, 1.0))),
          np.log(np.abs(np.expm1(np.minimum(log_ratio, 1.0)))),
      )
    terms = j * size - x * x / 2
    largest = terms.max()
    total = float(np.exp(terms - largest).sum())
    result[i] = largest + math.log(total * _SPACING / math.sqrt(2 * math.pi))
  return result
