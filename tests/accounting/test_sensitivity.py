"""Rates and distances of plans, and the combinations that are refused."""

import dataclasses
import re

import pytest

from episodic_dp import accounting
from episodic_dp import plan
from episodic_dp.plan import sampler_error


def mechanism(clip_unit, z=1.0):
  return plan.Mechanism(clip_unit=clip_unit, noise_multiplier=z)


def disjoint(stages, way, shot=1, query=1, **options):
  return plan.SamplingPlan(
      stages,
      episode=plan.Episode(way=way, shot=shot, query=query, form="disjoint"),
      **options,
  )


def test_disjoint_tasks_below_a_primary_unit():
  levels = ("alphabet", "class", "image")
  h = plan.Hierarchy.regular((10, 20, 20), levels=levels)
  p = disjoint((plan.FixedSize(2), plan.FixedSize(10), plan.FixedSize(2)), 5)
  (kind,) = accounting.unit_profiles(
    plan.Release(h, p, mechanism(plan.EPISODE)), "alphabet"
  )
  assert kind == accounting.Amplification((), 0.2, (), 4.0)
  (kind,) = accounting.unit_profiles(
    plan.Release(h, p, mechanism(plan.EPISODE)), "class"
  )
  assert kind == accounting.Amplification((0.2,), 0.5, (4.0,), 2.0)
  everything = disjoint((plan.All(), plan.FixedSize(10), plan.FixedSize(2)), 5)
  (kind,) = accounting.unit_profiles(
    plan.Release(h, everything, mechanism("episode")), "alphabet"
  )
  assert kind == accounting.Amplification((), 1.0, (), 2.0)


def unsound(h, p, m, level, match):
  """Expect the combination to be refused by a matching sentence."""
  with pytest.raises(plan.UnsoundPlanError) as e:
    accounting.unit_profiles(plan.Release(h, p, m), level)
  return re.search(match, str(e.value)) is not None


def test_drawing_every_class_regroups_tasks():
  h = plan.Hierarchy.regular((10, 20), levels=("class", "image"))
  for stage in (plan.All(), plan.FixedSize(10)):
    p = disjoint((stage, plan.FixedSize(2)), way=5)
    assert unsound(h, p, mechanism("episode"), "class", "regrouped.*FixedSize")
    assert accounting.unit_profiles(
      plan.Release(h, p, mechanism("episode")), "image"
    )


def test_the_remedy_of_regrouping_draws_whole_tasks():
  levels, m = ("class", "image"), mechanism("episode")
  for classes, way, remedy in (
      (20, 5, "draw FixedSize.15. or fewer"),
      (4, 4, "draw fewer than 4, in tasks of a smaller way"),
  ):
    h = plan.Hierarchy.regular((classes, 3), levels=levels)
    p = disjoint((plan.FixedSize(classes), plan.FixedSize(2)), way=way)
    assert unsound(h, p, m, "class", remedy)


def test_tasks_across_families_are_not_cut_anew_without_the_largest():
  levels, rest = ("alphabet", "class", "image"), [[2] * 3] * 5
  h = plan.Hierarchy.from_sizes([[2] * 4, *rest], levels=levels)
  without = plan.Hierarchy.from_sizes(rest, levels=levels)
  m = mechanism("episode")

  def short(stage, way):
    stages = (plan.FixedSize(2), stage, plan.FixedSize(2))
    return disjoint(stages, way, allow_short_units=True)

  p = short(plan.FixedSize(5), 5)  # More than any alphabet has.
  assert sampler_error.capacities(h, p) == sampler_error.capacities(without, p)
  (kind,) = accounting.unit_profiles(plan.Release(h, p, m), "alphabet")
  assert kind == accounting.Amplification((), 1 / 3, (), 2.0)
  p = short(plan.All(), 2)
  assert sampler_error.capacities(h, p) != sampler_error.capacities(without, p)
  said = "largest unit.*regrouped.*FixedSize.4"
  assert unsound(h, p, m, "alphabet", said)


def independent(stages, way, tasks=4, shot=1, query=1, **options):
  return plan.SamplingPlan(
      stages,
      episode=plan.Episode(
          way=way, shot=shot, query=query, form="independent", tasks=tasks
      ),
      **options,
  )


def recurrence(places, place_rate, rate, distance, drawn_of=None, outer=None):
  """Tasks, if the way that a path breaks is not given."""
  return accounting.Recurrence(
      places=places,
      place_rate=place_rate,
      rate=rate,
      distance=distance,
      drawn_of=drawn_of,
      outer=((1.0, distance),) if outer is None else outer,
  )


def test_independent_tasks_draw_a_record_several_times():
  h = plan.Hierarchy.regular((10, 20), levels=("class", "image"))
  p = independent((plan.FixedSize(5), plan.FixedSize(2)), way=5)
  m = mechanism("episode", 2.0)
  assert accounting.unit_profiles(plan.Release(h, p, m), "class") == (
    recurrence(4, 1.0, 0.5, 1.0),
  )
  assert accounting.unit_profiles(plan.Release(h, p, m), "image") == (
    recurrence(4, 0.5, 0.1, 1.0),
  )


