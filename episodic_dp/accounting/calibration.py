"""The smallest noise that reaches an asked epsilon."""

import dataclasses
import math

from episodic_dp import plan as plan_lib
from episodic_dp.accounting import statement

_LARGEST = 2.0**40


def calibrate(
    hierarchy: plan_lib.Hierarchy,
    plan: plan_lib.SamplingPlan,
    *,
    steps: int,
    epsilon: float,
    delta: float,
    level: str,
    mechanism: plan_lib.Mechanism,
    accountant: str = "pld",
) -> plan_lib.Mechanism:
  """The mechanism with the noise multiplier that reaches an epsilon.

  Args:
    hierarchy: public sizes.
    plan: one stage per level.
    steps: T, at least 1.
    epsilon: the epsilon asked for, > 0.
    delta: in (0, 1).
    level: the privacy unit.
    mechanism: all but its noise multiplier is kept.
    accountant: "pld".

  Returns:
    `mechanism` with a `noise_multiplier` for which the epsilon is at most the
    one asked for, and at least 99 % of it.

  Raises:
    PlanError: a value is out of range, or no noise reaches epsilon because
      delta is below the sampler's error.
    UnsoundPlanError: no guarantee is proved for the combination.
  """
  if not (epsilon > 0 and math.isfinite(epsilon)):
    raise plan_lib.PlanError(
        f"epsilon {epsilon!r} must be a positive finite number"
    )

  def reached(z: float) -> float:
    return statement.guarantee(
        hierarchy, plan,
        dataclasses.replace(mechanism, noise_multiplier=z),
        steps=steps, delta=delta, level=level, accountant=accountant,
    ).epsilon

  # low reaches more than asked, high at most.
  high = mechanism.noise_multiplier or 1.0
  value = reached(high)
  if value > epsilon:
    while value > epsilon:
      low, value_low = high, value
      high *= 2
      if high > _LARGEST:
        raise plan_lib.PlanError(
            f"no noise reaches epsilon {epsilon:g} at delta {delta:g}: delta is"
            " too small for the number of steps; use a larger delta"
        )
      value = reached(high)
  else:
    low, value_low = high, value
    while value_low <= epsilon:
      high, value = low, value_low
      low /= 2
      if low < 1 / _LARGEST:
        return dataclasses.replace(mechanism, noise_multiplier=high)
      value_low = reached(low)
  while value < 0.992 * epsilon and high > low * (1 + 1e-9):
    # Epsilon is close to a power of z: aim a little below the asked value.
    middle = math.sqrt(low * high)
    if 0 < value and value_low < math.inf:
      slope = math.log(value_low / value) / math.log(low / high)
      guess = high * (0.997 * epsilon / value) ** (1 / slope)
      margin = 0.05 * (high - low)
      if low + margin < guess < high - margin:
        middle = guess
      elif guess >= high - margin:
        middle = high - margin
      else:
        middle = low + margin
    value_middle = reached(middle)
    if value_middle > epsilon:
      low, value_low = middle, value_middle
    else:
      high, value = middle, value_middle
  return dataclasses.replace(mechanism, noise_multiplier=high)
