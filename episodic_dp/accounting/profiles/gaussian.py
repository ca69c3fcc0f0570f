"""The Gaussian mechanism on its own: one release, or T of them, no sampling.

The noise multiplier is z = sigma / (the l2 sensitivity of what is released);
T releases are one of multiplier z / sqrt(T), exactly. Every answer is rounded
in the pessimistic direction: at what is returned, the exact privacy profile is
at most what was asked for.
"""

from collections.abc import Callable
import math

import numpy as np

from episodic_dp import _validate
from episodic_dp.accounting.profiles import amplification

# The hockey-stick divergence is computed to about ten digits or better.
_ROUNDING = 1e-9


def analytic_delta(
    noise_multiplier: float, epsilon: float, steps: int = 1
) -> float:
  """The exact delta at epsilon >= 0, rounded up.

  Balle and Wang, "Improving the Gaussian Mechanism for Differential Privacy"
  (ICML 2018), theorem 8.
  """
  _validate.positive("noise_multiplier", noise_multiplier)
  if not epsilon >= 0:
    raise _validate.refusal("epsilon", epsilon, "a number of at least 0")
  distance = math.sqrt(steps) / noise_multiplier
  return min(1.0, _divergence(epsilon, distance) * (1 + _ROUNDING))


def analytic_epsilon(
    noise_multiplier: float, delta: float, steps: int = 1
) -> float:
  """The exact epsilon >= 0 at delta, rounded up; see `analytic_delta`."""
  _validate.fraction("delta", delta)
  _validate.positive("noise_multiplier", noise_multiplier)
  distance = math.sqrt(steps) / noise_multiplier
  target = delta * (1 - _ROUNDING)

  def gap(epsilon: float) -> float:
    return _divergence(epsilon, distance) - target

  if gap(0.0) <= 0:
    return 0.0
  high = distance * (distance / 2 + 1)
  while gap(high) > 0:
    high *= 2
  return _halved(gap, 0.0, high)


def analytic_noise_multiplier(
    epsilon: float, delta: float, steps: int = 1
) -> float:
  """The least noise multiplier for epsilon and delta, rounded up.

  Args:
    epsilon: at least 0.
    delta: in (0, 1).
    steps: how many releases with this multiplier, at least 1.
  """
  _validate.fraction("delta", delta)
  _validate.positive("epsilon", epsilon, zero=True)
  target = delta * (1 - _ROUNDING)

  def gap(log_noise: float) -> float:
    return _divergence(epsilon, math.exp(-log_noise)) - target

  low = high = 0.0
  while gap(high) > 0:
    high += 4.0
  while gap(low) <= 0:
    low -= 1.0
  return math.sqrt(steps) * math.exp(_halved(gap, low, high))


def _halved(gap: Callable[[float], float], low: float, high: float) -> float:
  """The least value, to about 14 digits, that is known to have gap <= 0.

  Plain halving: scipy's root finders cost more to import than all of this.
  """
  while high - low > 1e-14 * max(abs(low), abs(high)):
    middle = (low + high) / 2
    if not low < middle < high:
      break
    if gap(middle) > 0:
      low = middle
    else:
      high = middle
  return high


def _divergence(epsilon: float, distance: float) -> float:
  return float(
      amplification.hockey_stick(np.asarray([epsilon]), distance)[0]
  )
