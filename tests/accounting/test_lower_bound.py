"""Lower bounds: never above the guarantee, and exact where one step is."""

import math

import numpy as np
import pytest

from episodic_dp import accounting
from episodic_dp import plan
from episodic_dp.accounting import lower_bounds
from tests.oracles import exact
from tests.oracles import worst_case

LEVELS = ("hospital", "patient", "record")


def release_of(sizes, stages, clip, z=1.0):
  levels = LEVELS[: len(sizes)]
  return plan.Release(
      plan.Hierarchy.regular(sizes, levels=levels),
      plan.SamplingPlan(stages),
      plan.Mechanism(clip_unit=clip, noise_multiplier=z),
  )


PLANS = {
    "poisson": ((50,), (plan.Poisson(0.1),), "hospital"),
    "fixed": ((50,), (plan.FixedSize(5),), "hospital"),
    "tasks": ((4, 3), (plan.Poisson(0.3), plan.FixedSize(2)), "hospital"),
    "examples": ((4, 3), (plan.FixedSize(2), plan.FixedSize(1)), "patient"),
    "users": ((4, 3), (plan.Poisson(0.4), plan.Poisson(0.5)), "patient"),
    "middle": (
        (3, 2, 2),
        (plan.FixedSize(1), plan.FixedSize(1), plan.Poisson(0.5)),
        "patient",
    ),
}


@pytest.mark.parametrize("neighbours", ["add-or-remove", "replace-one"])
@pytest.mark.parametrize("name", PLANS)
def test_it_is_at_most_the_guarantee(name, neighbours):
  release = release_of(*PLANS[name])
  for level in release.levels:
    for steps, delta in ((1, 1e-3), (30, 1e-5)):
      asked = dict(steps=steps, delta=delta, neighbours=neighbours)
      least = accounting.lower_bound(release, level=level, **asked)
      told = accounting.guarantee(release, level=level, **asked).epsilon
      assert 0 < least <= told
      if len(release.levels) == 1:
        assert least > 0.85 * told
    delta = accounting.lower_bound(
        release, steps=5, level=level, epsilon=1.0, neighbours=neighbours
    )
    assert 0 < delta <= accounting.guarantee(
        release, steps=5, level=level, epsilon=1.0, neighbours=neighbours
    ).delta


@pytest.mark.parametrize("name", [n for n in PLANS if len(PLANS[n][0]) > 1])
def test_one_step_is_the_loss_of_an_enumerated_data_set(name):
  sizes, stages, clip = PLANS[name]
  release = release_of(*PLANS[name])
  h, c = release.hierarchy, release.clip_level
  for k, level in enumerate(release.levels):
    least = accounting.lower_bound(release, steps=1, level=level, epsilon=0.3)
    drawn = exact.pair(h, release.plan, k, 0, clip=c)
    truth = max(
        value
        for gradient in worst_case.gradients(h, k, 0)
        for value in exact.divergences(drawn, c, gradient, 0.3, 1.0).values()
    )
    assert least <= truth + 1e-9
    if name != "middle" and (k <= c or name == "tasks"):
      assert least == pytest.approx(truth, rel=2e-3, abs=1e-6)


@pytest.mark.parametrize("z", [1e-30, 1e-20, 1.0, 1e30])
@pytest.mark.parametrize(
    "stage",
    [plan.Poisson(0.1), plan.FixedSize(5), plan.FixedSize(50), plan.All()],
)
def test_it_is_finite_for_any_noise(stage, z):
  release = release_of((50,), (stage,), "hospital", z)
  for steps in (1, 1000):
    asked = dict(steps=steps, level="hospital", delta=1e-5)
    told = accounting.guarantee(release, **asked).epsilon
    assert 0 <= accounting.lower_bound(release, **asked) <= told


def test_a_pass_has_one_too():
  release = release_of((40,), (plan.RandomAllocation(8),), "hospital")
  for steps in (8, 24):
    told = accounting.guarantee(
        release, steps=steps, level="hospital", delta=1e-5
    ).epsilon
    least = accounting.lower_bound(
        release, steps=steps, level="hospital", delta=1e-5
    )
    assert 0.9 * told < least <= told


def test_unknown_plans_have_zero_and_wrong_values_end_in_a_sentence():
  h = plan.Hierarchy.regular((60, 20), levels=("class", "image"))
  release = plan.Release(
      h,
      plan.SamplingPlan(
          (plan.FixedSize(5), plan.FixedSize(3)),
          episode=plan.Episode(
              way=5, shot=1, query=2, form="independent", tasks=3
          ),
      ),
      plan.Mechanism(clip_unit="episode", noise_multiplier=1.0),
  )
  asked = dict(steps=3, level="class")
  assert accounting.lower_bound(release, delta=1e-5, **asked) == 0
  with pytest.raises(plan.PlanError):
    accounting.lower_bound(release, delta=2.0, **asked)


def test_merged_outcomes_have_no_larger_ratio():
  rng = np.random.default_rng(0)
  losses = rng.normal(0, 1, 1000)
  probs = rng.dirichlet(np.ones(1000))
  h = 0.05
  cell = np.floor(losses / h).astype(np.int64)
  above = losses - cell * h
  first, found = lower_bounds._gathered(
      cell, probs, 1 - above / h, -probs * np.expm1(-above),
      probs * np.expm1(h - above),
  )
  points = (first + np.arange(found.size)) * h
  for epsilon in (0.0, 0.5, 1.5):
    def delta(at, p, epsilon=epsilon):
      return float((p * np.maximum(-np.expm1(epsilon - at), 0)).sum())

    merged, truth = delta(points, found), delta(losses, probs)
    assert 0 <= truth - merged < 2e-3
  assert math.isclose(found.sum(), 1.0)
