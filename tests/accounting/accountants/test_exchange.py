"""Exchanging a unit: never below what Gaussians on a line tell."""

import math

import pytest

from episodic_dp.accounting.accountants import base
from episodic_dp.accounting.accountants import exchange
from episodic_dp.accounting.profiles import amplification


@pytest.mark.parametrize("distance", [1e-6, 0.1, 1.0, 30.0])
def test_two_gaussians_in_a_row_are_one_twice_as_far(distance):
  one, two = base.GaussianCurve(distance), base.GaussianCurve(2 * distance)
  both = exchange.Exchanged(one, one)
  for delta in (1e-2, 1e-6, 1e-12):
    found = both.epsilon(delta)
    assert two.epsilon(delta) * (1 - 1e-9) <= found < math.inf
    # No worse than half of delta for each, at the same epsilon.
    a = one.epsilon(delta / 2)
    assert found <= a + one.epsilon(delta / 2 * math.exp(-a)) + 1e-12
    if found > 0:
      back = both.delta(found)
      assert two.delta(found) * (1 - 1e-6) <= back <= delta * (1 + 1e-6)


def test_the_best_split_is_found():
  # R alone decides where A is nothing beyond a bounded loss.
  both = exchange.Exchanged(
      base.GaussianCurve(1.0), base.BoundedLoss(0.2, 0.0)
  )
  wanted = base.GaussianCurve(1.0).epsilon(1e-6) + 0.2
  assert both.epsilon(1e-6) == pytest.approx(wanted, rel=1e-6)


@pytest.mark.parametrize("steps", [1, 1000])
@pytest.mark.parametrize("distance", [0.3, 40.0])
def test_moments_bound_it_however_large_epsilon_is(distance, steps):
  unit = amplification.Amplification((), 1.0, (), distance)
  run = (base.Phase((unit,), steps),)
  truth = base.GaussianCurve(2 * distance * math.sqrt(steps))
  found = exchange.by_moments(run)
  for delta in (1e-5, 1e-100):
    assert truth.epsilon(delta) <= found.epsilon(delta)
    assert found.epsilon(delta) <= 6 * truth.epsilon(delta)
