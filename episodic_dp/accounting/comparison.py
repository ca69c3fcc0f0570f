"""Bounds of the literature, for comparison only: never a reported epsilon."""

import math

import numpy as np

from episodic_dp.accounting import amplification


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
  """
  base = math.log1p(math.expm1(epsilon) / eta)
  divergence = amplification.hockey_stick(
      np.asarray([base]), 1 / noise_multiplier
  )
  return float(eta * divergence[0])
