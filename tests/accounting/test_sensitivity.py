"""Rates and distances of plans, and the combinations that are refused."""

import dataclasses

import pytest

from episodic_dp import accounting
from episodic_dp import plan
from episodic_dp.accounting.profiles import amplification
from episodic_dp.accounting.profiles import recurrence
from episodic_dp.plan import sampler_error

TREE = amplification.Amplification
LEVELS = ("class", "image")
POOL = plan.Hierarchy.regular((10, 20), levels=LEVELS)
ALPHABETS = ("alphabet", "class", "image")
FIXED, ALL = plan.FixedSize, plan.All()


def profiles(h, p, unit, level, z=1.0):
  m = plan.Mechanism(clip_unit=unit, noise_multiplier=z)
  return accounting.unit_profiles(plan.Release(h, p, m), level)


def tasks(*stages, way=5, form="disjoint", **options):
  return plan.SamplingPlan(
      stages,
      episode=plan.Episode(
          way=way, shot=1, query=1, form=form,
          tasks=4 if form == "independent" else None,
      ),
      **options,
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
        (FIXED(2), "alphabet", TREE((), 0.2, (), 4.0)),
        (FIXED(2), "class", TREE((0.2,), 0.5, (4.0,), 2.0)),
        (ALL, "alphabet", TREE((), 1.0, (), 2.0)),
    ],
)
def test_disjoint_tasks_below_a_primary_unit(first, level, expected):
  h = plan.Hierarchy.regular((10, 20, 20), levels=ALPHABETS)
  p = tasks(first, FIXED(10), FIXED(2))
  assert profiles(h, p, "episode", level) == (expected,)


NESTED = plan.Hierarchy.regular((10, 5, 20), levels=("task", "class", "image"))
UNIT = tasks(plan.Poisson(0.1), FIXED(5), FIXED(2), form="unit")
COPIES = plan.SamplingPlan((plan.Poisson(0.1), FIXED(5), FIXED(2)))


@pytest.mark.parametrize(
    "h,p,unit,level,match",
    [
        (POOL, tasks(ALL, FIXED(2)), "episode", "class",
         "regrouped.*FixedSize"),
        (POOL, tasks(FIXED(10), FIXED(2)), "episode", "class",
         "regrouped.*draw FixedSize.5. or fewer"),
        (plan.Hierarchy.regular((4, 3), levels=LEVELS),
         tasks(FIXED(4), FIXED(2), way=4), "episode", "class",
         "draw fewer than 4, in tasks of a smaller way"),
        (NESTED, UNIT, "class", "image", "several examples.*'task'"),
        (NESTED, UNIT, "image", "image",
         "sample-level training.*inner_noise_multiplier.*clip_unit='task'"),
        (POOL, tasks(FIXED(5), FIXED(2)), "class", "class",
         "clip_unit='episode'"),
        (POOL, tasks(FIXED(5), FIXED(2)), "image", "class", "sample-level"),
        (POOL, tasks(FIXED(5), FIXED(2), form="independent"), "class", "class",
         "clip_unit='episode'"),
        (POOL, tasks(FIXED(5), FIXED(2), form="independent"), "image", "class",
         "sample-level"),
        (copies(), COPIES, "participant", "class",
         "same record.*level 'participant'"),
        (copies(), COPIES, "participant", "image",
         "same record.*level 'participant'"),
        (copies(class_=70), COPIES, "participant", "image", "most_copies"),
        (copies((10, 5, 4), image=3), tasks(FIXED(2), FIXED(5), FIXED(2)),
         "episode", "image", "form='unit'"),
        (copies((10, 5, 4), image=3),
         tasks(FIXED(2), FIXED(5), FIXED(2), way=10, form="independent"),
         "episode", "image", "form='unit'"),
    ],
)
def test_what_no_proof_covers_is_refused(h, p, unit, level, match):
  with pytest.raises(plan.UnsoundPlanError, match=match):
    profiles(h, p, unit, level)


@pytest.mark.parametrize(
    "h,p,unit,level",
    [
        (POOL, tasks(FIXED(10), FIXED(2)), "episode", "image"),
        *((NESTED, COPIES, unit, "image") for unit in NESTED.levels),
        (copies(), COPIES, "participant", "participant"),
        (copies(class_=70), COPIES, "participant", "class"),
        (copies((10, 5, 4), image=3), tasks(FIXED(2), FIXED(5), FIXED(2)),
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
        (COPIES, "class", 0.0, "noise_multiplier is 0"),
    ],
)
def test_parts_that_contradict_one_another(p, unit, z, match):
  with pytest.raises(plan.PlanError, match=match):
    profiles(NESTED, p, unit, "image", z)


def test_tasks_across_families_are_not_cut_anew_without_the_largest():
  rest = [[2] * 3] * 5
  h = plan.Hierarchy.from_sizes([[2] * 4, *rest], levels=ALPHABETS)
  without = plan.Hierarchy.from_sizes(rest, levels=ALPHABETS)
  # More than any alphabet has.
  p = tasks(FIXED(2), FIXED(5), FIXED(2), allow_short_units=True)
  assert sampler_error.capacities(h, p) == sampler_error.capacities(without, p)
  assert profiles(h, p, "episode", "alphabet") == (TREE((), 1 / 3, (), 2.0),)
  p = tasks(FIXED(2), ALL, FIXED(2), way=2, allow_short_units=True)
  assert sampler_error.capacities(h, p) != sampler_error.capacities(without, p)
  said = "largest unit.*regrouped.*FixedSize.4"
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
  p = tasks(FIXED(5), FIXED(2), form="independent")
  for level, expected in (
      ("class", recurring(4, 1.0, 0.5, 1.0)),
      ("image", recurring(4, 0.5, 0.1, 1.0)),
  ):
    assert profiles(POOL, p, "episode", level, 2.0) == (expected,)


@pytest.mark.parametrize(
    "stage,image,klass",
    [
        (plan.Poisson(0.1), (30, 0.06, 0.5, 0.5), (70, 0.1, 0.6, 0.5)),
        (ALL, (30, 0.6, 0.5, 0.5), (70, 1.0, 0.6, 0.5)),
        (
            FIXED(40),
            (30, 0.6, 0.5, 0.5, (40, 1000)),
            (70, 1.0, 0.6, 0.5, (40, 1000)),
        ),
        (FIXED(1000), (30, 0.6, 0.5, 0.5), (70, 1.0, 0.6, 0.5)),
    ],
)
def test_copies_with_counts(stage, image, klass):
  h = copies(class_=70, image=30)
  p = tasks(stage, FIXED(3), FIXED(2), way=3, form="unit")
  (kind,) = profiles(h, p, "participant", "image", 4.0)
  expected = recurring(*image)
  assert sum(share for share, _ in kind.outer) == pytest.approx(1)
  # A participant that is not drawn, and one that draws other classes.
  away = 0.5 if stage == FIXED(40) else 0.25
  assert [d for _, d in kind.outer] == [away, 0.5]
  assert dataclasses.replace(
      kind, place_rate=round(kind.place_rate, 12), outer=expected.outer
  ) == expected
  assert profiles(h, p, "participant", "class", 4.0) == (
      recurring(*klass, outer=((1.0, away),)),
  )
  (kind,) = profiles(h, p, "participant", "participant", 4.0)
  assert isinstance(kind, TREE)
