"""Rates of every unit against a loop over the tree."""

import numpy as np
import pytest

from episodic_dp import plan
from episodic_dp.analysis.inspection import rates as rates_lib

NESTED = [[4, 2, 3], [4, 5], [], [7, 2, 2, 9]]
LEVELS = ("alphabet", "character", "drawing")


def spread(values):
  """Distinct values and their counts, by a loop."""
  found = {}
  for value in values:
    value = round(value, 12)
    found[value] = found.get(value, 0) + 1
  return found


def of(found):
  return {
      round(v, 12): n
      for v, n in zip(found.values.tolist(), found.units.tolist())
  }


def test_ragged_levels_against_a_loop():
  h = plan.Hierarchy.from_sizes(NESTED, levels=LEVELS)
  p = plan.SamplingPlan(
      (plan.Poisson(0.3), plan.FixedSize(3), plan.FixedSize(2)),
      allow_short_units=True,
  )
  top, middle, low = rates_lib.rates(h, p)
  own = [
      [min(1, 3 / len(alphabet)) for _ in alphabet] for alphabet in NESTED
  ]
  assert of(top.inclusion) == {0.3: 4} and of(top.parent) == {1.0: 4}
  assert of(middle.own) == spread(r for row in own for r in row)
  assert of(middle.parent) == {0.3: 9}
  assert of(middle.inclusion) == spread(0.3 * r for row in own for r in row)
  expected = [
      0.3 * r * min(1, 2 / size)
      for row, alphabet in zip(own, NESTED)
      for r, size in zip(row, alphabet)
      for _ in range(size)
  ]
  assert of(low.inclusion) == spread(expected)
  assert low.units == low.inclusion.units.sum() == len(expected) == 38
  assert low.inclusion.varies and not top.inclusion.varies


@pytest.mark.parametrize("level", LEVELS)
def test_the_largest_is_what_the_accountant_takes(level):
  h = plan.Hierarchy.from_sizes(NESTED, levels=LEVELS)
  p = plan.SamplingPlan(
      (plan.FixedSize(2), plan.All(), plan.FixedSize(2)), allow_short_units=True
  )
  found = rates_lib.rates(h, p)[h.level_index(level)]
  assert found.inclusion.high == pytest.approx(plan.inclusion_rate(h, p, level))
  assert found.per_step is not None and found.level == level


def test_huge_regular_hierarchies_cost_nothing():
  h = plan.Hierarchy.regular((10**8, 5, 2), levels=LEVELS)
  p = plan.SamplingPlan((plan.Poisson(1e-6), plan.All(), plan.FixedSize(1)))
  found = rates_lib.rates(h, p)
  assert [one.units for one in found] == [10**8, 5 * 10**8, 10**9]
  assert found[2].inclusion.high == pytest.approx(5e-7)
  assert of(found[2].own) == {0.5: 10**9}


def test_independent_tasks_add_up_over_a_step():
  h = plan.Hierarchy.regular((50, 4), levels=("class", "image"))
  p = plan.SamplingPlan(
      (plan.FixedSize(5), plan.FixedSize(2)),
      episode=plan.Episode(way=5, shot=1, query=1, form="independent", tasks=7),
  )
  top, low = rates_lib.rates(h, p)
  assert top.inclusion.high == pytest.approx(0.1)
  assert top.per_step.high == pytest.approx(1 - 0.9**7)
  assert low.per_step.high == pytest.approx(1 - 0.95**7)


def test_ranges_are_written_where_units_differ():
  same, other = (
      rates_lib.Spread.from_groups(np.asarray(values), np.asarray(units))
      for values, units in (
          ([0.5, 0.5], [2, 3]), ([0.5, 0.25, 9], [2, 3, 0])
      )
  )
  assert str(same) == "0.5" and same.units.tolist() == [5]
  assert str(other) == "0.25 – 0.5" and other.units.tolist() == [3, 2]
