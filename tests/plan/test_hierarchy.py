"""Hierarchies: three constructors, declared units, one tree."""

import time

import numpy as np
import pytest

from episodic_dp import plan
from episodic_dp.errors import DataError
from episodic_dp.plan import hierarchy
from tests.refusals import assert_refused

LEVELS = ("alphabet", "character", "drawing")
EXAMPLE = [[4, 2, 3], [4, 5]]


def regular(sizes, levels="ab"):
  return plan.Hierarchy.regular(sizes, levels=levels)


def nested(sizes, levels="ab"):
  return plan.Hierarchy.from_sizes(sizes, levels=levels)


def test_example_of_the_paper():
  h = nested(EXAMPLE, LEVELS)
  assert [h.num_units(k) for k in range(3)] == [2, 5, 18] and h.depth == 3
  assert h.num_leaves == 18
  assert h.child_counts(0).tolist() == [2]
  assert h.child_counts(1).tolist() == [3, 2]
  assert h.child_counts(2).tolist() == [4, 2, 3, 4, 5]
  assert h.parents(1).tolist() == [0, 0, 0, 1, 1]
  drawings = [0] * 4 + [1] * 2 + [2] * 3 + [3] * 4 + [4] * 5
  assert h.parents(2).tolist() == drawings
  assert h.size_paths(2).tolist() == [
      [2, 2, 4], [2, 2, 5], [2, 3, 2], [2, 3, 3], [2, 3, 4]
  ]


def test_labels_that_are_not_in_order_keep_rows_in_order_inside_units():
  h = plan.Hierarchy.from_labels({"class": ["b", "a", "b", "a"]})
  assert h.levels == ("class", "example")
  assert h.leaf_rows.tolist() == [1, 3, 0, 2]
  assert h.leaf_rows.dtype == np.int32
  assert h.describe(0, 1) == "class 1 ('b')"


def test_regular_equals_its_nested_sizes():
  one, same = regular((3, 2, 5), LEVELS), nested([[5, 5]] * 3, LEVELS)
  assert one.same_tree(same) and same.same_tree(one)
  other = nested([[5, 5]] * 2 + [[5, 4]], LEVELS)
  assert not (one.same_tree(other) or other.same_tree(same))
  assert one.offsets is None and one.leaf_rows is None
  assert one.describe(1, 4) == "character 4"


@pytest.mark.parametrize("most", [1, 50, 2**50])
def test_distinct_numbers_are_those_of_numpy(most):
  numbers = np.random.default_rng(most).integers(0, most, 1000)
  for found, expected in zip(
      hierarchy.distinct(numbers), np.unique(numbers, return_inverse=True)
  ):
    np.testing.assert_array_equal(found, expected)


def test_one_level_and_empty_units():
  assert nested(7, ("example",)).num_leaves == 7
  h = nested([[0, 2], []], LEVELS)
  assert h.num_leaves == 2 and h.child_counts(1).tolist() == [2, 0]
  assert h.size_paths(2).tolist() == [[2, 2, 2]]  # of the leaves that exist


def copies(most_copies=None, **options):
  return plan.Hierarchy.regular(**(dict(
      sizes=(7, 2, 2), levels="abc", copies=True, most_copies=most_copies,
  ) | options))


def test_counts_of_copies():
  assert copies().most_copies is None
  assert copies({"c": 3, "b": 7}).most_copies == (1, 7, 3)
  assert copies({"c": 1}).most_copies == (1, 0, 1)


def test_sizes_cannot_be_changed():
  """Guarantees are cached by hierarchy."""
  given = np.asarray([0, 2]), np.asarray([0, 3, 5])
  h = plan.Hierarchy(levels=("a", "b"), offsets=given)
  with pytest.raises(ValueError, match="read-only"):
    h.offsets[1][1] = 2
  given[1][1] = 2
  assert h.child_counts(1).tolist() == [3, 2]


