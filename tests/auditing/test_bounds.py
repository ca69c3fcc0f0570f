"""Bounds on epsilon from scores: coverage, tightness, known values, errors."""

import math
import re

import numpy as np
import pytest
from scipy import special
from scipy import stats

from episodic_dp import accounting
from episodic_dp.auditing import bounds
from tests.refusals import assert_refused


def randomised_response(rng, epsilon, delta, included):
  """The bit by randomised response; with probability delta, the bit itself.

  Scores +-2 are certain, +-1 are not: (epsilon, delta), and no less.
  """
  truth = np.where(included, 1, -1)
  kept = rng.random(truth.size) < special.expit(epsilon)
  answer = np.where(kept, truth, -truth)
  return np.where(rng.random(truth.size) < delta, 2 * truth, answer)


def upper(count, trials, wrong):
  return 1.0 if count == trials else stats.beta.ppf(
      1 - wrong, count + 1, trials - count
  )


def test_a_fixed_threshold_gives_the_formula_in_both_directions():
  present = np.repeat([1.0, 0.0], [30, 70])
  absent = np.repeat([1.0, 0.0], [2, 98])
  found = bounds.measure_epsilon(
      present, absent, delta=0.01, confidence=0.9, threshold=0.5
  )
  miss, alarm = upper(70, 100, 0.05), upper(2, 100, 0.05)
  remove = math.log((1 - miss - 0.01) / alarm)
  add = math.log((1 - alarm - 0.01) / miss)
  assert found.epsilon == pytest.approx(remove) and remove > add > 0
  assert (found.direction, found.threshold) == ("remove", 0.5)
  mirrored = bounds.measure_epsilon(
      -absent, -present, delta=0.01, confidence=0.9, threshold=-0.5
  )
  assert mirrored.direction == "add"
  assert mirrored.epsilon == pytest.approx(found.epsilon)


@pytest.mark.parametrize("epsilon, delta", [(1.0, 0.0), (1.0, 0.05), (0.0, 0)])
def test_many_runs_are_wrong_as_seldom_as_they_say(epsilon, delta):
  """The threshold is not chosen on what is counted, even if nothing leaks."""
  rng, values = np.random.default_rng(1), []
  for _ in range(300):
    sides = (
        randomised_response(rng, epsilon, delta, np.full(200, there))
        + 0.1 * rng.random(200)
        for there in (True, False)
    )
    found = bounds.measure_epsilon(*sides, delta=delta, confidence=0.8)
    values.append(found.epsilon)
  # 0.2 is allowed; what is found beyond chance would be a broken bound.
  assert np.mean(np.asarray(values) > epsilon) < 0.25
  assert np.median(values) >= 0.4 * epsilon


def test_a_gaussian_is_bounded_closely():
  distance, delta, runs = 1.5, 1e-2, 100_000
  # Analytic: the epsilon of two unit Gaussians at this distance.
  true = accounting.epsilon(
      q=1.0, p=1.0, distances=(distance,), steps=1, delta=delta
  )
  rng = np.random.default_rng(2)
  found = bounds.measure_epsilon(
      distance + rng.standard_normal(runs), rng.standard_normal(runs),
      delta=delta,
  )
  assert 0.85 * true < found.epsilon <= true


def test_what_so_many_runs_can_show_at_most():
  most = bounds.most_epsilon(500, 1e-2)  # Half of them are counted.
  rng = np.random.default_rng(4)
  found = bounds.measure_epsilon(
      10 + rng.random(1000), rng.random(1000), delta=1e-2
  )
  assert found.epsilon == pytest.approx(most) and 4 < most < 6
  assert bounds.most_epsilon(10, 0.8) == 0


@pytest.mark.parametrize(
    "call,part",
    [
        (lambda: bounds.measure_epsilon([1.0], [0.0], delta=0.1), "at least 2"),
        (lambda: bounds.measure_epsilon(
            [1.0] * 4, [0.0] * 4, delta=1.0), "delta"),
        (lambda: bounds.measure_epsilon(
            [1.0, math.nan], [0.0] * 2, delta=0.1), "with_record"),
        (lambda: bounds.measure_epsilon(
            np.zeros((2, 2)), [0.0] * 2, delta=0.1), "[2, 2]"),
        (lambda: bounds.most_epsilon(10, 0.1, 1.0), "confidence=1.0"),
    ],
)
def test_mistakes_are_named(call, part):
  assert_refused(ValueError, re.escape(part), call)
