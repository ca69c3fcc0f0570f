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
import functools
import math

import numpy as np
from scipy import special

from episodic_dp import plan as plan_lib
from episodic_dp.accounting import run_phases
from episodic_dp.accounting import sensitivity
from episodic_dp.accounting.accountants import curves as curves_lib
from episodic_dp.accounting.accountants import rdp
from episodic_dp.accounting.profiles import amplification

ACCOUNTANT = "rdp"
_MAX_ORDER = 512
# Spacing, in standard deviations, of the trapezoidal rule for moments: for
# Gaussian integrands its error falls as exp(-2 (pi / spacing)^2).
_SPACING = 0.1
_FAR = 200.0
_ROUNDING = 1e-9


def epsilon_replace_one(
    release: plan_lib.Release,
    level: str,
    steps: int,
    delta: float,
) -> float:
  """Compute epsilon for replacing one unit's data, sampler error charged.

  Args:
    release: what a step samples and releases; both neighbours have its sizes,
      and without noise epsilon is infinite.
    level: the privacy unit.
    steps: T, at least 1.
    delta: in (0, 1).

  Raises:
    UnsoundPlanError: no proof covers the plan.
    PlanError: plan, hierarchy and mechanism disagree.
  """
  error = run_phases.sampler_error((run_phases.Entry(release, steps),))
  return max(
      curves_lib.charge_sampler_error(curve, error).epsilon(delta)
      for curve in _curves(release, level, steps)
  )


def delta_replace_one(
    release: plan_lib.Release,
    level: str,
    steps: int,
    epsilon: float,
) -> float:
  """Compute delta of a run at epsilon >= 0; see `epsilon_replace_one`."""
  error = run_phases.sampler_error((run_phases.Entry(release, steps),))
  return max(
      curves_lib.charge_sampler_error(curve, error).delta(epsilon)
      for curve in _curves(release, level, steps)
  )


def _curves(
    release: plan_lib.Release, level: str, steps: int
) -> Sequence[curves_lib.Curve]:
  """One per kind of unit of the level."""
  if not release.mechanism.guaranteed:
    plan_lib.check_level(release, level)
    return (curves_lib.Unprotected(),)
  units = sensitivity.unit_profiles(release, level, replaced=True)
  if release.sample_level:
    raise _unsound(level, "sample-level training")
  k = release.hierarchy.level_index(level)
  stage = release.plan.stages[k]
  fixed = isinstance(stage, plan_lib.FixedSize)
  curves: list[curves_lib.Curve] = []
  for kind in units:
    if not isinstance(kind, amplification.Amplification):
      raise _unsound(level, "records that recur in a step, or one pass")
    distance = kind.unit_sensitivity
    whole = curves_lib.GaussianCurve(distance * math.sqrt(steps))
    if kind.parent_rate < 1:
      raise _unsound(level, "sampling above the unit")
    if kind.rate == 1:
      curves.append(whole)
    elif fixed:
      orders = np.arange(2.0, _MAX_ORDER + 1)
      log_moments = subsampled_log_moments(kind.rate, distance, _MAX_ORDER)
      renyi = rdp.RenyiCurve(orders, steps * log_moments / (orders - 1))
      curves.append(curves_lib.Least((whole, renyi)))
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