def test_clip_units_inside_a_task_are_refused():
  h = plan.Hierarchy.regular((10, 5, 20), levels=("task", "class", "image"))
  p = plan.SamplingPlan(
      (plan.Poisson(0.1), plan.FixedSize(5), plan.FixedSize(2)),
      episode=plan.Episode(way=5, shot=1, query=1),
  )
  assert unsound(h, p, mechanism("class"), "image", "several examples.*'task'")
  assert unsound(
      h, p, mechanism("image"), "image",
      "sample-level training.*inner_noise_multiplier.*clip_unit='task'",
  )
  with pytest.raises(plan.PlanError, match="clip_unit='task'"):
    accounting.unit_profiles(plan.Release(h, p, mechanism("episode")), "image")
  with pytest.raises(plan.PlanError, match="unknown level 'person'"):
    accounting.unit_profiles(plan.Release(h, p, mechanism("person")), "image")
  alone = plan.SamplingPlan(p.stages)
  for unit in h.levels:
    assert accounting.unit_profiles(
      plan.Release(h, alone, mechanism(unit)), "image"
    )
  with pytest.raises(plan.PlanError, match="no episode"):
    accounting.unit_profiles(
      plan.Release(h, alone, mechanism("episode")), "image"
    )


@pytest.mark.parametrize("make", [disjoint, independent])
def test_class_clipping_of_tasks_of_classes_is_refused(make):
  h = plan.Hierarchy.regular((10, 20), levels=("class", "image"))
  p = make((plan.FixedSize(5), plan.FixedSize(2)), way=5)
  assert unsound(h, p, mechanism("class"), "class", "clip_unit='episode'")
  assert unsound(h, p, mechanism("image"), "class", "sample-level")


PARTICIPANTS = ("participant", "class", "image")


def copies(sizes=(1000, 5, 4), **counts):
  counts = {level.rstrip("_"): count for level, count in counts.items()}
  return plan.Hierarchy.regular(
      sizes, levels=PARTICIPANTS, copies=True, most_copies=counts or None
  )


def test_copies_without_a_count_leave_only_the_primary_level():
  p = plan.SamplingPlan(
      (plan.Poisson(0.1), plan.FixedSize(5), plan.FixedSize(2))
  )
  m = mechanism("participant")
  assert accounting.unit_profiles(plan.Release(copies(), p, m), "participant")
  for level in ("class", "image"):
    assert unsound(copies(), p, m, level, "same record.*level 'participant'")
  assert accounting.unit_profiles(
    plan.Release(copies(class_=70), p, m), "class"
  )
  assert unsound(copies(class_=70), p, m, "image", "most_copies")


@pytest.mark.parametrize(
    "stage,image,klass",
    [
        (plan.Poisson(0.1), (30, 0.06, 0.5, 0.5), (70, 0.1, 0.6, 0.5)),
        (plan.All(), (30, 0.6, 0.5, 0.5), (70, 1.0, 0.6, 0.5)),
        (
            plan.FixedSize(40),
            (30, 0.6, 0.5, 0.5, (40, 1000)),
            (70, 1.0, 0.6, 0.5, (40, 1000)),
        ),
        (
            plan.FixedSize(1000),
            (30, 0.6, 0.5, 0.5),
            (70, 1.0, 0.6, 0.5),
        ),
    ],
)
def test_copies_with_counts(stage, image, klass):
  h = copies(class_=70, image=30)
  p = plan.SamplingPlan(
      (stage, plan.FixedSize(3), plan.FixedSize(2)),
      episode=plan.Episode(way=3, shot=1, query=1),
  )
  m = mechanism("participant", 4.0)
  (kind,) = accounting.unit_profiles(plan.Release(h, p, m), "image")
  expected = recurrence(*image)
  assert sum(share for share, _ in kind.outer) == pytest.approx(1)
  # A participant that is not drawn, and one that draws other classes.
  away = 0.5 if stage == plan.FixedSize(40) else 0.25
  assert [d for _, d in kind.outer] == [away, 0.5]
  assert dataclasses.replace(
      kind, place_rate=round(kind.place_rate, 12), outer=expected.outer
  ) == expected
  assert accounting.unit_profiles(plan.Release(h, p, m), "class") == (
    recurrence(*klass, outer=((1.0, away),)),
  )
  (kind,) = accounting.unit_profiles(plan.Release(h, p, m), "participant")
  assert isinstance(kind, accounting.Amplification)


def test_copies_in_tasks_of_classes_are_refused():
  h = copies((10, 5, 4), image=3)
  for make in (disjoint, independent):
    p = make(
        (plan.FixedSize(2), plan.FixedSize(5), plan.FixedSize(2)),
        way=5 if make is disjoint else 10,
    )
    assert unsound(h, p, mechanism("episode"), "image", "form='unit'")
    assert accounting.unit_profiles(
      plan.Release(h, p, mechanism("episode")), "participant"
    )


def test_no_noise_has_no_distances():
  h = plan.Hierarchy.regular((10, 20), levels=("class", "image"))
  p = plan.SamplingPlan((plan.FixedSize(5), plan.FixedSize(2)))
  with pytest.raises(plan.PlanError, match="noise_multiplier is 0"):
    accounting.unit_profiles(
      plan.Release(h, p, mechanism("class", 0.0)), "image"
    )
