"""Rates and distances of plans, and the combinations that are refused."""

import dataclasses

import numpy as np
import pytest

from episodic_dp import accounting
from episodic_dp import plan
from episodic_dp.accounting import distances
from episodic_dp.accounting import recurrence
from episodic_dp.accounting.profiles import amplification
from episodic_dp.plan import sampler_error
from tests import plans
from tests.accounting import enumerated
from tests.oracles import exact
from tests.oracles import worst_case
from tests.refusals import assert_refused

TREE = amplification.Amplification
LEVELS = ("class", "image")
POOL = plans.tree(LEVELS, 10, 20)
ALPHABETS = ("alphabet", "class", "image")
ALL = plan.All()


def profiles(h, p, unit, level, z=1.0):
  return accounting.unit_profiles(plans.release(h, p, unit, z), level)


def tasks(*stages, way=5, form="disjoint", **options):
  return plans.sampling(
      *stages, way=way, shot=1, query=1, form=form,
      tasks=4 if form == "independent" else None, **options,
  )


def copies(sizes=(1000, 5, 4), **counts):
  counts = {level.rstrip("_"): count for level, count in counts.items()}
  return plan.Hierarchy.regular(
      sizes, levels=("participant", "class", "image"), copies=True,
      most_copies=counts or None,
  )


@pytest.mark.parametrize(
    "first,level,expected",
    [
        (2, "alphabet", TREE((), 0.2, (), 4.0)),
        (2, "class", TREE((0.2,), 0.5, (4.0,), 2.0)),
        (ALL, "alphabet", TREE((), 1.0, (), 2.0)),
    ],
)
def test_disjoint_tasks_below_a_primary_unit(first, level, expected):
  h = plans.tree(ALPHABETS, 10, 20, 20)
  p = tasks(first, 10, 2)
  assert profiles(h, p, "episode", level) == (expected,)


NESTED = plans.tree("task class image", 10, 5, 20)
UNIT = tasks(0.1, 5, 2, form="unit")
COPIES = plans.sampling(0.1, 5, 2)


@pytest.mark.parametrize(
    "h,p,unit,level,match",
    [
        (POOL, tasks(ALL, 2), "episode", "class",
         "regroups.*FixedSize"),
        (POOL, tasks(10, 2), "episode", "class",
         "regroups.*FixedSize.5. or fewer"),
        (plans.tree(LEVELS, 4, 3),
         tasks(4, 2, way=4), "episode", "class",
         "fewer than 4, in tasks of a smaller way"),
        (NESTED, UNIT, "class", "image", "several examples.*'task'"),
        (NESTED, UNIT, "image", "image",
         "sample-level training.*inner_noise_multiplier.*clip_unit='task'"),
        (POOL, tasks(5, 2), "class", "class",
         "clip_unit='episode'"),
        (POOL, tasks(5, 2), "image", "class", "sample-level"),
        (POOL, tasks(5, 2, form="independent"), "class", "class",
         "clip_unit='episode'"),
        (POOL, tasks(5, 2, form="independent"), "image", "class",
         "sample-level"),
        (copies(), COPIES, "participant", "class",
         "same record.*level 'participant'"),
        (copies(), COPIES, "participant", "image",
         "same record.*level 'participant'"),
        (copies(class_=70), COPIES, "participant", "image", "most_copies"),
        (copies((10, 5, 4), image=3), tasks(2, 5, 2),
         "episode", "image", "form='unit'"),
        (copies((10, 5, 4), image=3),
         tasks(2, 5, 2, way=10, form="independent"),
         "episode", "image", "form='unit'"),
    ],
)
def test_what_no_proof_covers_is_refused(h, p, unit, level, match):
  assert_refused(plan.UnsoundPlanError, match, profiles, h, p, unit, level)


@pytest.mark.parametrize(
    "h,p,unit,level",
    [
        (POOL, tasks(10, 2), "episode", "image"),
        *((NESTED, COPIES, unit, "image") for unit in NESTED.levels),
        (copies(), COPIES, "participant", "participant"),
        (copies(class_=70), COPIES, "participant", "class"),
        (copies((10, 5, 4), image=3), tasks(2, 5, 2),
         "episode", "participant"),
    ],
)
def test_the_levels_beside_a_refused_one_have_a_guarantee(h, p, unit, level):
  assert profiles(h, p, unit, level)