@pytest.mark.parametrize(
    "make,match",
    [
        (lambda: copies({"a": 1}), "most_copies='a'"),
        (lambda: copies({"d": 1}), "most_copies='d'"),
        (lambda: copies({"c": 0}), "of 'c'=0"),
        (lambda: copies({"c": 2.0}), "of 'c'=2.0"),
        (lambda: copies({"c": True}), "of 'c'=True"),
        (lambda: copies({"c": 8}), "most_copies=8: expected at most 7"),
        (lambda: copies({"c": 2}, copies=False), "copies=True"),
        (lambda: plan.Hierarchy(
            levels=("a", "b"), sizes=(4, 2), copies=True, most_copies=(1,)
        ), "one number for each"),
        (lambda: plan.Hierarchy(
            levels=("a", "b"), sizes=(4, 2), copies=True, most_copies=(2, 2)
        ), "the first of them 1"),
        (lambda: regular((2**16, 2**15)),
         "2147483648 leaves, more than 2\\^31 - 1"),
        (lambda: nested([2**62, 2**62]),
         "more than 2\\^31 - 1"),
        (lambda: nested([2**31 - 1, 1]),
         "2147483648 leaves, more than 2\\^31 - 1"),
        (lambda: regular((3, 0)), "'b'=0"),
        (lambda: regular((3, 2.5)), "'b'=2.5"),
        (lambda: regular((3,)), "2 level names"),
        (lambda: regular((3, 3), levels="aa"), "distinct"),
        (lambda: regular((3,), levels=("episode",)),
         "'episode' is not allowed"),
        (lambda: regular((3,), levels=("a\nb",)),
         r"'a\\nb' is not allowed.*printable"),
        (lambda: regular((3,), levels=("a" * 81,)),
         "1 to 80 printable"),
        (lambda: regular((3,), levels=()), "one name or more"),
        (lambda: nested([3, [2]]), ".2."),
        (lambda: nested([3, 2], levels="abc"), "nest lists"),
        (lambda: nested([3, -1]), "-1"),
        (lambda: nested([3, "x"]), "'x'"),
        (lambda: nested([None], levels="abc"), "nest lists"),
        (lambda: nested([0, 0]), "no leaf"),
        (lambda: nested([]), "no leaf"),
        (lambda: plan.Hierarchy.from_labels({}), "at least one label"),
        (lambda: plan.Hierarchy.from_labels({"a": []}), "no leaf"),
        (lambda: plan.Hierarchy.from_labels({"a": [1, 2], "b": [1]}),
         "'b' have shape \\(1,\\)"),
        (lambda: plan.Hierarchy.from_labels({"a": [[1, 2]]}), "vector"),
        (lambda: plan.Hierarchy.from_labels({"a": [1.0, np.nan]}),
         "row 1 of 'a' is nan"),
        (lambda: plan.Hierarchy(levels=("a",)), "either sizes"),
    ],
)
def test_errors_are_sentences(make, match):
  assert_refused((plan.PlanError, DataError), match, make)


WRITTEN = {"writer": ["x", "y", "x"], "letter": [2, 1, 2]}
UNITS = [("x", 2), ("x", 3), ("y", 1), ("z",), ("w", 9)]


def written(labels=WRITTEN, units=UNITS):
  return plan.Hierarchy.from_labels(labels, units=units, leaf="drawing")


def test_declared_units_stay_without_a_record():
  h = written()
  assert str(h) == "writer (4) > letter (4) > drawing (3)"
  assert h.child_counts(1).tolist() == [1, 2, 1, 0]
  assert h.child_counts(2).tolist() == [0, 2, 0, 1]
  assert h.names[0].tolist() == ["w", "x", "y", "z"]
  assert h.names[1].tolist() == [9, 2, 3, 1]
  assert h.leaf_rows.tolist() == [0, 2, 1]
  assert not h.units_from_records
  assert written(units=None).units_from_records


@pytest.mark.parametrize("seed", range(20))
def test_random_trees_against_a_plain_loop(seed):
  rng = np.random.default_rng(seed)
  rows, depth = int(rng.integers(1, 12)), int(rng.integers(1, 4))
  table = rng.integers(0, 3, (rows, depth))
  paths = {tuple(row[: k + 1]) for row in table.tolist() for k in range(depth)}
  for _ in range(5):  # Of any depth, with all that is above them.
    path = rng.integers(0, 4, int(rng.integers(1, depth + 1))).tolist()
    paths |= {tuple(path[: k + 1]) for k in range(len(path))}
  labels = {f"level{k}": table[:, k] for k in range(depth)}
  h = written(labels, sorted(paths, key=lambda _: rng.random()))
  order = np.arange(rows) if h.leaf_rows is None else h.leaf_rows
  units = [()]
  for k in range(depth):
    below = sorted(p for p in paths if len(p) == k + 1)
    assert h.child_counts(k).tolist() == [
        sum(p[:k] == unit for p in below) for unit in units
    ]
    assert h.names[k].tolist() == [p[-1] for p in below]
    units = below
  leaves = [
      [row for row in range(rows) if tuple(table[row]) == unit]
      for unit in units
  ]
  assert h.child_counts(depth).tolist() == [len(unit) for unit in leaves]
  assert order.tolist() == [row for unit in leaves for row in unit]


