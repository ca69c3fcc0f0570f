"""Units that are replaced, and groups of units."""

import math

import numpy as np
import pytest

from episodic_dp import accounting
from episodic_dp import plan
from episodic_dp.accounting.accountants import base
from tests.oracles import exact


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


@pytest.mark.parametrize("z", [0.7, 1.5, 6.0])
@pytest.mark.parametrize("clip", ["hospital", "patient"])
@pytest.mark.parametrize("stages", STAGES)
def test_every_plan_has_a_bound_above_what_can_be_enumerated(stages, clip, z):
  h = plan.Hierarchy.from_sizes([2, 3], levels=("hospital", "patient"))
  release = plan.Release(
      h, plan.SamplingPlan(stages), mechanism(clip, z)
  )
  drawn = exact.samples(exact.tree(h), stages)
  k = h.level_index(clip)
  rng = np.random.default_rng(0)
  for level, unit in (("hospital", 1), ("patient", 4)):
    changed = (
        range(2, 5) if (level, clip) == ("hospital", "patient")
        else [unit if level == clip else 1]
    )
    inside = level == "patient" and clip == "hospital"

    def output(rest, own, changed=changed, inside=inside):
      def gradient(node):
        if node[1] not in changed:
          return rest[node[1]]
        # A clip unit that has not drawn the patient is the same for both.
        return own if not inside or _holds(node, 4) else rest[-1]

      return exact.mixture(drawn, k, gradient)

    for epsilon in (0.1, 0.5, 1.0, 2.0):
      bound = delta_of(release, level, 1, epsilon)
      for rest in (
          np.ones(6), -np.ones(6), np.zeros(6), rng.uniform(-1, 1, 6)
      ):
        pair = output(rest, 1.0), output(rest, -1.0)
        for p, q in (pair, pair[::-1]):
          truth = exact.hockey_stick(p, q, math.exp(epsilon), z)
          assert truth <= bound * (1 + 1e-7) + 1e-12


@pytest.mark.parametrize("z", [1e-6, 1e-2])
@pytest.mark.parametrize("stages", STAGES)
def test_however_little_noise_it_is_finite(stages, z):
  h = plan.Hierarchy.regular((4, 3), levels=("participant", "image"))
  release = plan.Release(h, plan.SamplingPlan(stages), mechanism("image", z))
  for level in h.levels:
    assert math.isfinite(epsilon_of(release, level, 10, 1e-6))


def _holds(node, unit):
  """Return whether a drawn unit holds a unit of the last level."""
  if not node[2]:
    return node[1] == unit
  return any(_holds(child, unit) for child in node[2])


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


@pytest.mark.parametrize("stage", [plan.Poisson(0.3), plan.All()])
@pytest.mark.parametrize("group", [2, 3])
def test_the_bound_is_above_an_enumerated_group(stage, group):
  release = release_of((6,), (stage,), z=1.5)
  h, stages = release.hierarchy, release.plan.stages
  root = smaller = exact.tree(h)
  for unit in range(group):
    smaller = exact.without(smaller, 0, unit)
  drawn = exact.samples(root, stages), exact.samples(smaller, stages)
  for rest in (-1.0, 0.0, 1.0):
    pair = [
        exact.mixture(d, 0, lambda u, rest=rest: 1 if u[1] < group else rest)
        for d in drawn
    ]
    for epsilon in (0.3, 1.0, 3.0):
      truth = max(
          exact.hockey_stick(p, q, math.exp(epsilon), 1.5)
          for p, q in (pair, pair[::-1])
      )
      bound = accounting.guarantee(
          release, steps=1, level="user", epsilon=epsilon, group=group
      ).delta
      assert truth <= bound + 1e-12


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
