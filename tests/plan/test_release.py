"""Mechanisms, and releases that are checked when they are made."""

import dataclasses
import functools
import math
import re

import pytest

from episodic_dp import plan
from tests import plans
from tests.refusals import assert_refused

HIERARCHY = plans.tree("participant class image", 20, 8, 6)
PLAN = plans.sampling(0.1, 5, 2, way=5, shot=1, query=1)
TASKS = plan.Mechanism(clip_unit="participant", noise_multiplier=1.0)
INNER = dict(
    clip_unit="image", inner_clip_norm=1.0, inner_noise_multiplier=2.0,
    inner_steps=3, order="first",
)


def make(hierarchy=HIERARCHY, sampling=PLAN, mechanism=TASKS):
  return plan.Release(hierarchy, sampling, mechanism)


def mechanism(**options):
  return plan.Mechanism(
      **(dict(clip_unit="task", noise_multiplier=1.0) | options)
  )


def grouped(form, stages):
  """A plan whose tasks are cut out of drawn classes."""
  tasks = 2 if form == "independent" else None
  return plans.sampling(
      *stages, way=5, shot=1, query=1, form=form, tasks=tasks
  )


CLASSES = plans.tree("class image", 20, 6)
EPISODES = plan.Mechanism(clip_unit="episode", noise_multiplier=1.0)


def test_equal_parts_make_equal_releases():
  assert make() == make() and hash(make()) == hash(make())
  louder = dataclasses.replace(TASKS, noise_multiplier=2.0)
  assert make().replace(mechanism=louder) == make(mechanism=louder) != make()


def test_the_clip_level_is_that_of_one_task():
  assert make().clip_level == 0 and not make().sample_level
  drawn = grouped("disjoint", (10, 2))
  assert make(CLASSES, drawn, EPISODES).clip_level == 0
  examples = make(mechanism=plan.Mechanism(noise_multiplier=1.0, **INNER))
  assert examples.clip_level == 2 and examples.sample_level


QUANTILE = plans.QUANTILE | dict(count_noise=0.75)
WINDOW = dict(
    clipping="percentile_window", clip_percentile=90, clip_window=3200
)
RANDOM, ALLOCATED = (
    (first, 2)
    for first in (0.5, plan.RandomAllocation(4))
)
CUT = (10, 2)


@pytest.mark.parametrize(
    "make_release,match",
    [
        (functools.partial(make, CLASSES, grouped(form, stages), EPISODES),
         "regroups.*FixedSize.*'unit'")
        for form in ("disjoint", "independent")
        for stages in (RANDOM, ALLOCATED)
    ] + [
        (lambda: make(mechanism=mechanism(**INNER, **QUANTILE)),
         "noisy inner steps"),
        (lambda: make(mechanism=mechanism(**INNER, **WINDOW)),
         "noisy inner steps"),
        (lambda: make(mechanism=mechanism(clip_unit="class")),
         "no proof covers"),
        (lambda: make(
            CLASSES, grouped("disjoint", CUT), mechanism(clip_unit="class")
        ), "clip_unit='episode'"),
    ],
)
def test_what_no_proof_covers_is_refused(make_release, match):
  assert_refused(plan.UnsoundPlanError, match, make_release)


@pytest.mark.parametrize(
    "form, patients",
    [
        ("unit", 0.1), ("disjoint", 0.1),
        ("unit", 1),
    ],
)
def test_patients_below_whole_hospitals_are_proposed_as_first(form, patients):
  hierarchy = plans.tree("hospital patient class image", 3, 40, 6, 4)
  stages = (plan.All(), patients, 5, 2)
  unit = plan.Mechanism(clip_unit="patient", noise_multiplier=1.0)
  with pytest.raises(plan.UnsoundPlanError, match="begin .* with 'patient'"):
    make(hierarchy, grouped(form, stages), unit)
  hierarchy = plans.tree("patient class image", 120, 6, 4)
  stages = (0.1, *stages[2:])
  assert make(hierarchy, grouped("unit", stages), unit).levels[0] == "patient"