def filling(table, rows, least, level=0):
  """The rows below a unit of those that fill a task, by a plain loop."""
  if level == table.shape[1]:
    return rows if len(rows) >= least[level] else []
  units = [
      filling(table, rows[table[rows, level] == label], least, level + 1)
      for label in np.unique(table[rows, level])
  ]
  units = [unit for unit in units if len(unit)]
  return np.concatenate(units) if len(units) >= least[level] else []


@pytest.mark.parametrize("seed", range(20))
def test_units_that_fill_a_task_against_a_plain_loop(seed):
  rng = np.random.default_rng(seed)
  rows, depth = 60, int(rng.integers(1, 4))
  table = rng.integers(0, 3, (rows, depth))
  labels = {f"level{k}": table[:, k] for k in range(depth)}
  units = [*map(tuple, table.tolist()), (9,)]  # The last holds nothing.
  h = written(labels, units)
  for _ in range(9):
    least = rng.integers(1, 4, depth + 1)
    kept = np.sort(filling(table, np.arange(rows), least)).astype(int)
    found = h.fitting(least)
    if not len(kept):
      assert found is h
      continue
    held = {name: values[kept] for name, values in labels.items()}
    assert found.same_tree(written(held, None))
    leaves = found.leaf_rows
    assert sorted(leaves) == kept.tolist()
    assert (np.diff(table[leaves].dot(10 ** np.arange(depth)[::-1])) >= 0).all()


@pytest.mark.parametrize(
    "units,match",
    [
        ([("x", 2)], "row 1 .* writer 'y', which is not among the declared"),
        ([("x", 3), ("y", 1)], "row 0 .* writer 'x', letter 2, which is"),
        ([], "not among the declared"),
        ([("x", "2"), ("y", "1")], "'letter' '2'.* the labels have 2: use"),
        ([(1, 2)], "'writer' 1.* the labels have 'x': use text"),
        ([("x", 2, 3)], r"units hold \('x', 2, 3\): give each unit"),
        ([()], "of up to 2 levels"),
        ([("x", 2), None], "'writer' of unit 1 is None, which is no label"),
        ("x", "not among the declared"),
    ],
)
def test_units_that_cannot_be_declared(units, match):
  assert_refused(DataError, match, written, units=units)


# Who is who -------------------------------------------------------------------

BIG = (2**60, 2**60 + 1, 2**63 + 5, 2**70, 2**70 + 1, -(2**63))
TYPES = [
    list(BIG),
    np.asarray(BIG, object),
    np.asarray([2**63 + 1, 2**63 + 2, 2**63 + 2, 5], np.uint64),
    [np.uint64(2**63), np.int64(2**60), 2**60 + 1],
    np.asarray([3, 200, 3], np.uint8),
    np.asarray([2.0, -1.0, 2.5], np.float64),
    [1, 2.5, 2],
    [np.float32(0.1), np.float32(2), np.float16(0.1), 0.1],
    [True, False, True],
    ["a", "b\0", "b", "a"],
    np.asarray(["a", "b", "a"]),
    np.asarray(["a", "b", "a"], np.dtypes.StringDType()),
    np.asarray([b"a", "é".encode(), b"a"]),
    np.asarray([["a"], ["b"]]),
    range(3),
    ("a", "b"),
]


class Column:
  """A column of a table, as pandas has it: no array, but one can be made."""

  def __init__(self, values, dtype=None):
    self.values, self.dtype = values, dtype

  def __len__(self):
    return len(self.values)

  def __getitem__(self, key):
    raise KeyError(key)  # By the index of the table, not by position.

  def __array__(self, dtype=None, copy=None):
    return np.asarray(self.values, dtype or self.dtype)


class Tensor(Column):
  """A number, as an array without an axis, or one that cannot be read."""

  shape = ()


def test_arrays_without_an_axis_are_numbers():
  items = [Tensor(np.float32(n)) for n in (3, 5, 3)]
  assert written({"person": items}, None).num_units(0) == 2
  with pytest.raises(DataError, match="are a list: give a mapping of level"):
    written([3], None)
  for given in (Tensor("a", int), [*items, Tensor("a", int)]):
    with pytest.raises(DataError, match="'person' are no array .*: give a Num"):
      written({"person": given}, None)


@pytest.mark.parametrize("given", TYPES, ids=lambda v: str(np.shape(v)))
@pytest.mark.parametrize("declared", [False, True])
def test_labels_of_any_type_are_compared_exactly(given, declared):
  items = [item[0] if np.ndim(item) else item for item in list(given)]
  dtype = getattr(given, "dtype", object)
  for labels in (given, Column(items, dtype)):
    units = None
    if declared:
      units = given if isinstance(given, np.ndarray) else [(i,) for i in items]
    h = written({"person": labels}, units)
    assert h.num_units(0) == len(set(items)), h.names
    held = h.leaf_rows if h.leaf_rows is not None else range(len(items))
    found = np.repeat(h.names[0], h.child_counts(1)).tolist()
    read = [i.decode() if isinstance(i, bytes) else i for i in items]
    assert found == [read[row] for row in held]


