"""A release is checked when it is made, by the rules of `plan.soundness`."""

import dataclasses

import pytest

from episodic_dp import plan

HIERARCHY = plan.Hierarchy.regular(
    (20, 8, 6), levels=("participant", "class", "image")
)
PLAN = plan.SamplingPlan(
    (plan.Poisson(0.1), plan.FixedSize(5), plan.FixedSize(2)),
    episode=plan.Episode(way=5, shot=1, query=1),
)
TASKS = plan.Mechanism(clip_unit="participant", noise_multiplier=1.0)
INNER = dict(
    clip_unit="image", inner_clip_norm=1.0, inner_noise_multiplier=2.0,
    inner_steps=3, order="first",
)


def make(hierarchy=HIERARCHY, sampling=PLAN, mechanism=TASKS):
  return plan.Release(hierarchy, sampling, mechanism)


def grouped(form, stages):
  """A plan whose tasks are cut out of drawn classes."""
  tasks = 2 if form == "independent" else None
  return plan.SamplingPlan(
      stages,
      episode=plan.Episode(way=5, shot=1, query=1, form=form, tasks=tasks),
  )


CLASSES = plan.Hierarchy.regular((20, 6), levels=("class", "image"))
EPISODES = plan.Mechanism(clip_unit="episode", noise_multiplier=1.0)


def test_equal_parts_make_equal_releases():
  assert make() == make() and hash(make()) == hash(make())
  louder = dataclasses.replace(TASKS, noise_multiplier=2.0)
  assert make().replace(mechanism=louder) == make(mechanism=louder) != make()


@pytest.mark.parametrize("name", ["hierarchy", "sampling", "mechanism"])
def test_parts_of_another_kind_are_named(name):
  with pytest.raises(plan.PlanError, match="is no plan.*Release.hierarchy"):
    make(**{name: 0.3})


def test_the_clip_level_is_that_of_one_task():
  assert make().clip_level == 0 and not make().sample_level
  drawn = grouped("disjoint", (plan.FixedSize(10), plan.FixedSize(2)))
  assert make(CLASSES, drawn, EPISODES).clip_level == 0
  examples = make(mechanism=plan.Mechanism(noise_multiplier=1.0, **INNER))
  assert examples.clip_level == 2 and examples.sample_level


@pytest.mark.parametrize("form", ["disjoint", "independent"])
@pytest.mark.parametrize(
  "first, remedy",
  [(plan.Poisson(0.5), "FixedSize"), (plan.RandomAllocation(4), "form='unit'")],
)
def test_tasks_of_a_random_number_of_classes(form, first, remedy):
  drawn = grouped(form, (first, plan.FixedSize(2)))
  with pytest.raises(plan.UnsoundPlanError, match=f"regroups.*{remedy}"):
    make(CLASSES, drawn, EPISODES)


@pytest.mark.parametrize(
    "adaptive",
    [
        dict(
            clipping="private_quantile", clip_quantile=0.5, clip_rate=0.2,
            count_noise=5.0,
        ),
        dict(
            clipping="percentile_window", clip_percentile=90.0, clip_window=4
        ),
    ],
)
def test_adaptive_norms_with_noisy_inner_steps(adaptive):
  with pytest.raises(plan.UnsoundPlanError, match="noisy inner steps"):
    make(mechanism=plan.Mechanism(noise_multiplier=1.0, **INNER, **adaptive))


def test_noise_inside_tasks_that_are_clipped_whole():
  noisy = plan.Mechanism(
      noise_multiplier=1.0, **(INNER | dict(clip_unit="participant"))
  )
  with pytest.raises(plan.PlanError, match="use clip_unit='image', or leave"):
    make(mechanism=noisy)


def test_examples_in_tasks_need_noise_and_first_order():
  plain = plan.Mechanism(clip_unit="image", noise_multiplier=1.0)
  with pytest.raises(plan.UnsoundPlanError, match="noisy inner steps only"):
    make(mechanism=plain)
  second = plan.Mechanism(
      noise_multiplier=1.0, **(INNER | dict(order="second"))
  )
  with pytest.raises(plan.UnsoundPlanError, match="second-order leak"):
    make(mechanism=second)


def test_a_clip_unit_between_task_and_example():
  with pytest.raises(plan.UnsoundPlanError, match="no proof covers"):
    make(mechanism=dataclasses.replace(TASKS, clip_unit="class"))


def test_a_level_may_lack_a_proof_that_the_release_has():
  shared = plan.Hierarchy.regular(
      (20, 8, 6), levels=HIERARCHY.levels, copies=True
  )
  release = make(shared)
  plan.check_level(release, "participant")
  with pytest.raises(plan.UnsoundPlanError, match="under how many"):
    plan.check_level(release, "image")
  with pytest.raises(plan.PlanError, match="participant"):
    plan.check_level(release, "writer")