def test_a_level_may_lack_a_proof_that_the_release_has():
  shared = plans.tree(HIERARCHY.levels, 20, 8, 6, copies=True)
  release = make(shared)
  release.check_level("participant")
  with pytest.raises(plan.UnsoundPlanError, match="set most_copies"):
    release.check_level("image")
  assert_refused(plan.PlanError, "participant", release.check_level, "writer")


NOISY = dict(
    inner_clip_norm=0.5, inner_noise_multiplier=2.0, inner_steps=3,
    order="first",
)


def test_noise_of_the_gradients():
  assert mechanism().gradient_noise_multiplier == 1.0
  assert mechanism(**WINDOW).gradient_noise_multiplier == 1.0
  m = mechanism(**QUANTILE)
  assert m.gradient_noise_multiplier == pytest.approx(
      (1 - (2 * 0.75) ** -2) ** -0.5, rel=1e-12
  )
  assert mechanism(
      **(QUANTILE | dict(noise_multiplier=0.0))
  ).gradient_noise_multiplier == 0


def test_what_reaches_the_release_without_noise():
  assert mechanism().guaranteed and mechanism(**QUANTILE).guaranteed
  assert not mechanism(**WINDOW).guaranteed
  assert not mechanism(noise_multiplier=0.0).guaranteed


@pytest.mark.parametrize(
    "base, name, value",
    [
        ({}, "clipping", "adaptive"),
        (QUANTILE, "clip_rate", None),
        (WINDOW, "clip_window", None),
        (QUANTILE, "clip_quantile", 0.0),
        (QUANTILE, "clip_quantile", 1),
        (QUANTILE, "clip_quantile", "half"),
        (QUANTILE, "clip_rate", 0.0),
        (QUANTILE, "clip_rate", math.nan),
        (QUANTILE, "count_noise", 0.0),
        (QUANTILE, "count_noise", math.inf),
        (WINDOW, "clip_percentile", 0),
        (WINDOW, "clip_percentile", 101.0),
        (WINDOW, "clip_window", 0),
        (WINDOW, "clip_window", 7),
        (WINDOW, "clip_window", 8.0),
        ({}, "noise_multiplier", -1.0),
        ({}, "noise_multiplier", math.nan),
        ({}, "noise_multiplier", math.inf),
        ({}, "noise_multiplier", 1e-300),
        ({}, "noise_multiplier", 1e300),
        ({}, "noise_multiplier", "1"),
        ({}, "clip_norm", 0.0),
        ({}, "clip_norm", math.nan),
        ({}, "clip_by", "value"),
        ({}, "order", "third"),
        ({}, "inner_steps", 0),
        (NOISY, "inner_clip_norm", 0.0),
        (NOISY, "inner_clip_norm", math.inf),
        (NOISY, "inner_noise_multiplier", 0.0),
        (NOISY, "inner_noise_multiplier", 1e-300),
        (NOISY, "inner_noise_multiplier", "1"),
    ],
)
def test_a_value_out_of_range_is_named(base, name, value):
  said = re.escape(f"{name}={value!r}")
  assert_refused(plan.PlanError, said, mechanism, **(base | {name: value}))


@pytest.mark.parametrize(
    "options,match",
    [
        (dict(clip_rate=0.2), "clip_rate=0.2 with clipping='fixed'"),
        (dict(WINDOW, count_noise=1.0), "expected .* clipping='private_quant"),
        (dict(QUANTILE, clip_window=2), "expected .* clipping='percentile_win"),
        (dict(QUANTILE, count_noise=0.5), "0.5: .*more than 0.5"),
        (
            dict(QUANTILE, noise_multiplier=0.0, clip_norm=math.inf),
            "finite clip_norm",
        ),
        (dict(clip_norm=math.inf), "finite clip_norm"),
        (dict(inner_clip_norm=1.0), "inner_noise_multiplier=None.*four"),
        (dict(inner_noise_multiplier=1.0), "inner_clip_norm=None.*four"),
        (dict(NOISY, inner_steps=None), "inner_steps=None.*four"),
        (dict(NOISY, order=None), "order=None.*four"),
    ],
)
def test_values_that_do_not_go_together_are_named(options, match):
  assert_refused(plan.PlanError, match, mechanism, **options)


def test_the_clip_unit_is_one_task():
  with pytest.raises(plan.PlanError, match="use clip_unit='participant'"):
    make(mechanism=EPISODES)
