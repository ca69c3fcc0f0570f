"""Stages, inclusion rates, and plans against hierarchies."""

import dataclasses

import numpy as np
import pytest

from episodic_dp import plan
from episodic_dp.plan import stages as stages_lib
from episodic_dp.plan import validation
from tests import plans
from tests.refusals import assert_refused

LEVELS = ("alphabet", "character", "drawing")


def example():
  return plans.nested(LEVELS, [[4, 2, 3], [4, 5]])


def fixed(*sizes, **options):
  return plan.SamplingPlan(tuple(map(plan.FixedSize, sizes)), **options)


MIXED = plans.sampling(0.3, 2, plan.All())


@pytest.mark.parametrize(
    "p,level,eta",
    [
        (fixed(1, 1, 1), "drawing", 1 / 12),  # Example 3.1 of the paper.
        (fixed(2, 2, 1), "drawing", 1 / 3),
        *((MIXED, level, 0.3) for level in LEVELS),
    ],
)
def test_inclusion_rate_is_the_largest_over_units(p, level, eta):
  assert plan.inclusion_rate(example(), p, level) == pytest.approx(
      eta, rel=1e-15
  )


def test_rates_of_every_distinct_path():
  found = MIXED.path_rates(example().size_paths(1))
  rates = np.unique(found, axis=0)
  np.testing.assert_allclose(rates, [[0.3, 2 / 3], [0.3, 1.0]])


def test_short_units_are_taken_whole_with_rate_one():
  h = example()
  with pytest.raises(plan.PlanError) as e:
    plan.validate(h, fixed(1, 1, 3))
  unit = "character 1 of alphabet 0 has 2"
  for part in (unit, "FixedSize(3) samples 3", "allow_short"):
    assert part in str(e.value)
  p = fixed(1, 1, 3, allow_short_units=True)
  plan.validate(h, p)
  rates = p.path_rates(h.size_paths(2))
  assert rates.max(axis=0).tolist() == [0.5, 0.5, 1.0]


@pytest.mark.parametrize(
    "make,value,match",
    [
        (plan.FixedSize, 0, "FixedSize\\(n\\)=0"),
        (plan.FixedSize, 1.5, "1.5"),
        (plan.FixedSize, True, "True"),
        (plan.Poisson, 0, "p=0 "),
        (plan.Poisson, 1.1, "p=1.1 "),
        (plan.Poisson, float("nan"), "nan"),
        (plan.Poisson, True, "True"),
        (plan.RandomAllocation, 0, r"RandomAllocation\(steps\)=0"),
        (plan.RandomAllocation, 2.0, "2.0"),
        (plan.SamplingPlan, (), "at least one stage"),
        (plans.sampling, "All()", "'All\\(\\)' is not a stage"),
    ],
)
def test_stages_out_of_range_are_named(make, value, match):
  assert_refused(plan.PlanError, match, make, value)


@pytest.mark.parametrize(
    "fields,match",
    [
        (dict(way=0), "way=0"),
        (dict(query=0), "query=0"),
        (dict(form="joint"), "'joint'"),
        (dict(tasks=3), "tasks=3"),
        (dict(form="independent"), "tasks=None"),
    ],
)
def test_fields_of_an_episode_out_of_range_are_named(fields, match):
  fields = dict(way=5, shot=1, query=1) | fields
  assert_refused(plan.PlanError, match, plan.Episode, **fields)


def test_passes_go_over_the_primary_units():
  allocation = plan.RandomAllocation(250)
  h = plans.tree(LEVELS, 400_000, 5, 2)
  p = plans.sampling(allocation, 5, 2, way=5, shot=1, query=1)
  plan.validate(h, p)
  assert plan.inclusion_rate(h, p, "alphabet") == pytest.approx(1 / 250)
  assert plan.tasks_per_step(h, p) == pytest.approx(1600)
  # How many are drawn is random, so that no unit is too short.
  few = plans.tree(LEVELS, 3, 5, 2)
  assert plan.tasks_per_step(few, p) == pytest.approx(3 / 250)
  for stages in (
      (1, allocation), (allocation, plan.All(), allocation)
  ):
    with pytest.raises(plan.PlanError, match=r"steps=250\) is not the first"):
      plans.sampling(*stages)