@pytest.mark.parametrize(
    "p,unit,z,match",
    [
        (UNIT, "episode", 1.0, "clip_unit='task'"),
        (UNIT, "person", 1.0, "unknown level 'person'"),
        (COPIES, "episode", 1.0, "no episode"),
        (COPIES, "class", 0.0, "noise_multiplier=0"),
    ],
)
def test_parts_that_contradict_one_another(p, unit, z, match):
  assert_refused(plan.PlanError, match, profiles, NESTED, p, unit, "image", z)


def test_tasks_across_families_are_not_cut_anew_without_the_largest():
  rest = [[2] * 3] * 5
  h = plans.nested(ALPHABETS, [[2] * 4, *rest])
  without = plans.nested(ALPHABETS, rest)
  # More than any alphabet has.
  p = tasks(2, 5, 2, allow_short_units=True)
  assert sampler_error.capacities(h, p) == sampler_error.capacities(without, p)
  assert profiles(h, p, "episode", "alphabet") == (TREE((), 1 / 3, (), 2.0),)
  p = tasks(2, ALL, 2, way=2, allow_short_units=True)
  assert sampler_error.capacities(h, p) != sampler_error.capacities(without, p)
  said = "largest unit.*regroups.*FixedSize.4"
  with pytest.raises(plan.UnsoundPlanError, match=said):
    profiles(h, p, "episode", "alphabet")


def recurring(places, place_rate, rate, distance, drawn_of=None, outer=None):
  """Tasks, if the way that a path breaks is not given."""
  return recurrence.Recurrence(
      places=places,
      place_rate=place_rate,
      rate=rate,
      distance=distance,
      drawn_of=drawn_of,
      outer=((1.0, distance),) if outer is None else outer,
  )


def test_independent_tasks_draw_a_record_several_times():
  p = tasks(5, 2, form="independent")
  for level, expected in (
      ("class", recurring(4, 1.0, 0.5, 1.0)),
      ("image", recurring(4, 0.5, 0.1, 1.0)),
  ):
    assert profiles(POOL, p, "episode", level, 2.0) == (expected,)


@pytest.mark.parametrize(
    "stage,image,klass",
    [
        (0.1, (30, 0.06, 0.5, 0.5), (70, 0.1, 0.6, 0.5)),
        (ALL, (30, 0.6, 0.5, 0.5), (70, 1.0, 0.6, 0.5)),
        (
            40,
            (30, 0.6, 0.5, 0.5, (40, 1000)),
            (70, 1.0, 0.6, 0.5, (40, 1000)),
        ),
        (1000, (30, 0.6, 0.5, 0.5), (70, 1.0, 0.6, 0.5)),
    ],
)
def test_copies_with_counts(stage, image, klass):
  h = copies(class_=70, image=30)
  p = tasks(stage, 3, 2, way=3, form="unit")
  (kind,) = profiles(h, p, "participant", "image", 4.0)
  expected = recurring(*image)
  assert sum(share for share, _ in kind.outer) == pytest.approx(1)
  # A participant that is not drawn, and one that draws other classes.
  away = 0.5 if stage == 40 else 0.25
  assert [d for _, d in kind.outer] == [away, 0.5]
  assert dataclasses.replace(
      kind, place_rate=round(kind.place_rate, 12), outer=expected.outer
  ) == expected
  assert profiles(h, p, "participant", "class", 4.0) == (
      recurring(*klass, outer=((1.0, away),)),
  )
  (kind,) = profiles(h, p, "participant", "participant", 4.0)
  assert isinstance(kind, TREE)


# Clip units counted along paths -----------------------------------------------


WARDS = ("hospital", "patient", "record")


def release(hierarchy, stages, clip, z=1.0):
  return plans.release(
      hierarchy, plans.sampling(*stages, allow_short_units=True), clip, z
  )


def test_fixed_size_counts_the_largest_children():
  h = plans.nested(
      "region hospital patient record", [[[1, 1], [1], [1, 1, 1]], [[1], [1]]]
  )
  p = plans.sampling(plan.All(), 2, plan.All(), plan.All())
  clip = h.level_index("patient")
  counts = [
      distances.clip_units_below(h, p, clip, k).tolist() for k in range(4)
  ]
  assert counts == [[2 + 3, 2], [2, 1, 3, 1, 1], [1] * 8, [1] * 8]


