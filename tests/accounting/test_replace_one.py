"""Units that are replaced, and groups of units."""

import math

import pytest

from episodic_dp import accounting
from episodic_dp import plan
from episodic_dp.accounting.accountants import base


def epsilon_of(release, level, steps, delta, **options):
  return accounting.guarantee(
      release, steps=steps, level=level, delta=delta,
      neighbours="replace-one", **options
  ).epsilon


def delta_of(release, level, steps, epsilon, **options):
  return accounting.guarantee(
      release, steps=steps, level=level, epsilon=epsilon,
      neighbours="replace-one", **options
  ).delta


def mechanism(unit, z):
  return plan.Mechanism(clip_unit=unit, noise_multiplier=z)


@pytest.mark.parametrize(
    "stage,z,steps,delta,expected",
    [
        (plan.Poisson(0.004), 1.0, 250, 1e-6, 0.6174),
        (plan.FixedSize(4), 1.0, 250, 1e-6, 6.221),
        (plan.FixedSize(50), 4.0, 500, 1e-5, 2.877),
    ],
)
def test_one_curve_is_near_what_one_data_set_loses(
    stage, z, steps, delta, expected
):
  h = plan.Hierarchy.regular((1000,), levels=("image",))
  release = plan.Release(h, plan.SamplingPlan((stage,)), mechanism("image", z))
  found = epsilon_of(release, "image", steps, delta)
  assert found == pytest.approx(expected, rel=2e-3)
  assert delta_of(release, "image", steps, found * 1.001) <= delta
  lowest = accounting.lower_bound(
      release, steps=steps, level="image", delta=delta,
      neighbours="replace-one",
  )
  assert 0.85 * found < lowest <= found


def test_without_sampling_it_is_one_gaussian():
  h = plan.Hierarchy.from_sizes([3, 2], levels=("participant", "image"))
  m = mechanism("image", 4.0)
  for stages in (
      (plan.All(), plan.All()),
      (plan.FixedSize(2), plan.All()),
      (plan.Poisson(1.0), plan.All()),
  ):
    p = plan.SamplingPlan(stages)
    # A participant has up to three images, and each moves by twice the norm.
    got = epsilon_of(
      plan.Release(h, p, m), "participant", 9, 1e-5
    )
    assert got == pytest.approx(
        base.GaussianCurve(4.5).epsilon(1e-5), rel=1e-6
    )
    got = epsilon_of(
      plan.Release(h, p, m), "image", 9, 1e-5
    )
    assert got == pytest.approx(
        base.GaussianCurve(1.5).epsilon(1e-5), rel=1e-6
    )


STAGES = (
    (plan.Poisson(0.5), plan.All()),
    (plan.All(), plan.Poisson(0.5)),
    (plan.FixedSize(1), plan.Poisson(0.3)),
    (plan.Poisson(0.4), plan.FixedSize(1)),
    (plan.FixedSize(2), plan.FixedSize(1)),
    (plan.FixedSize(1), plan.All()),
)


@pytest.mark.parametrize("z", [1e-6, 1e-2])
@pytest.mark.parametrize("stages", STAGES)
def test_however_little_noise_it_is_finite(stages, z):
  h = plan.Hierarchy.regular((4, 3), levels=("participant", "image"))
  release = plan.Release(h, plan.SamplingPlan(stages), mechanism("image", z))
  for level in h.levels:
    assert math.isfinite(epsilon_of(release, level, 10, 1e-6))


# Groups -----------------------------------------------------------------------


def release_of(sizes, stages, clip="user", z=1.0, episode=None):
  levels = ("user", "image")[: len(sizes)]
  return plan.Release(
      plan.Hierarchy.regular(sizes, levels=levels),
      plan.SamplingPlan(stages, episode),
      plan.Mechanism(clip_unit=clip, noise_multiplier=z),
  )


@pytest.mark.parametrize("steps", [1, 40])
@pytest.mark.parametrize("group", [2, 5, 30])
def test_gaussians_of_a_group_cost_no_less_than_one_that_far(group, steps):
  release = release_of((100,), (plan.All(),), z=20.0)
  asked = dict(steps=steps, level="user", group=group)
  found = accounting.guarantee(release, delta=1e-5, **asked)
  whole = base.GaussianCurve(group / 20.0 * steps**0.5)
  truth = whole.epsilon(1e-5)
  assert truth <= found.epsilon <= 4 * truth + 0.1
  at = accounting.guarantee(release, epsilon=found.epsilon, **asked).delta
  assert at <= 1e-5 * (1 + 1e-6)
  assert at >= whole.delta(found.epsilon)
  assert f"up to {group} units" in found.neighbours


def test_it_grows_with_the_group_and_one_is_the_guarantee_itself():
  release = release_of((400, 5), (plan.Poisson(0.02), plan.Poisson(0.3)))
  for level in release.levels:
    asked = dict(steps=20, level=level, delta=1e-5)
    found = [
        accounting.guarantee(release, group=group, **asked).epsilon
        for group in (1, 2, 4)
    ]
    assert found == sorted(found)
    assert found[0] == accounting.guarantee(release, **asked).epsilon
    replaced = accounting.guarantee(release, neighbours="replace-one", **asked)
    assert replaced.epsilon <= found[1]


POISSON = release_of((10,), (plan.Poisson(0.5),))


@pytest.mark.parametrize(
    "release,options,error,match",
    [
        (release_of((10, 4), (plan.FixedSize(4), plan.Poisson(0.5))), {},
         plan.UnsoundPlanError, "more often once one"),
        (POISSON, dict(neighbours="replace-one"), plan.UnsoundPlanError,
         "add-or-remove"),
        *(
            (POISSON, dict(group=group), plan.PlanError, "group")
            for group in (0, 1.5, True, 10**7)
        ),
    ],
)
def test_groups_without_a_bound_are_refused(release, options, error, match):
  asked = dict(steps=1, level="user", delta=1e-5, group=2)
  with pytest.raises(error, match=match):
    accounting.guarantee(release, **(asked | options))


def test_without_noise_a_group_has_no_bound():
  silent = release_of((10,), (plan.All(),), z=0.0)
  found = accounting.guarantee(
      silent, steps=1, level="user", delta=1e-5, group=3
  )
  assert math.isinf(found.epsilon)
