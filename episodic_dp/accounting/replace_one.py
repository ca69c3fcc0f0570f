"""Replace-one neighbours, for the few plans with a proof.

Neighbours have equal sizes and differ in the data of one unit. Guarantees for
them do *not* follow from profiles of adding or removing: no pair of outputs is
known to dominate all others under sampling without replacement, and the obvious
one does not (Lebeda, Regehr, Kamath and Steinke, "Avoiding Pitfalls for Privacy
Accounting of Subsampled Mechanisms under Composition", 2024). What is offered:

  nothing sampled   every stage down to the unit has rate 1: coupling all other
                    randomness, a step is a Gaussian of distance
                    d = 2 M C / (z C), with M the clip units under one unit;
  fixed size        the unit's own stage is `FixedSize`, and every stage above
                    has rate 1: Renyi accounting of Wang, Balle and
                    Kasiviswanathan, "Subsampled Renyi Differential Privacy and
                    Analytical Moments Accountant" (AISTATS 2019).

The noise multiplier of their theorem is over the *replace-one* sensitivity, and
so it is for dp_accounting's `SampledWithoutReplacementDpEvent`: z / (2 M) here,
not z. Whatever is drawn below the unit is randomness of the base mechanism:
Renyi divergences, like their theorem's moments of likelihood ratios, are
largest where the sum moves by all of d (joint convexity).
"""

from collections.abc import Sequence
import dataclasses
import functools
import math

import numpy as np
from scipy import special

from episodic_dp import plan as plan_lib
from episodic_dp.accounting import sensitivity
from episodic_dp.accounting.accountants import base
from episodic_dp.accounting.accountants import phases as phases_lib
from episodic_dp.accounting.accountants import rdp
from episodic_dp.accounting.profiles import amplification
from episodic_dp.accounting.profiles import gaussian

ACCOUNTANT = "rdp"
_MAX_ORDER = 512
# Spacing, in standard deviations, of the trapezoidal rule for moments: for
# Gaussian integrands its error falls as exp(-2 (pi / spacing)^2).
_SPACING = 0.1
_FAR = 200.0
_ROUNDING = 1e-9


def epsilon_replace_one(
    hierarchy: plan_lib.Hierarchy,
    plan: plan_lib.SamplingPlan,
    mechanism: plan_lib.Mechanism,
    level: str,
    steps: int,
    delta: float,
) -> float:
  """Epsilon of a run for replacing one unit's data, errors of the sampler in.

  Args:
    hierarchy: public sizes, the same for both neighbours.
    plan: one stage per level.
    mechanism: clip unit and noise; without noise epsilon is infinite.
    level: the privacy unit.
    steps: T, at least 1.
    delta: in (0, 1).

  Raises:
    UnsoundPlanError: no proof covers the plan.
    PlanError: plan, hierarchy and mechanism disagree.
  """
  error = steps * plan_lib.sampling_error(hierarchy, plan)
  return max(
      _Given(curve).epsilon((), "remove", delta, error)
      for curve in _curves(hierarchy, plan, mechanism, level, steps)
  )


def delta_replace_one(
    hierarchy: plan_lib.Hierarchy,
    plan: plan_lib.SamplingPlan,
    mechanism: plan_lib.Mechanism,
    level: str,
    steps: int,
    epsilon: float,
) -> float:
  """Delta of a run at epsilon >= 0; see `epsilon_replace_one`."""
  error = steps * plan_lib.sampling_error(hierarchy, plan)
  return max(
      _Given(curve).delta((), "remove", epsilon, error)
      for curve in _curves(hierarchy, plan, mechanism, level, steps)
  )


def _curves(
    hierarchy, plan, mechanism, level: str, steps: int
) -> Sequence[base.Curve]:
  """One per kind of unit of the level."""
  k = hierarchy.level_index(level)
  if not mechanism.guaranteed:
    sensitivity.refuse_unsound(hierarchy, plan, mechanism, level)
    return (_Nothing(),)
  kinds = sensitivity.kinds(hierarchy, plan, mechanism, level)
  last = hierarchy.levels[-1]
  if plan.episode is not None and mechanism.clip_unit == last:
    raise _unsound(level, "sample-level training")
  clip = sensitivity.clip_level(hierarchy, mechanism)
  stage = plan.stages[k]
  fixed = isinstance(stage, plan_lib.FixedSize)
  curves: list[base.Curve] = []
  for kind in kinds:
    if not isinstance(kind, amplification.Amplification):
      raise _unsound(level, "records that recur in a step, or one pass")
    distance = kind.own_distance
    if not fixed and k <= clip:
      distance *= 2  # It counts a unit that is absent.
    whole = _Gaussian(distance * math.sqrt(steps))
    if kind.parent_rate < 1:
      raise _unsound(level, "sampling above the unit")
    if kind.rate == 1:
      curves.append(whole)
    elif fixed:
      orders = np.arange(2.0, _MAX_ORDER + 1)
      log_moments = subsampled_log_moments(kind.rate, distance, _MAX_ORDER)
      renyi = rdp.RenyiCurve(orders, steps * log_moments / (orders - 1))
      curves.append(_Least((whole, renyi)))
    else:
      raise _unsound(level, f"{stage}")
  return curves


def _unsound(level: str, what: str) -> plan_lib.UnsoundPlanError:
  return plan_lib.UnsoundPlanError(
      f"no replace-one guarantee for level '{level}' with {what} (Lebeda et al."
      " 2024: replace-one does not follow from add-or-remove, and a proof is"
      " known only where the unit's own stage is FixedSize or full and every"
      " stage above is full): use neighbours='add-or-remove'"
  )


@functools.lru_cache(maxsize=32)
def subsampled_log_moments(
    rate: float, distance: float, max_order: int
) -> np.ndarray:
  """(order - 1) D_order of a Gaussian under sampling without replacement.

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


@dataclasses.dataclass(frozen=True)
class _Nothing:
  """A run that releases private data without noise."""

  def epsilon(self, delta: float) -> float:
    del delta
    return math.inf

  def delta(self, epsilon: float) -> float:
    del epsilon
    return 1.0


@dataclasses.dataclass(frozen=True)
class _Gaussian:
  """One Gaussian of a distance, in noise standard deviations."""

  distance: float

  def epsilon(self, delta: float) -> float:
    if delta <= 0:
      return math.inf
    return gaussian.analytic_epsilon(1 / self.distance, delta)

  def delta(self, epsilon: float) -> float:
    return gaussian.analytic_delta(1 / self.distance, epsilon)


@dataclasses.dataclass(frozen=True)
class _Least:
  """The best of several bounds."""

  curves: tuple[base.Curve, ...]

  def epsilon(self, delta: float) -> float:
    return min(curve.epsilon(delta) for curve in self.curves)

  def delta(self, epsilon: float) -> float:
    return min(curve.delta(epsilon) for curve in self.curves)


@dataclasses.dataclass(frozen=True)
class _Given(base.Accountant):
  """A known curve as an accountant, for its charge of the sampler's error."""

  bound: base.Curve

  name = "replace-one"

  def curve(
      self,
      phases: phases_lib.Phases,
      direction: amplification.Direction,
      *,
      delta: float | None = None,
      epsilon: float | None = None,
  ) -> base.Curve:
    del phases, direction, delta, epsilon
    return self.bound