@pytest.mark.parametrize(
    "classes,way,touched", [(1, 5, 1), (5, 5, 1), (10, 5, 2), (3, 2, 2),
                            (2, 3, 2), (4, 3, 2), (7, 3, 3), (5, 10, 1),
                            (2, 20_001, 2)]
)
def test_tasks_touched_by_a_block_of_classes(classes, way, touched):
  tasks = (np.arange(classes * way * 3) // way).reshape(-1, classes)
  counts = tasks[:, -1] - tasks[:, 0] + 1
  assert max(counts) == touched
  assert distances.tasks_touched(classes, way) == touched


def test_a_unit_is_exchanged_for_the_largest_of_the_others():
  h = plans.nested(WARDS, [[1], [1, 1, 1, 1, 1]])
  fixed = release(h, (1, ALL, ALL), "patient")
  (kind,) = accounting.unit_profiles(fixed, "hospital")
  assert kind.unit_sensitivity == 1 + 5
  for kind in accounting.unit_profiles(fixed, "record"):
    assert kind.outer_distances[0] == 1 + 5
  poisson = release(h, (0.5, ALL, ALL), "patient")
  (kind,) = accounting.unit_profiles(poisson, "hospital")
  assert kind.unit_sensitivity == 5
  found = distances.paths(poisson, 2)
  assert found.own[:, 0].tolist() == [1, 5]
  assert found.others[:, 0].tolist() == [5, 1]


# Cases that were above the truth: tiny ones, where the largest divergence over
# all units of a level is the bound, each with its own number.

LOOSE = {
    "poisson siblings": (
        [[2], [3, 3]], (0.3, ALL, 1), "patient", "record"
    ),
    "siblings of other sizes": (
        [[1, 1, 1], [1], [1]], (1, ALL, ALL), "patient", "hospital"
    ),
    "one of one": ([[3], [2]], (ALL, 1, ALL), "patient", "patient"),
    "short units": (
        [[1, 1], [1, 1]], (3, ALL, ALL), "patient", "hospital"
    ),
    "empty classes": (
        [[2, 2], [2]],
        (0.3, 0.5, 0.1),
        "hospital",
        "patient",
    ),
    "all classes, some empty": (
        [[2, 2], [2]], (1, ALL, 0.1), "hospital", "patient"
    ),
}


@pytest.mark.parametrize("name", LOOSE)
@pytest.mark.parametrize("epsilon", [0.0, 0.3])
def test_the_bound_is_the_truth(name, epsilon):
  sizes, stages, clip, level = LOOSE[name]
  h = plans.nested(WARDS, sizes)
  r = release(h, stages, clip, 1.5)
  k = h.level_index(level)
  units = accounting.unit_profiles(r, level)
  reached = dict.fromkeys(amplification.DIRECTIONS, 0.0)
  for unit in range(h.num_units(k)):
    drawn = exact.pair(h, r.plan, k, unit, clip=r.clip_level)
    for gradient in worst_case.gradients(h, k, unit):
      for direction, found in exact.divergences(
          drawn, r.clip_level, gradient, epsilon, 1.5
      ).items():
        reached[direction] = max(reached[direction], found)
  for direction in amplification.DIRECTIONS:
    bound = enumerated.profile(units, np.asarray([epsilon]), direction)[0]
    assert reached[direction] == pytest.approx(bound, abs=1e-9), direction


def test_an_exchanged_unit_shows_also_where_it_is_empty():
  # One of two classes, each empty as a rule: the other one's images are missed.
  h = plans.nested(WARDS, [[2, 2]])
  r = release(h, (ALL, 1, 0.3), "hospital")
  drawn = exact.pair(h, r.plan, 1, 0, clip=0)

  def gradient(node):
    return 1.0 if not node[2] or exact.holds(node, 1, 0) else -1.0

  truth = exact.divergences(drawn, 0, gradient, 0.1, 1.0)["add"]
  (kind,) = accounting.unit_profiles(r, "patient")
  at = np.asarray([0.1])
  assert kind.rate == 0.5 and truth <= kind.divergence(at, "add")[0]
  filled = 1 - 0.7**2
  rarer = amplification.Amplification((1.0,), 0.5 * filled, (2.0,), 2.0)
  assert truth > 1.3 * rarer.divergence(at, "add")[0]
