"""Units that labels name, and units that are declared and hold no record."""

import numpy as np
import pytest

from episodic_dp import plan

LABELS = {"writer": ["x", "y", "x"], "letter": [2, 1, 2]}
UNITS = [("x", 2), ("x", 3), ("y", 1), ("z",), ("w", 9)]


def tree(labels=LABELS, units=UNITS):
  return plan.Hierarchy.from_labels(labels, units=units, leaf="drawing")


def test_declared_units_stay_without_a_record():
  h = tree()
  assert str(h) == "4 writer > 4 letter > 3 drawing"
  assert h.child_counts(1).tolist() == [1, 2, 1, 0]
  assert h.child_counts(2).tolist() == [0, 2, 0, 1]
  assert h.names[0].tolist() == ["w", "x", "y", "z"]
  assert h.names[1].tolist() == [9, 2, 3, 1]
  assert h.leaf_rows.tolist() == [0, 2, 1]
  assert not h.units_from_records
  assert tree(units=None).units_from_records


def test_one_label_stands_for_the_tuple_of_it():
  labels = {"class": np.asarray(["B", "A", "B"])}
  for units in (["C", "A", "B"], [("C",), ("A",), ("B",)]):
    for given in (units, np.asarray(units)):
      assert tree(labels, given).child_counts(1).tolist() == [1, 2, 0]


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
  h = tree(labels, sorted(paths, key=lambda _: rng.random()))
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
  # Of public data the units that hold nothing may be left out.
  assert h.occupied().same_tree(tree(labels, None))


def test_what_is_occupied_keeps_its_names():
  h = tree().occupied()
  assert [h.names[k].tolist() for k in range(2)] == [["x", "y"], [2, 1]]
  regular = plan.Hierarchy.regular((2, 3), levels="ab")
  assert regular.occupied() is regular


@pytest.mark.parametrize(
    "units,match",
    [
        ([("x", 2)], "row 1 .* writer 'y', which is not among the declared"),
        ([("x", 3), ("y", 1)], "row 0 .* writer 'x', letter 2, which is"),
        ([], "not among the declared"),
        ([("x", "2"), ("y", "1")], "'letter' '2' and the labels have 2: use"),
        ([(1, 2)], "'writer' 1 and the labels have 'x': use text"),
        ([("x", 2, 3)], r"units hold \('x', 2, 3\): give each unit"),
        ([()], "of up to 2 levels"),
        ([None], "units hold None"),
        (5, "units are 5: give a list"),
        ("x", "units are 'x': give a list"),
        ({"x": [2]}, "units are {'x': .*: give a list"),
    ],
)
def test_errors_are_sentences(units, match):
  with pytest.raises(plan.PlanError, match=match):
    tree(units=units)
