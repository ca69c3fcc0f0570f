"""Counted draws against the rates of theory, in numbers and in bars."""

import math

import numpy as np
import pytest
from scipy import stats

from episodic_dp import plan
from episodic_dp.analysis.inspection import frequencies
from episodic_dp.analysis.inspection import rates as rates_lib

STEPS = 300


def test_ragged_units_are_drawn_as_often_as_theory_says():
  # A Poisson stage may draw nothing of a unit, which then does not show below:
  # the first level is counted by draws of its own.
  sizes = [[4, 2, 3], [4, 5], [6, 2, 2, 9, 3]]
  h = plan.Hierarchy.from_sizes(sizes, levels=("a", "b", "c"))
  p = plan.SamplingPlan((plan.FixedSize(2), plan.Poisson(0.4), plan.All()))
  found = frequencies.count_draws(
      h, p, rates_lib.rates(h, p), seed=0, steps=STEPS
  )
  etas = np.full(3, 2 / 3), np.full(10, 0.8 / 3), np.full(40, 0.8 / 3)
  for one, eta in zip(found, etas):
    assert one.times_drawn.shape == eta.shape and one.steps == STEPS
    z = (one.times_drawn - STEPS * eta) / np.sqrt(STEPS * eta * (1 - eta))
    assert np.abs(z).max() < 4.5, one.level
    assert one.expected == pytest.approx(eta.mean())
    assert one.observed == pytest.approx(one.times_drawn.mean() / STEPS)
  a, b, c = (one.times_drawn for one in found)
  # Exactly two primary units a step, and all images of a drawn class.
  assert a.sum() == 2 * STEPS
  assert (c == np.repeat(b, [n for row in sizes for n in row])).all()


def test_bars_hold_every_unit_and_all_probability():
  spread = rates_lib.Spread(np.asarray([0.01, 0.2]), np.asarray([30, 70]))
  rng = np.random.default_rng(0)
  drawn = np.concatenate([
      rng.binomial(STEPS, 0.01, 30), rng.binomial(STEPS, 0.2, 70)
  ])
  one = frequencies.Frequencies(
      level="a", steps=STEPS, times_drawn=drawn, inclusion=spread, groups=100
  )
  edges, found, expected = frequencies.bars(one)
  assert found.sum() == pytest.approx(100)
  assert 99.5 < expected.sum() <= 100 + 1e-9
  assert len(edges) == len(found) + 1 <= 34
  # One bar by a loop over its counts.
  counts = range(edges[1], edges[2])
  by_hand = sum(
      0.3 * stats.binom.pmf(n, STEPS, 0.01)
      + 0.7 * stats.binom.pmf(n, STEPS, 0.2)
      for n in counts
  )
  assert expected[1] == pytest.approx(100 * by_hand)
  assert found[1] == pytest.approx(np.isin(drawn, list(counts)).sum())


def test_what_is_always_drawn_is_one_bar():
  spread = rates_lib.Spread(np.ones(1), np.asarray([5]))
  one = frequencies.Frequencies(
      level="a", steps=STEPS, times_drawn=np.full(5, STEPS), inclusion=spread,
      groups=5,
  )
  edges, found, expected = frequencies.bars(one)
  assert edges.tolist() == [STEPS, STEPS + 1]
  assert found.tolist() == [100] and expected.tolist() == [100]


def test_bars_of_units_that_are_drawn_together_stay_in_their_band():
  # Five units in each of 200 primary units, which are drawn as a whole.
  rng, spread = np.random.default_rng(1), rates_lib.Spread(
      np.asarray([0.02]), np.asarray([1000])
  )  # fmt: skip
  outside = {200.0: 0, 1000.0: 0}
  means = []
  for _ in range(40):
    drawn = np.repeat(rng.binomial(STEPS, 0.02, 200), 5)
    for groups in outside:
      one = frequencies.Frequencies(
          level="a", steps=STEPS, times_drawn=drawn, inclusion=spread,
          groups=groups,
      )  # fmt: skip
      _, found, expected = frequencies.bars(one)
      big = expected > 5  # Where the binomial law is about normal.
      off = np.abs(found - expected) > frequencies.band(one, expected)
      outside[groups] += (off & big).sum() / (40 * big.sum())
    means.append(abs(one.observed - 0.02))
  assert outside[200.0] < 0.1
  assert outside[1000.0] > 0.2  # As if all units were on their own.
  one = frequencies.Frequencies(
      level="a", steps=STEPS, times_drawn=drawn, inclusion=spread, groups=200.0
  )
  assert 0.8 < np.mean(np.asarray(means) < one.error) <= 1


def test_groups_are_the_primary_units_weighed_by_what_they_hold():
  sizes = [[1, 1], [4, 2], [1, 1, 2]]
  h = plan.Hierarchy.from_sizes(sizes, levels=("a", "b", "c"))
  p = plan.SamplingPlan((plan.Poisson(0.5), plan.All(), plan.All()))
  found = frequencies.count_draws(h, p, rates_lib.rates(h, p), seed=0, steps=9)
  held = ([1, 1, 1], [2, 2, 3], [2, 6, 4])
  assert [one.groups for one in found] == pytest.approx([
      sum(n) ** 2 / sum(x * x for x in n) for n in held
  ])


@pytest.mark.parametrize(
    "sizes,stages,part",
    [
        ((10**8, 5), (plan.Poisson(1e-7), plan.All()), "500 000 000"),
        ((10**6, 2), (plan.FixedSize(10**5), plan.All()), "200 000 slots"),
        ((10, 5), (plan.FixedSize(2), plan.All()), ""),
    ],
)
def test_what_would_take_long_is_told_in_a_sentence(sizes, stages, part):
  h = plan.Hierarchy.regular(sizes, levels=("class", "image"))
  text = frequencies.why_not_counted(h, plan.SamplingPlan(stages))
  text = text.replace("\u202f", " ")
  assert part in text and bool(text) == bool(part) and "\n" not in text
  assert math.prod(sizes) == h.num_leaves
