"""Any plan, any noise, any number of steps: a bound or a sentence, quickly.

Plans of every kind, drawn at random, are asked for a guarantee at extremes. The
answer is a number of at least 0, infinity, or one sentence that says what is
not covered; never a traceback, and never after a long time.
"""

import math
import time
import warnings

import hypothesis
from hypothesis import strategies as st
import pytest

from episodic_dp import accounting
from episodic_dp import plan
from tests import plans

LEVELS = ("a", "b", "c")
# Of a core that others may be using.
SECONDS = 5.0


def powers(low, high):
  """10^x, evenly in x."""
  return st.floats(low, high).map(lambda x: 10.0**x)


FIXED = st.sampled_from([1, 2, 3, 20, 100]).map(plan.FixedSize)
POISSON = st.one_of(
    powers(-12, 0), st.sampled_from([0.1, 0.5, 0.999999, 1.0])
).map(plan.Poisson)
INNER = st.one_of(FIXED, POISSON, st.just(plan.All()))
FIRST = st.one_of(
    INNER, st.sampled_from([1, 2, 100, 10**5]).map(plan.RandomAllocation)
)


@st.composite
def hierarchies(draw):
  depth = draw(st.integers(1, 3))
  levels = LEVELS[:depth]
  inner = st.sampled_from([1, 2, 5, 50])
  first = draw(st.sampled_from([1, 2, 10, 1000, 10**6]))
  sizes = (first, *(draw(inner) for _ in levels[1:]))
  kind = draw(st.sampled_from(["regular", "ragged", "copies"]))
  if kind == "copies" and depth > 1:
    most = {
        level: draw(st.sampled_from([1, 2, 30, 1000])) for level in levels[1:]
    }
    return plan.Hierarchy.regular(
        sizes, levels=levels, copies=True, most_copies=most
    )
  if kind == "ragged" and depth > 1:
    family = st.integers(1, 6)
    for _ in range(depth - 2):
      family = st.lists(family, min_size=1, max_size=4)
    drawn = draw(st.lists(family, min_size=1, max_size=5))
    # Second units that are in several primary ones.
    crossing = (
        dict(
            copies=True,
            most_copies={"b": draw(st.integers(1, len(drawn))), "c": 1},
        )
        if depth == 3 and draw(st.booleans())
        else {}
    )
    return plans.nested(levels, drawn, **crossing)
  return plan.Hierarchy.regular(sizes, levels=levels)


@st.composite
def releases(draw):
  """Trees, tasks of every form, sample-level training, all as they come."""
  hierarchy = draw(hierarchies())
  depth = hierarchy.depth
  z = draw(powers(-6, 8))
  form = draw(st.sampled_from(["none", "none", "unit", "disjoint",
                               "independent"]))
  if form == "none" or depth == 1:
    stages = (draw(FIRST), *(draw(INNER) for _ in range(depth - 1)))
    return plans.release(
        hierarchy, plan.SamplingPlan(stages, allow_short_units=True),
        draw(st.sampled_from(hierarchy.levels)), z,
    )
  way = 1 if depth == 2 and form == "unit" else draw(st.sampled_from([1, 2]))
  counts = [way] * (depth - 1) + [2]
  if form == "disjoint":
    counts[0] *= draw(st.sampled_from([1, 4]))
  if form == "independent" and depth == 3:
    counts[0] = 1
  classes = None
  if form != "unit" and depth == 3 and draw(st.booleans()):
    classes, counts = "a", [way, 2, 1]
  stages = [plan.FixedSize(n) for n in counts]
  if form == "unit":
    stages[0] = draw(FIRST)
  fields = dict(
      clip_unit=hierarchy.levels[0] if form == "unit" else plan.EPISODE
  )
  if draw(st.booleans()):
    fields = dict(
        clip_unit=hierarchy.levels[-1],
        inner_clip_norm=1.0,
        inner_noise_multiplier=draw(powers(-3, 5)),
        inner_steps=draw(st.sampled_from([1, 5])),
        order="first",
    )
  tasks = draw(st.sampled_from([1, 2, 7, 300]))
  return plan.Release(
      hierarchy,
      plan.SamplingPlan(
          tuple(stages),
          episode=plan.Episode(
              way=way, shot=1, query=1, form=form,
              tasks=tasks if form == "independent" else None,
              classes=classes,
          ),
          allow_short_units=True,
      ),
      plan.Mechanism(noise_multiplier=z, **fields),
  )


