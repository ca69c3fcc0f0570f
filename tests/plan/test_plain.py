"""Dataclasses as plain data: equal after a round trip, strict by field."""

from collections.abc import Mapping
import dataclasses
import json
import math
from typing import Any, Literal

import numpy as np
import pytest

from episodic_dp import errors
from episodic_dp import plain
from tests.refusals import assert_refused


@dataclasses.dataclass(frozen=True)
class Inner:
  count: plain.Count
  share: plain.Fraction | None = None


@dataclasses.dataclass(frozen=True)
class Outer:
  name: Literal["a", "b"]
  inner: Inner
  pairs: tuple[int | tuple[int, int], ...] = ()
  scale: float = math.inf
  flag: bool = False
  options: Mapping[str, Any] = dataclasses.field(default_factory=dict)


FULL = Outer("b", Inner(3, 0.5), (1, (2, 3)), 1 / 3, True, {"x": 1})


@pytest.mark.parametrize("value", [FULL, Outer("a", Inner(1))])
def test_a_round_trip_through_json_gives_an_equal_object(value):
  text = json.dumps(plain.to_plain(value), allow_nan=False)
  assert plain.from_plain(Outer, json.loads(text), name="x") == value
  infinite = json.loads(text) | {"scale": math.inf}
  assert plain.from_plain(Outer, infinite, name="x").scale == math.inf


def test_numpy_numbers_become_pythons():
  inner = Inner(np.int32(3), np.float32(0.5))
  assert json.dumps(plain.to_plain(inner)) == '{"count": 3, "share": 0.5}'
  with pytest.raises(TypeError):
    plain.to_plain(Inner(object()))


@pytest.mark.parametrize(
    "change,match",
    [
        ({"name": "c"}, "x.name='c': expected one of 'a', 'b'"),
        ({"name": ["a"]}, "x.name"),
        ({"other": 1}, "x.other=1: expected one of the fields"),
        ({3: 1}, r"x\[3\]=1: expected one of the fields"),
        ({"inner": 3}, "x.inner=3: expected an object with count, share"),
        ({"inner": {"share": None}}, "x.inner.count is missing"),
        ({"inner": {"count": 0, "share": None}}, "x.inner.count=0: .*least 1"),
        ({"inner": {"count": 1, "share": 1.0}}, "x.inner.share=1.0"),
        ({"inner": {"count": True, "share": None}}, "x.inner.count=True"),
        ({"pairs": [[1, 2, 3]]}, r"x.pairs\[0\].*a list of 2"),
        ({"pairs": "ab"}, "x.pairs='ab': expected a list"),
        ({"scale": "nan"}, "x.scale='nan'"),
        ({"scale": math.nan}, "x.scale=nan"),
        ({"scale": 10**400}, "x.scale"),
        ({"scale": 10**9000}, "x.scale"),
        ({"flag": 1}, "x.flag=1: expected true or false"),
        ({"options": [1]}, "x.options"),
    ],
)
def test_a_wrong_field_is_named(change, match):
  data = plain.to_plain(FULL) | change
  said = assert_refused(
      errors.PlanError, match, plain.from_plain, Outer, data, name="x"
  )
  assert len(said) < 400


def test_defaults_fill_a_partial_object():
  data = {"name": "a", "inner": {"count": 2}}
  expected = Outer("a", Inner(2))
  assert plain.from_plain(Outer, data, name="x", partial=True) == expected
  with pytest.raises(errors.PlanError, match="x.inner is missing"):
    plain.from_plain(Outer, {"name": "a"}, name="x", partial=True)


@pytest.mark.parametrize(
    "changes, changed",
    [
        ({"scale": 2}, dict(scale=2.0)),
        ({"inner.share": np.float32(0.25)}, dict(inner=Inner(3, 0.25))),
        ({"inner": {"count": 2}, "inner.share": None}, dict(inner=Inner(2))),
        ({"inner": Inner(1, 0.5)}, dict(inner=Inner(1, 0.5))),
        ({"options.y": 2}, dict(options={"x": 1, "y": 2})),
        ({"pairs": [4, [5, 6]]}, dict(pairs=(4, (5, 6)))),
    ],
)
def test_fields_are_replaced_by_their_paths(changes, changed):
  expected = dataclasses.replace(FULL, **changed)
  assert plain.with_changes(FULL, changes, name="x") == expected


@pytest.mark.parametrize(
    "changes, match",
    [
        ({"inner.count": 0}, "x.inner.count=0: .*at least 1"),
        ({"inner.cuont": 2}, "x.inner.cuont=2: expected one of the fields"),
        ({"iner.count": 2}, "x.iner=.*expected one of the fields"),
        ({"inner": Inner(0)}, "x.inner.count=0"),
        ({"flag.on": 1}, "x.flag={'on': 1}: expected true or false"),
        ({3: 4}, "x.3=4: expected one of the fields"),
        ([1], "changes of x=.1.: expected a mapping"),
    ],
)
def test_a_wrong_change_is_named(changes, match):
  with pytest.raises(errors.PlanError, match=match):
    plain.with_changes(FULL, changes, name="x")
