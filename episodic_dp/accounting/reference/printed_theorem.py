"""Bounds of the literature, for comparison only: never a reported epsilon."""

import math

import numpy as np

from episodic_dp import plan as plan_lib
from episodic_dp.accounting.profiles import amplification


def theorem3_as_printed(
    eta: float, epsilon: float, noise_multiplier: float
) -> float:
  """Theorem 3 of "Privacy Amplification for Episodic Training Methods".

  As printed: delta' at epsilon is eta * delta(epsilon_0), with
  epsilon = ln(1 + eta (e^epsilon_0 - 1)) and delta the add-or-remove profile of
  the Gaussian mechanism at sensitivity C. **It does not hold** for fixed-size
  sampling: a removed unit is replaced, which moves the sum by up to 2C, and the
  rest of the sample is not independent of the unit's parent. On the paper's
  Example 3.1 the true value exceeds this one twenty times.

  Args:
    eta: the inclusion probability, in (0, 1].
    epsilon: at least 0.
    noise_multiplier: z > 0.

  Returns:
    The printed delta'. Use `guarantee` for a true one.

  Raises:
    PlanError: a value is out of range.
  """
  if not (0 < eta <= 1 and epsilon >= 0 and noise_multiplier > 0):
    raise plan_lib.PlanError(
        f"eta {eta!r} must lie in (0, 1], epsilon {epsilon!r} be at least 0 and"
        f" noise_multiplier {noise_multiplier!r} be positive"
    )
  base = math.log1p(math.expm1(epsilon) / eta)
  divergence = amplification.hockey_stick(
      np.asarray([base]), 1 / noise_multiplier
  )
  return float(eta * divergence[0])