@st.composite
def questions(draw):
  """(release, options of `guarantee`), or a sentence where there is none."""
  try:
    release = draw(releases())
  except (plan.PlanError, plan.UnsoundPlanError) as e:
    return str(e)
  asked = (
      dict(delta=min(0.95, draw(powers(-300, -0.02))))
      if draw(st.integers(0, 2))
      else dict(epsilon=draw(st.one_of(st.just(0.0), powers(-9, 6))))
  )
  return release, dict(
      level=draw(st.sampled_from(release.levels)),
      steps=int(draw(powers(0, 9))),
      accountant=draw(st.sampled_from(["pld", "rdp", "moments"])),
      neighbours=draw(st.sampled_from(["add-or-remove", "replace-one"])),
      **asked,
  )


def check_answer(question):
  if isinstance(question, str):
    assert "\n" not in question
    return
  release, options = question
  began = time.process_time()
  try:
    with warnings.catch_warnings():
      warnings.simplefilter("error")
      found = accounting.guarantee(release, **options)
  except (plan.PlanError, plan.UnsoundPlanError) as e:
    assert "\n" not in str(e)
  else:
    assert 0 <= found.epsilon and 0 <= found.delta <= 1
    assert not math.isnan(found.epsilon)
  assert time.process_time() - began < SECONDS


SETTINGS = dict(
    deadline=None,
    suppress_health_check=list(hypothesis.HealthCheck),
    database=None,
)


@hypothesis.settings(max_examples=30, derandomize=True, **SETTINGS)
@hypothesis.given(questions())
def test_a_bound_or_a_sentence(question):
  check_answer(question)


# Each of them ended in a traceback, was infinite, or took minutes.
FOUND = [
    # (sizes, stages, clip, z, options)
    ((1000,), (0.01,), "a", 1e8,
     dict(steps=1000, epsilon=0.0, accountant="rdp")),
    ((5, 3, 4), (plan.RandomAllocation(1), plan.All(), 1e-12),
     "c", 1e-6, dict(steps=10, delta=0.9, accountant="rdp")),
    ((10,), (plan.RandomAllocation(1000),), "a", 8.6e6,
     dict(steps=8904971, epsilon=0.0066, accountant="moments")),
    ((10,), (3,), "a", 0.0056,
     dict(steps=1857119, delta=1.5e-186)),
    ((1000,), (8.4e-12,), "a", 1.71,
     dict(steps=24831086, epsilon=0.3676)),
    ((10**6,), (20,), "a", 804214.6,
     dict(steps=11959629, delta=1.8e-10, neighbours="replace-one")),
    ((10**6, 5, 5), (plan.All(), plan.All(), plan.All()), "b", 16278.0,
     dict(steps=51587222, epsilon=8.7e-8)),
    ((1000, 5, 5), (plan.All(), 1.0, plan.All()), "c", 4e-5,
     dict(steps=61374, delta=3.3e-202, accountant="rdp")),
    ((1000,), (3,), "a", 0.006037,
     dict(steps=1283732, delta=1e-300)),
    ((1, 1, 1), (plan.All(), 1e-8, 1e-12), "c",
     1.0, dict(steps=1, epsilon=0.0, accountant="rdp")),
]


@pytest.mark.parametrize("sizes,stages,clip,z,options", FOUND)
@pytest.mark.few(3)
def test_what_was_found_is_a_bound_now(sizes, stages, clip, z, options):
  levels = LEVELS[: len(sizes)]
  release = plans.release(
      plans.tree(levels, *sizes), plans.sampling(*stages),
      clip, z,
  )
  for level in levels:
    check_answer((release, dict(level=level, **options)))
    found = accounting.guarantee(release, level=level, **options)
    assert math.isfinite(found.epsilon)