@pytest.mark.parametrize(
    "sizes,stages,episode,match",
    [
        ((9, 5, 4), (2, 5, 2), dict(way=4), "way 4 differs from the 5"),
        ((9, 5, 4), (2, 5, 3), dict(way=5), "shot 1 \\+ query 1 = 2"),
        ((9, 5, 4), (2, 5, plan.All()), dict(way=5), "'character' sample 4"),
        ((9, 5, 4), (2, 5, 0.5), dict(way=5), "random number"),
        ((9, 5, 4), (2, 0.5, 2), dict(way=5), "random number"),
        ((9, 4), (5, 2), dict(way=5), "level between"),
        ((9, 4), (5, 2), dict(way=4, form="disjoint"), "multiple of 4"),
        (
            (9, 4), (12, 2), dict(way=4, form="disjoint"), "at most 8, leave",
        ),
        (
            (9, 5, 4),
            (3, 4, 2),
            dict(way=6, form="disjoint"),
            "one must divide the other",
        ),
        ((9,), (2,), dict(way=2, form="disjoint"), "a class level"),
        ((9, 5, 4), (2, 5), dict(way=5), "2 stages and the hierarchy 3"),
    ],
)
def test_episodes_that_do_not_fit(sizes, stages, episode, match):
  h = plan.Hierarchy.regular(sizes, levels=LEVELS[: len(sizes)])
  p = plans.sampling(*stages, **(dict(shot=1, query=1) | episode))
  assert_refused(plan.PlanError, match, plan.validate, h, p)


@pytest.mark.parametrize(
    "first,inner,episode,tasks",
    [
        (0.004, 5, dict(way=5), 4.0),
        (7, 5, dict(way=5), 7.0),
        (plan.All(), 5, dict(way=5), 1000.0),
        (6, 4, dict(way=2, form="disjoint"), 12.0),
        (4, 5, dict(way=20, form="independent", tasks=3), 3.0),
    ],
)
def test_tasks_per_step_is_a_public_constant(first, inner, episode, tasks):
  h = plans.tree(LEVELS, 1000, 5, 4)
  p = plans.sampling(
      first, inner, 2, **(dict(shot=1, query=1) | episode)
  )
  plan.validate(h, p)
  assert plan.tasks_per_step(h, p) == tasks
  with pytest.raises(plan.PlanError, match="without an episode"):
    plan.tasks_per_step(h, fixed(1, 1, 1))


@pytest.mark.parametrize(
    "sizes,stages",
    [
        (
            [[4, 2, 3], [4, 5]],
            (1, 0.5, 2),
        ),
        ([3, 7, 4], (plan.All(), 0.25)),
        ([3, 7, 4], (2, 3)),
    ],
)
def test_examples_per_step_is_the_sum_of_their_rates(sizes, stages):
  levels = ("a", "b", "c")[: len(stages)]
  hierarchy = plans.nested(levels, sizes)
  described = plans.sampling(*stages)

  def total(node, depth, rate):
    children = node if isinstance(node, int) else len(node)
    rate *= float(described.stages[depth].rate(np.asarray(children)))
    if isinstance(node, int):
      return node * rate
    return sum(total(child, depth + 1, rate) for child in node)

  assert validation.examples_per_step(hierarchy, described) == pytest.approx(
      total(sizes, 0, 1.0)
  )


TASKS = {
    "unit": ((4, 3, 2), (0.5, 3)),
    "unit, all": ((4, 3, 2), (0.5, plan.All())),
    "disjoint": ((4, 3, 2), (2, 3)),
    "disjoint, all": ((4, 3, 2), (plan.All(), plan.All())),
    "independent": ((1, 3, 2), (plan.All(), 3)),
    "independent, all": ((1, 3, 2), (plan.All(), plan.All())),
}


