"""Sums of enumerated steps, compared with the bounds."""

from collections.abc import Sequence
import itertools
import math

import numpy as np

from episodic_dp.accounting.profiles import amplification
from episodic_dp.accounting.profiles import unit_profile
from tests.accounting import random_tasks
from tests.oracles import exact


def convolved(parts: Sequence[exact.Mixture]) -> exact.Mixture:
  """Return the sum of independent mixtures."""
  total = parts[0]
  for part in parts[1:]:
    total = random_tasks.summed(
        (a + b, v * w)
        for (a, v), (b, w) in itertools.product(zip(*total), zip(*part))
    )
  return total


def profile(
    units: unit_profile.UnitProfiles, log_alpha: np.ndarray, direction: str
) -> np.ndarray:
  """Compute the one-step privacy profile delta(ln alpha), for alpha > 0."""
  base = np.where(log_alpha < 0, -np.expm1(np.minimum(log_alpha, 0.0)), 0.0)
  return np.minimum(
      base + unit_profile.excess(units, log_alpha, direction), 1.0
  )


def check_bounds(
    pair: Sequence[exact.Mixture],
    units: unit_profile.UnitProfiles,
    z: float,
    epsilons: Sequence[float],
) -> dict[str, float]:
  """Require that the bounds hold; return the share of them that is reached.

  Args:
    pair: sums with a unit and without it.
    units: the profiles that bound them.
    z: the noise multiplier.
    epsilons: where the divergences are compared.

  Returns:
    The largest share of each direction, of divergences that are not tiny.
  """
  reached = dict.fromkeys(amplification.DIRECTIONS, 0.0)
  for epsilon, direction in itertools.product(epsilons, reached):
    one, other = pair if direction == "remove" else pair[::-1]
    truth = exact.hockey_stick(one, other, math.exp(epsilon), z)
    (bound,) = profile(units, np.asarray([epsilon]), direction)
    # Rounding of the sums, of large bounds and of small ones.
    assert truth <= min(bound + 1e-9, bound * (1 + 1e-7) + 1e-12), direction
    if truth > 1e-3:
      reached[direction] = max(reached[direction], truth / float(bound))
  return reached
