"""The Laplace profile: its closed forms, and why one dimension is enough."""

import math

import numpy as np
import pytest
from scipy import integrate

from episodic_dp.accounting.profiles import laplace


def density(x, centre):
  return math.exp(-abs(x - centre)) / 2


@pytest.mark.parametrize("distance", [0.1, 0.7, 3.0])
def test_divergence_and_moments_are_the_integrals(distance):
  profile = laplace.Laplace(distance)
  breaks = [0.0, distance]
  for epsilon in (0.0, 0.3 * distance, 0.9 * distance, 1.1 * distance):
    # Above the centre the densities fall alike; between they cross.
    crossing = (epsilon + distance) / 2
    true, _ = integrate.quad(
        lambda x, e=epsilon: max(
            density(x, distance) - math.exp(e) * density(x, 0.0), 0.0
        ),
        -20, 30, points=sorted([*breaks, crossing]), limit=200,
    )
    for direction in ("remove", "add"):
      (found,) = profile.divergence(np.asarray([epsilon]), direction)
      assert found == pytest.approx(true, abs=1e-9)
  for order in (1.1, 2.0, 7.0):
    true, _ = integrate.quad(
        lambda x, n=order: density(x, distance) ** n * density(x, 0.0)
        ** (1 - n),
        -30, 40, points=breaks, limit=200,
    )
    (found,) = profile.log_moments("remove", (order,))
    assert found == pytest.approx(math.log(true), abs=1e-8)


@pytest.mark.parametrize("first", [0.2, 0.5])
def test_two_coordinates_are_no_worse_than_one(first):
  distance = 1.0
  x = np.arange(-12, 13, 0.01) + 0.005
  parts = []
  for moved in (first, distance - first):
    parts.append((
        np.exp(-np.abs(x - moved)) / 2 * 0.01, np.exp(-np.abs(x)) / 2 * 0.01
    ))
  p = np.outer(parts[0][0], parts[1][0])
  q = np.outer(parts[0][1], parts[1][1])
  for epsilon in (0.0, 0.2, 0.6, 0.9):
    true = np.maximum(p - math.exp(epsilon) * q, 0.0).sum()
    (bound,) = laplace.Laplace(distance).divergence(
        np.asarray([epsilon]), "add"
    )
    assert true <= bound + 1e-4
