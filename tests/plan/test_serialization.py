"""Plans as text and plain data: what is read back is what was written."""

import dataclasses
import json
import math

import hypothesis
from hypothesis import strategies as st
import numpy as np
import pytest

from episodic_dp import plan
from tests import plans
from tests.damage import changed
from tests.refusals import assert_refused
from tests.stored import through_json

_RATES = st.floats(min_value=0, max_value=1, exclude_min=True)
_STAGES = st.one_of(
    st.integers(1, 4).map(plan.FixedSize),
    _RATES.map(plan.Poisson),
    st.just(plan.All()),
)
_NOISE = st.floats(0.25, 1000)
LEVELS = ("unit", "class", "record")


@st.composite
def hierarchies(draw):
  if draw(st.booleans()):
    copies = draw(st.booleans())
    counts = st.dictionaries(st.sampled_from(LEVELS[1:]), st.integers(1, 4))
    return plan.Hierarchy.regular(
        draw(st.tuples(*[st.integers(4, 10**3)] * 3)),
        levels=LEVELS,
        copies=copies,
        most_copies=draw(counts) if copies else None,
    )
  leaves = st.lists(st.integers(4, 6), min_size=4, max_size=6)
  tree = plans.nested(LEVELS, draw(st.lists(leaves, min_size=4, max_size=6)))
  return dataclasses.replace(tree, units_from_records=draw(st.booleans()))


@st.composite
def described(draw):
  inner = {}
  if draw(st.booleans()):
    inner = dict(
        order="first",
        inner_steps=draw(st.integers(1, 5)),
        inner_clip_norm=draw(_NOISE),
        inner_noise_multiplier=draw(_NOISE),
    )
  elif draw(st.booleans()):
    inner = draw(st.sampled_from((
        dict(
            clipping="private_quantile", clip_quantile=0.1, clip_rate=0.2,
            count_noise=501.5,
        ),
        dict(
            clipping="percentile_window", clip_percentile=99.9, clip_window=4
        ),
    )))
  return plan.Release(
      draw(hierarchies()),
      plan.SamplingPlan(
          draw(st.tuples(_STAGES, _STAGES, _STAGES)),
          allow_short_units=draw(st.booleans()),
      ),
      plan.Mechanism(
          clip_unit=draw(st.sampled_from(LEVELS)),
          noise_multiplier=draw(_NOISE),
          clip_norm=draw(st.floats(1e-300, 1e300)),
          **inner,
      ),
  )


@hypothesis.given(described())
@hypothesis.settings(max_examples=60, deadline=None)
def test_what_is_read_is_what_was_written(release):
  data = through_json(plan.to_dict(release))
  read = plan.from_dict(data)
  assert (read.plan, read.mechanism) == (release.plan, release.mechanism)
  h, h2 = release.hierarchy, read.hierarchy
  assert h2.same_tree(h)
  for name in (
      "levels", "sizes", "copies", "most_copies", "units_from_records"
  ):
    assert getattr(h2, name) == getattr(h, name)
  for k in range(3):
    np.testing.assert_array_equal(h2.child_counts(k), h.child_counts(k))
  assert plan.to_dict(read) == data


def example():
  return plans.release(
      plans.nested(LEVELS, [[4, 2, 3], [5] * 20]),
      plans.sampling(1 / 3, 2, plan.All()), "unit", 1.1,
  )


def test_episodes_and_infinity_are_read_back():
  h = plans.tree(LEVELS, 9, 5, 3)
  p = plans.sampling(2, 5, 3, way=5, shot=1, query=2)
  release = plans.release(h, p, "unit", 0, clip_norm=math.inf)
  data = plan.to_dict(release)
  assert data["mechanism"]["clip_norm"] == "inf"
  assert data["plan"]["episode"]["form"] == "unit"
  read = plan.from_dict(through_json(data))
  assert (read.plan, read.mechanism) == (p, release.mechanism)


def test_big_ragged_hierarchies_stay_small():
  sizes = [[20] * 1000] * 500 + [[20] * 999]
  h = plans.nested(LEVELS, sizes)
  data = plan.to_dict(example().replace(hierarchy=h))
  assert len(json.dumps(data)) < 1000
  np.testing.assert_array_equal(
      plan.from_dict(data).hierarchy.offsets[2], h.offsets[2]
  )


