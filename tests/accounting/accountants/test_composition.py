"""Reading a distribution of losses: delta and epsilon by sums that are kept."""

import math

import numpy as np
import pytest

from episodic_dp.accounting.accountants import pld


@pytest.mark.parametrize(
    "step,points", [(1e-6, 500), (1e-3, 3000), (0.3, 4000), (35.0, 300)]
)
def test_sums_that_are_kept_are_the_plain_sums(step, points):
  rng = np.random.default_rng(points)
  probs = rng.random(points) * np.exp(
      -rng.random(points) * np.linspace(0, 500, points)
  )
  found = pld.Loss(step, -points // 10, probs / probs.sum(), 1e-9)
  last = float(found.losses[-1])
  for epsilon in (0.0, *rng.uniform(0, last, 20), last, 2 * last):
    above = found.losses > epsilon
    plain = found.infinity - (
        found.probs[above] * np.expm1(epsilon - found.losses[above])
    ).sum()
    assert found.delta(epsilon) == pytest.approx(plain, rel=1e-11)
  for delta in np.exp(rng.uniform(-20, 0, 20)):
    epsilon = found.epsilon(delta)
    assert found.delta(epsilon) <= delta * (1 + 1e-7)
    if epsilon > 0:
      assert found.delta(epsilon - 1e-3 * step) > delta
  assert math.isinf(found.epsilon(1e-10))
