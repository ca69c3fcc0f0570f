"""Losses rounded downwards: never above the truth, and close to it."""

import math

import mpmath
import numpy as np
import pytest

from episodic_dp.accounting.lower_bounds import composition
from episodic_dp.accounting.lower_bounds import pairs
from episodic_dp.accounting.profiles import gaussian
from episodic_dp.accounting.reference import exact


def composed(pair, times, direction, epsilon, points=1 << 14):
  losses = pair.losses(direction, 1e-12, points)
  steps = [composition.Step(losses, times)]
  moments = composition.log_moments(steps)
  _, tilt = composition.estimate(moments, None, epsilon)
  h = 2 * float(np.ptp(losses.losses)) / points
  return composition.compose(steps, h, tilt)


def mixture(means, larger, smaller):
  return pairs.Pair(
      np.asarray(means, float), np.asarray(larger, float),
      np.asarray(smaller, float), 0.0,
  )


POISSON = mixture([0, 1], [0.8, 0.2], [1, 0])
THREE = mixture([-1, 0, 1], [0.3, 0.4, 0.3], [0.6, 0.4, 0])


def one_step(pair, direction, epsilon):
  """H by mpmath's quadrature, between the changes of sign."""
  p, q = pair.larger, pair.smaller
  if direction == "add":
    p, q = q, p
  alpha = math.exp(epsilon)

  def surplus(x):
    return mpmath.fsum(
        (a - alpha * b) * mpmath.npdf(x - m)
        for a, b, m in zip(p, q, pair.means)
    )

  points = np.linspace(-10, 10, 401)
  signs = [surplus(x) > 0 for x in points]
  cuts = [-mpmath.inf]
  for a, b, left, right in zip(signs, signs[1:], points, points[1:]):
    if a != b:
      cuts.append(mpmath.findroot(surplus, (left, right), solver="anderson"))
  cuts.append(mpmath.inf)
  parts = [
      mpmath.fsum(
          (a - alpha * b) * (mpmath.ncdf(right - m) - mpmath.ncdf(left - m))
          for a, b, m in zip(p, q, pair.means)
      )
      for left, right in zip(cuts, cuts[1:])
  ]
  return mpmath.fsum(part for part in parts if part > 0)


@pytest.mark.parametrize("pair", [POISSON, THREE])
@pytest.mark.parametrize("direction", pairs.DIRECTIONS)
@pytest.mark.parametrize("epsilon", [0.15])
def test_one_step_is_that_of_mpmath(pair, direction, epsilon):
  truth = float(one_step(pair, direction, epsilon))
  found = composed(pair, 1, direction, epsilon).delta(epsilon)
  assert truth * (1 - 1e-5) - 1e-12 <= found <= truth


@pytest.mark.parametrize("direction", pairs.DIRECTIONS)
@pytest.mark.parametrize("epsilon", [0.1, 0.5])
def test_two_steps_are_those_of_a_grid_over_the_plane(direction, epsilon):
  both = [
      exact.twice((THREE.means, weights))
      for weights in (THREE.larger, THREE.smaller)
  ]
  if direction == "add":
    both.reverse()
  truth = exact.plane_hockey_stick(*both, math.exp(epsilon), 1.0)
  found = composed(THREE, 2, direction, epsilon).delta(epsilon)
  assert found == pytest.approx(truth, rel=2e-3)
  assert found <= truth * (1 + 2e-4)  # The plane's grid has four digits.


@pytest.mark.parametrize("times,epsilon,direction", [
    (2, 0.1, "remove"), (100, 2.0, "add"), (10**4, 2.0, "remove")
])
def test_gaussians_add_up(times, epsilon, direction):
  d = 1 / math.sqrt(times)
  pair = mixture([0, d], [0, 1], [1, 0])
  truth = gaussian.analytic_delta(1.0, epsilon)
  found = composed(pair, times, direction, epsilon)
  assert 0.998 * truth <= found.delta(epsilon) <= truth


def test_no_grid_is_above_the_truth():
  """Coarse ones least of all: every one is a bound."""
  truth = gaussian.analytic_delta(1.0, 1.0)
  pair = mixture([0, 0.1], [0, 1], [1, 0])
  values = [
      composed(pair, 100, "remove", 1.0, points).delta(1.0)
      for points in (64, 128, 256, 1 << 10, 1 << 12)
  ]
  assert values == sorted(values)
  assert 0 < values[1] and values[-1] <= truth


@pytest.mark.parametrize("seed", range(5))
def test_points_have_no_less_than_they_stand_for(seed):
  rng = np.random.default_rng(seed)
  ratio, q = rng.lognormal(0, 2, 400), rng.random(400)
  h = 0.3
  cell = np.floor(ratio / h).astype(int)
  above = ratio - cell * h
  first, merged = composition.gathered(
      cell, q, 1 - above / h, q * above, q * (h - above)
  )
  points = (first + np.arange(merged.size)) * h
  # What is merged is all there was, and stands for no more than there was.
  assert merged.sum() == pytest.approx(q.sum())
  assert (merged >= -1e-15).all()
  assert merged @ points <= q @ ratio + 1e-9
  # No event of large ratios gains: the law is below in the convex order.
  for c in np.linspace(0, 20, 41):
    assert merged @ np.maximum(points - c, 0) <= (
        q @ np.maximum(ratio - c, 0) + 1e-9
    )