@pytest.mark.parametrize(
    "path,value,match",
    [
        (["plan"], KeyError, "release.plan is missing"),
        (["steps"], 5, "release.steps=5"),
        (["mechanism", "clip_norm"], KeyError, "clip_norm is missing"),
        (["mechanism", "sigma"], 1.0, "mechanism.sigma=1.0"),
        (["mechanism", "clip_norm"], "1", "clip_norm='1': .*number"),
        (["mechanism", "clip_norm"], True, "clip_norm=True"),
        (["mechanism", "clip_norm"], -1.0, "clip_norm"),
        (["mechanism", "noise_multiplier"], 10**400, "noise_multiplier"),
        (["mechanism", "inner_steps"], 1.5, "inner_steps=1.5: .*whole"),
        (["mechanism", "order"], "third", "order='third': .*'first'"),
        (["mechanism", "clip_unit"], None, "clip_unit=None: .*text"),
        (["plan", "stages"], "All()", "plan.stages='All.*a list"),
        (["plan", "stages", 0], "Poisson(2)", "p=2 of"),
        (["plan", "stages", 1], 7, "stage 7 "),
        (["plan", "allow_short_units"], 0, "true or false"),
        (["plan", "episode"], [], "episode=.*object with way"),
        (["hierarchy"], [1], "hierarchy=.*object"),
        (["hierarchy", "levels"], ["a", "a", "b"], "distinct"),
        (["hierarchy", "levels"], ["a", "b"], "level"),
        (["hierarchy", "sizes"], [1, 2, 3], "sizes"),
        (["hierarchy", "child_counts"], None, "sizes"),
        (["hierarchy", "child_counts"], KeyError, "child_counts is missing"),
        (["hierarchy", "child_counts", 0], [[2, 10**12]], "counts"),
        (["hierarchy", "child_counts", 0], [2**40], "2\\^31"),
        (["hierarchy", "child_counts", 0], [[10**9000] * 2], "2\\^31"),
        (["hierarchy", "child_counts", 0], [[2**70, 0], [2, 1]], "2\\^31"),
        (["hierarchy", "child_counts", 1], [3], "as in the level above"),
        (["hierarchy", "child_counts", 2, 0], -1, "child_counts"),
        (["hierarchy", "child_counts", 2, 0], True, "whole number"),
        (["hierarchy", "child_counts", 2, 0], [2, 1.5], "whole number"),
        (["hierarchy", "child_counts", 2, 3], [5, 20, 1], "a list of 2"),
        (["hierarchy", "child_counts", 1], [[1, 2**24 + 1]], "most 16777216"),
        (["hierarchy", "child_counts", 2], 5, "a list"),
        (["hierarchy", "child_counts"], {}, "a list"),
    ],
)
def test_damage_is_one_sentence_that_names_the_field(path, value, match):
  data = plan.to_dict(example())
  plan.from_dict(data)
  said = assert_refused(
      plan.PlanError, match, plan.from_dict, changed(data, path, value)
  )
  assert len(said) < 400


@pytest.mark.parametrize(
    "text,stage",
    [
        ("FixedSize(5)", plan.FixedSize(5)),
        (" FixedSize( n = 5 ) ", plan.FixedSize(5)),
        ("Poisson(0.004)", plan.Poisson(0.004)),
        ("Poisson(p=1)", plan.Poisson(1.0)),
        ("Poisson(8/30)", plan.Poisson(8 / 30)),
        ("Poisson(1e-3)", plan.Poisson(0.001)),
        ("All()", plan.All()),
        ("RandomAllocation(250)", plan.RandomAllocation(250)),
        ("RandomAllocation(steps=1)", plan.RandomAllocation(1)),
    ],
)
def test_stages(text, stage):
  assert plan.parse_stage(text) == stage


@pytest.mark.parametrize(
    "text",
    [
        "", "All", "All(1)", "FixedSize", "FixedSize()", "FixedSize(2.5)",
        "FixedSize(1, 2)", "FixedSize(p=1)", "FixedSize(True)", "Poisson('1')",
        "Poisson(1/0)", "Poisson(p)", "Poisson(*[1])", "Poisson(**{'p': 1})",
        "plan.All()", "__import__('os').getcwd()", "Poisson(abs(1))",
        "All(); All()", "(" * 90, "Stage(1)", 5, None, "Poisson(2**0.5)",
        "RandomAllocation(1/4)", "RandomAllocation(n=4)", "RandomAllocation()",
        "x" * 1000, "FixedSize(-3)", "Poisson(1.5)",
        "Poisson(1e400)", "Poisson(0.1 if 1 else 2)",
    ],
)
def test_stages_that_are_not_understood(text):
  with pytest.raises(plan.PlanError):
    plan.parse_stage(text)
