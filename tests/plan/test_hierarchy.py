"""Hierarchies: three constructors, one tree."""

import numpy as np
import pytest

from episodic_dp import plan

LEVELS = ("alphabet", "character", "drawing")
EXAMPLE = [[4, 2, 3], [4, 5]]


def labelled(sizes):
  """The label arrays of nested sizes, in tree order."""
  alphabets, characters = [], []
  for a, inner in enumerate(sizes):
    for c, count in enumerate(inner):
      alphabets += [a] * count
      characters += [c] * count
  return np.asarray(alphabets), np.asarray(characters)


def assert_same_tree(one, other):
  assert one.levels == other.levels and one.num_leaves == other.num_leaves
  for k in range(one.depth):
    assert one.num_units(k) == other.num_units(k)
    np.testing.assert_array_equal(one.size_paths(k), other.size_paths(k))


def test_example_of_the_paper():
  h = plan.Hierarchy.from_sizes(EXAMPLE, levels=LEVELS)
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


def test_labels_in_order_give_the_tree_of_their_sizes():
  a, c = labelled(EXAMPLE)
  h = plan.Hierarchy.from_labels(
      {"alphabet": a, "character": c}, leaf="drawing"
  )
  sizes = plan.Hierarchy.from_sizes(EXAMPLE, levels=LEVELS)
  for mine, theirs in zip(h.offsets, sizes.offsets):
    np.testing.assert_array_equal(mine, theirs)
  assert h.leaf_rows is None


@pytest.mark.parametrize("seed", range(5))
def test_leaf_rows_lead_back_to_the_labels(seed):
  rng = np.random.default_rng(seed)
  rows = 40
  a = np.asarray(["Greek", "Latin", "Thai"])[rng.integers(0, 3, rows)]
  c = rng.integers(0, 4, rows)
  h = plan.Hierarchy.from_labels(
      {"alphabet": a, "character": c}, leaf="drawing"
  )
  leaf_rows = np.arange(rows) if h.leaf_rows is None else h.leaf_rows
  assert sorted(leaf_rows) == list(range(rows))
  characters = h.parents(2)
  alphabets = h.parents(1)[characters]
  for leaf, row in enumerate(leaf_rows):
    assert h.names[0][alphabets[leaf]] == a[row]
    assert h.names[1][characters[leaf]] == c[row]
  # The same character of two alphabets is two units.
  assert h.num_units(1) == len(set(zip(a.tolist(), c.tolist())))
  assert h.num_units(0) == len(set(a.tolist()))


def test_labels_that_are_not_in_order_keep_rows_in_order_inside_units():
  h = plan.Hierarchy.from_labels({"class": ["b", "a", "b", "a"]})
  assert h.levels == ("class", "example")
  assert h.leaf_rows.tolist() == [1, 3, 0, 2]
  assert h.leaf_rows.dtype == np.int32
  assert h.describe(0, 1) == "class 1 ('b')"


def test_regular_equals_its_nested_sizes():
  regular = plan.Hierarchy.regular((3, 2, 5), levels=LEVELS)
  nested = plan.Hierarchy.from_sizes([[5, 5]] * 3, levels=LEVELS)
  assert_same_tree(regular, nested)
  assert regular.offsets is None and regular.leaf_rows is None
  assert regular.describe(1, 4) == "character 4"


def test_regular_stores_nothing_for_many_units():
  h = plan.Hierarchy.regular((10**8, 5, 4), levels=LEVELS)
  assert h.num_leaves == 2 * 10**9 and h.num_units(1) == 5 * 10**8
  assert h.size_paths(2).tolist() == [[10**8, 5, 4]]


def test_one_level_and_empty_units():
  assert plan.Hierarchy.from_sizes(7, levels=("example",)).num_leaves == 7
  h = plan.Hierarchy.from_sizes([[0, 2], []], levels=LEVELS)
  assert h.num_leaves == 2 and h.child_counts(1).tolist() == [2, 0]
  assert h.size_paths(2).tolist() == [[2, 2, 2]]  # of the leaves that exist


def test_level_index_names_the_levels():
  h = plan.Hierarchy.from_sizes(EXAMPLE, levels=LEVELS)
  assert h.level_index("character") == 1
  with pytest.raises(plan.PlanError, match="'glyph'.*alphabet"):
    h.level_index("glyph")


def copies(most_copies=None, **options):
  return plan.Hierarchy.regular(**(dict(
      sizes=(7, 2, 2), levels="abc", copies=True, most_copies=most_copies,
  ) | options))


def test_counts_of_copies():
  assert copies().most_copies is None
  assert copies({"c": 3, "b": 7}).most_copies == (1, 7, 3)
  assert copies({"c": 1}).most_copies == (1, 0, 1)


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
        (lambda: plan.Hierarchy.regular((2**16, 2**15), levels="ab"),
         "2147483648 leaves, more than 2\\^31 - 1"),
        (lambda: plan.Hierarchy.from_sizes([2**62, 2**62], levels="ab"),
         "more than 2\\^31 - 1"),
        (lambda: plan.Hierarchy.from_sizes([2**31 - 1, 1], levels="ab"),
         "2147483648 leaves, more than 2\\^31 - 1"),
        (lambda: plan.Hierarchy.regular((3, 0), levels="ab"), "'b'=0"),
        (lambda: plan.Hierarchy.regular((3, 2.5), levels="ab"), "'b'=2.5"),
        (lambda: plan.Hierarchy.regular((3,), levels="ab"), "2 level names"),
        (lambda: plan.Hierarchy.regular((3, 3), levels="aa"), "distinct"),
        (lambda: plan.Hierarchy.regular((3,), levels=("episode",)),
         "'episode' is not allowed"),
        (lambda: plan.Hierarchy.regular((3,), levels=("a\nb",)),
         r"'a\\nb' is not allowed.*printable"),
        (lambda: plan.Hierarchy.regular((3,), levels=("a" * 81,)),
         "at most 80 printable"),
        (lambda: plan.Hierarchy.regular((3,), levels=()), "at least one"),
        (lambda: plan.Hierarchy.from_sizes([3, [2]], levels="ab"), "\\[2\\]"),
        (lambda: plan.Hierarchy.from_sizes([3, 2], levels="abc"), "nest lists"),
        (lambda: plan.Hierarchy.from_sizes([3, -1], levels="ab"), "-1"),
        (lambda: plan.Hierarchy.from_sizes([3, "x"], levels="ab"), "'x'"),
        (lambda: plan.Hierarchy.from_sizes([None], levels="abc"), "None"),
        (lambda: plan.Hierarchy.from_sizes([0, 0], levels="ab"), "no leaf"),
        (lambda: plan.Hierarchy.from_sizes([], levels="ab"), "no leaf"),
        (lambda: plan.Hierarchy.from_labels({}), "at least one label"),
        (lambda: plan.Hierarchy.from_labels({"a": []}), "empty"),
        (lambda: plan.Hierarchy.from_labels({"a": [1, 2], "b": [1]}),
         "'b' have shape \\(1,\\)"),
        (lambda: plan.Hierarchy.from_labels({"a": [[1, 2]]}), "vector"),
        (lambda: plan.Hierarchy.from_labels({"a": [1.0, np.nan]}), "NaN"),
        (lambda: plan.Hierarchy(levels=("a",)), "either sizes"),
    ],
)
def test_errors_are_sentences(make, match):
  with pytest.raises(plan.PlanError, match=match):
    make()