@pytest.mark.parametrize("last", [plan.All(), 2])
@pytest.mark.parametrize("name", TASKS)
def test_tasks_that_just_fill_are_defined_without_one_unit(name, last):
  sizes, stages = TASKS[name]
  form = name.split(",")[0]
  p = plans.sampling(
      *stages, last, way=3, shot=1, query=1, form=form,
      tasks=2 if form == "independent" else None,
  )
  allowed = dataclasses.replace(p, allow_short_units=True)
  for given in (p, allowed):
    plan.validate(plan.Hierarchy.regular(sizes, levels=LEVELS), given)
  families = [[2] * 3 for _ in range(sizes[0])]
  without_class = [[2, 2], *families[1:]]
  without_image = [[2, 2, 1], *families[1:]]
  for short in (without_class, without_image):
    h = plans.nested(LEVELS, short)
    with pytest.raises(plan.PlanError):
      plan.validate(h, p)
    plan.validate(h, allowed)
  # Whatever may be short, a plan must still be able to fill a task.
  for way in (2, 4):
    wrong = dataclasses.replace(p.episode, way=way)
    with pytest.raises(plan.PlanError, match=f"way {way}"):
      plan.validate(
          plan.Hierarchy.regular(sizes, levels=LEVELS),
          dataclasses.replace(p, episode=wrong),
      )


CLINIC = ("diagnosis", "patient", "image")


def checked(stages, sizes=(6, 8, 3), levels=CLINIC, **episode):
  hierarchy = plan.Hierarchy.regular(sizes, levels=levels)
  values = dict(way=2, shot=1, query=1, form="disjoint") | episode
  p = fixed(*stages, episode=plan.Episode(**values))
  plan.validate(hierarchy, p)
  return stages_lib.class_level(hierarchy, p), plan.tasks_per_step(hierarchy, p)


@pytest.mark.parametrize(
    "stages,options,found",
    [
        ((1, 4, 2), {}, (1, 2)),
        ((4, 2, 1), dict(classes="diagnosis"), (0, 2)),
        (
            (3, 2, 2, 1),
            dict(
                sizes=(5, 6, 4, 3), levels=("ward", *CLINIC), form="unit",
                classes="diagnosis",
            ),
            (1, 3),
        ),
    ],
)
def test_the_class_is_the_level_above_the_examples_unless_it_is_named(
    stages, options, found
):
  assert checked(stages, **options) == found


@pytest.mark.parametrize(
    "stages, episode, message",
    [
        (
            (2, 2, 1), dict(classes="ward"),
            "unknown level 'ward': the hierarchy has",
        ),
        (
            (2, 2, 1), dict(classes="image"),
            "classes='image': expected .*'patient'",
        ),
        (
            (2, 2, 1), dict(classes="diagnosis", form="unit"),
            "use form='disjoint' or 'independent'",
        ),
        (
            (2, 3, 1), dict(classes="diagnosis"),
            r"the stages below 'diagnosis' sample 3 x 1 of level 'image'",
        ),
        (
            (2, 2, 2), dict(classes="diagnosis", shot=1, query=3),
            "make shot and query multiples of 2, or use FixedSize",
        ),
        (
            (2, 9, 1), dict(classes="diagnosis", shot=4, query=5),
            r"diagnosis 0 has 8 of level 'patient', and stage FixedSize\(9\)",
        ),
    ],
)
def test_class_errors_name_the_level_and_the_remedy(stages, episode, message):
  assert_refused(plan.PlanError, message, checked, stages, **episode)


@pytest.mark.parametrize(
    "stage,most,exchanges,coin,pass_steps,random_count",
    [
        (plan.FixedSize(3), [2, 3, 3], [False, False, True], 1.0, None, False),
        (plan.All(), [2, 3, 4], [False] * 3, 1.0, None, False),
        (plan.Poisson(0.2), [2, 3, 4], [False] * 3, 0.2, None, True),
        (plan.RandomAllocation(9), [2, 3, 4], [False] * 3, 1.0, 9, True),
    ],
)
def test_what_a_stage_does_with_2_3_and_4_children(
    stage, most, exchanges, coin, pass_steps, random_count
):
  children = np.asarray([2, 3, 4])
  assert stage.most(children).tolist() == most
  assert stage.exchanges(children).tolist() == exchanges
  assert (stage.coin, stage.pass_steps) == (coin, pass_steps)
  assert stage.random_count == random_count
