"""Composition: reference values, exact Gaussians, and what must be monotone."""

import math

from dp_accounting.pld import pld_pmf
import numpy as np
import pytest

from episodic_dp import accounting
from episodic_dp import plan
from episodic_dp.accounting.accountants import base
from episodic_dp.accounting.accountants import pld
from episodic_dp.accounting.profiles import amplification
from episodic_dp.accounting.profiles import unit_profile
from episodic_dp.plan import sampler_error


def unit_profiles(q, p, outer, own):
  return (amplification.Amplification((q,), p, (outer,), own),)


@pytest.mark.parametrize("direction", amplification.DIRECTIONS)
def test_one_step_agrees_with_connect_the_dots(direction):
  units = unit_profiles(0.1, 0.3, 1.0, 2.0)
  ours = pld.one_step(units, direction, (4.0, 4.0), 0.02)
  theirs = pld_pmf.create_pmf_pessimistic_connect_dots(
      ours.step,
      np.arange(ours.lower, ours.upper + 1),
      np.minimum.accumulate(
          unit_profile.profile(units, ours.losses, direction)
      ),
  ).to_dense_pmf()
  np.testing.assert_allclose(ours.probs, theirs._probs, atol=1e-11)
  for epsilon in (0.0, 0.1, 1.0, 2.5):
    assert ours.delta(epsilon) == pytest.approx(
        theirs.get_delta_for_epsilon(epsilon), abs=1e-12
    )


def test_ratios_of_probabilities_are_charged_to_epsilon():
  units, steps, delta = unit_profiles(1.0, 0.1, 1.0, 1.0), 100, 1e-6
  run = (base.Phase(units, steps),)
  plain = pld.PLD().epsilon(run, "remove", delta)
  for variation in (1e-9, 1e-3):
    ratio = sampler_error.SamplerError(variation=variation, log_ratio=variation)
    charged = pld.PLD().epsilon(run, "remove", delta, ratio)
    assert plain < charged <= plain + 4 * variation
    assert pld.PLD().delta(run, "remove", charged, ratio) <= delta * 1.001
  unmatched = sampler_error.SamplerError(
      variation=1e-3, tails=1e-3, unmatched=1e-8
  )
  charged = pld.PLD().epsilon(run, "remove", delta, unmatched)
  expected = pld.PLD().epsilon(run, "remove", delta - 1e-8)
  assert charged == pytest.approx(expected, rel=1e-3)
  assert pld.PLD().delta(run, "remove", charged, unmatched) <= delta * 1.001


def test_every_guess_of_a_delta_is_a_bound_and_the_least_is_told():
  # The last guess, far below, needs a window that the transform has not: it
  # said 1.0, and so did the answer.
  h = plan.Hierarchy.regular((1000,), levels=("unit",))
  release = plan.Release(
      h,
      plan.SamplingPlan((plan.Poisson(0.005),)),
      plan.Mechanism(clip_unit="unit", noise_multiplier=10.0),
  )
  found = [
      accounting.guarantee(
          release, steps=1000, level="unit", epsilon=epsilon
      ).delta
      for epsilon in (0.1, 0.3, 2.0, 5.0)
  ]
  assert found[:2] == sorted(found[:2], reverse=True)
  assert max(found[2:]) < 1e-22


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
