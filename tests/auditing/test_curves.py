"""ROC curves, their intervals, and what a guarantee allows."""

import math

import numpy as np
import pytest
from scipy import stats

from episodic_dp.auditing import inference


def test_the_area_is_the_share_of_won_comparisons():
  members, others = [3.0, 1.0, 2.0, 2.0], [0.0, 2.0, -1.0, -1.0, 1.5]
  wins = [(a > b) + (a == b) / 2 for a in members for b in others]
  assert inference.roc(members, others).auc == pytest.approx(np.mean(wins))


def test_a_point_of_the_curve_has_exact_intervals():
  members, others = np.arange(50.0) + 70.5, np.arange(100.0)
  point = inference.roc(members, others).at(0.03)
  assert point.fpr == 0.03 and point.threshold == 96
  assert point.tpr == pytest.approx(np.mean(members > 96))
  hits = int((members > 96).sum())
  low, high = point.tpr_interval
  # At each end what was seen, or more, has probability 2.5 %.
  assert stats.binom.sf(hits - 1, 50, low) == pytest.approx(0.025)
  assert stats.binom.cdf(hits, 50, high) == pytest.approx(0.025)
  strict = inference.roc(members, others).at(1e-3)  # Below one of 100.
  assert (strict.fpr, strict.fpr_interval.low) == (0, 0)
  assert strict.fpr_interval.high > 0.03
  everyone = inference.roc(members, others).at(1.0)
  assert (everyone.fpr, everyone.tpr) == (1, 1)


def test_intervals_cover_as_often_as_they_say():
  """Members N(1, 1) against N(0, 1): rates and area are known."""
  rng, covered = np.random.default_rng(0), np.zeros(3)
  area = stats.norm.cdf(1 / math.sqrt(2))
  for _ in range(400):
    curve = inference.roc(
        rng.normal(1, 1, 60), rng.normal(0, 1, 90)
    )
    point = curve.at(0.1)
    truth = (
        stats.norm.sf(point.threshold), stats.norm.sf(point.threshold - 1), area
    )
    found = (point.fpr_interval, point.tpr_interval, curve.auc_interval)
    covered += [low <= t <= high for (low, high), t in zip(found, truth)]
  # 400 trials at 95 %: five standard deviations below are 0.896.
  assert (covered / 400 > 0.896).all() and (covered[2] / 400 < 0.99)


def test_no_test_exceeds_what_the_guarantee_allows():
  """The best test between randomized responses reaches it, none is above."""
  epsilon, delta, fpr = 0.7, 0.01, np.linspace(0, 1, 101)
  most = inference.most_true_positives(fpr, epsilon, delta)
  # The pair of outputs that dominates every (epsilon, delta) mechanism.
  share = math.exp(epsilon) / (1 + math.exp(epsilon))
  p = np.asarray([delta, (1 - delta) * share, (1 - delta) * (1 - share), 0])
  q = p[::-1]
  at = np.interp(fpr, np.cumsum([0, *q]), np.cumsum([0, *p]))
  at[0] = delta  # The first outcome never occurs without it.
  np.testing.assert_allclose(most, at, atol=1e-12)
  assert (inference.most_true_positives(fpr, math.inf, 0.0) == 1).all()
  np.testing.assert_allclose(inference.most_true_positives(fpr, 0, 0), fpr)


def test_scores_that_are_nan_are_refused():
  with pytest.raises(ValueError, match="NaN"):
    inference.roc([1.0], [math.nan])