def test_units_are_declared_by_arrays_and_numbers_of_two_types():
  units = np.asarray([["x", "2"], ["x", "3"], ["y", "1"]])
  text = {"writer": WRITTEN["writer"], "letter": ["2", "1", "2"]}
  for given in (units, Column(units)):
    assert written(text, given).child_counts(1).tolist() == [2, 1]
  floats = {"person": np.asarray([1.0, 2.0])}
  units = [2**53, 2**53 + 1, 1, 2]
  assert written(floats, units).num_units(0) == 4
  assert written(floats, np.asarray(units, np.uint64)).num_units(0) == 4


E_ACUTE = ("Jos\u00e9", "Jose\u0301")


@pytest.mark.parametrize(
    "labels,match",
    [
        ([1, "1"], "row 1 of 'a' is '1', text, and row 0 of 'a' is 1, a num"),
        ([0, False], "row 1 of 'a' is False, true or false, and row 0"),
        (["a", b"a"], "row 1 of 'a' is b'a', bytes, and row 0"),
        ([5, None], "row 1 of 'a' is None, which is no label"),
        (["x", "y", float("nan")], "row 2 of 'a' is nan, which is no label"),
        ([3, np.datetime64("NaT", "D")], "row 1 .* is no label"),
        (["x", ""], "row 1 of 'a' is '', which is no label"),
        (["x", "nan"], "row 1 of 'a' is 'nan', as missing values"),
        (["x", " \t"], "row 1 .* is no label"),
        ([("x", 1), ("x", 2), 3], "row 0 .* is no label"),
        ([1, 2.0**53], r"row 1 of 'a' is 9007199254740992.0.* from 2\^53 on"),
        (np.asarray([1, 2.0**24], np.float32), r"row 1 of .* 2\^24"),
        ([1, np.float32(2**24)], r"row 1 of 'a' is 16777216.0.* from 2\^24 on"),
        ([2, np.float16(np.nan)], "row 1 of 'a' is .*nan.*, which is no label"),
        (np.asarray([1.0, -np.inf]), "row 1 of 'a' is -inf"),
        (np.longdouble([2, 1]) / 3 + np.finfo(np.longdouble).eps,
         "row 0 of 'a' is .*64 bits cannot hold"),
        (np.asarray([1, np.nan]), "row 1 of 'a' is nan"),
        (np.ma.masked_equal([5, 7, 5], 7), "row 1 of 'a' is None"),
        (np.asarray(["2020-01-01"], "M8[ns]"), r"'a' are datetime64\[ns\]"),
        ([b"ok", b"\xff"], "row 1 .* is no text in UTF-8"),
        (["x", *E_ACUTE], r"row 1 of 'a' is 'Jos\\xe9' and row 2 .*u0301"),
        (["ann", "bo", "ann "], "row 0 of 'a' is 'ann' and row 2 .* is 'ann '"),
        (np.asarray(["a b", "a\u00a0 b"]), "differ only in blanks"),
        (["ann", "ann \u200b"], r"is 'ann \\u200b'.* in invisible characters"),
        (["\u05d0\u200f", "\u05d0"], r"u200f' and row 1 .* invisible"),
        (["\ufeffann", "ann"], "invisible"),
        (["\u2764", "\u2764\ufe0f"], r"'\\u2764\\ufe0f'.* invisible"),
        (["ann", "an\u034fn"], r"'an\\u034fn'.* invisible"),
        (["\u845b", "\u845b\U000e0100"], "invisible"),
        (["\u00e9", "e\u200d\u0301"], "Unicode form"),
        (["ann", "ann\u3164"], r"'ann\\u3164', which differ only in blanks"),
        (["a b", "a\u2800b"], "differ only in blanks"),
        ({"x"}, r"'a' are no array \(a set\)"),
    ],
)
def test_labels_that_may_be_merged_or_split_are_refused(labels, match):
  assert_refused(DataError, match, plan.Hierarchy.from_labels, {"a": labels})
  if isinstance(labels, list) and not isinstance(labels[0], tuple):
    with pytest.raises(DataError, match=r"'a' of unit \d is"):
      written({"a": labels[:1]}, [(label,) for label in labels])


def test_100_000_text_ids_take_about_a_second():
  ids = [f"person {i * 7919 % 100_000:06d}" for i in range(100_000)]
  start = time.process_time()
  h = written({"person": ids}, units=ids)
  assert h.num_units(0) == 100_000
  assert time.process_time() - start < 4  # Measured 0.8 s.
