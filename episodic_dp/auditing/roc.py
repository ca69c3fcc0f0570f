"""ROC curves of membership attacks, and the curve that a guarantee allows."""

import dataclasses
import math
from typing import NamedTuple

import numpy as np
from scipy import stats


class Interval(NamedTuple):
  """A confidence interval of a probability."""

  low: float
  high: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Point:
  """One threshold of an attack.

  Attributes:
    threshold: scores above it are called members.
    fpr: share of the non-members above it.
    fpr_interval: of their probability.
    tpr: share of the members above it.
    tpr_interval: of their probability, at this threshold.
  """

  threshold: float
  fpr: float
  fpr_interval: Interval
  tpr: float
  tpr_interval: Interval


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Roc:
  """Scores of members and non-members, and the area under their curve.

  Attributes:
    members: float64[members], ascending scores.
    non_members: float64[non-members], ascending scores.
    auc: the probability that a member scores above a non-member (ties half).
    auc_interval: of that probability, 95 %.
  """

  members: np.ndarray
  non_members: np.ndarray
  auc: float
  auc_interval: Interval

  def at(self, fpr: float, *, confidence: float = 0.95) -> Point:
    """Return the threshold that finds most members at a rate of false alarms.

    The interval of the rate of true positives is exact at this threshold (given
    the non-members, that was fixed before members were looked at). That of
    false ones is conservative: the threshold is one of their order statistics.

    Args:
      fpr: the most false positives, as a share of the non-members. Below one in
        all of them the threshold is the largest of their scores.
      confidence: of each interval.
    """
    n = self.non_members.size
    # A hair above, since 0.29 * 100 is less than 29 in floating point.
    allowed = math.floor(fpr * n * (1 + 1e-9))
    threshold = -math.inf
    if allowed < n:
      threshold = float(self.non_members[n - 1 - allowed])
    hits = int(np.sum(self.members > threshold))
    alarms = int(np.sum(self.non_members > threshold))
    return Point(
        threshold=threshold,
        fpr=alarms / n,
        fpr_interval=clopper_pearson(alarms, n, confidence),
        tpr=hits / self.members.size,
        tpr_interval=clopper_pearson(hits, self.members.size, confidence),
    )


def roc(members: np.ndarray, non_members: np.ndarray) -> Roc:
  """Make the curve of an attack that calls large scores members.

  Args:
    members: float[members], their scores.
    non_members: float[non-members], theirs.
  """
  members, non_members = (
      np.sort(np.asarray(scores, np.float64).reshape(-1))
      for scores in (members, non_members)
  )
  m, n = members.size, non_members.size
  if np.isnan(members).any() or np.isnan(non_members).any():
    raise ValueError("scores are NaN: attack a model whose losses are finite")
  # The share of the others that each one beats: DeLong, DeLong and
  # Clarke-Pearson, "Comparing the Areas under Two or More Correlated ROC
  # Curves" (1988).
  beaten = _below(members, non_members)
  auc = float(beaten.mean())
  beating = _below(non_members, members)
  spread = math.sqrt(_variance(beaten) / m + _variance(beating) / n)
  return Roc(
      members=members,
      non_members=non_members,
      auc=auc,
      auc_interval=Interval(
          max(auc - 1.96 * spread, 0.0), min(auc + 1.96 * spread, 1.0)
      ),
  )


def most_true_positives(
    fpr: np.ndarray, epsilon: float, delta: float
) -> np.ndarray:
  """Return the largest rate of true positives that (epsilon, delta) allows.

  For every test of "with t" against "without t", TPR <= e^epsilon FPR + delta
  and 1 - FPR <= e^epsilon (1 - TPR) + delta: Kairouz, Oh and Viswanath, "The
  Composition Theorem for Differential Privacy" (2015), Theorem 2.1.

  Args:
    fpr: rates of false positives, any shape.
    epsilon: at least 0; infinity for no guarantee.
    delta: in [0, 1].
  """
  fpr = np.asarray(fpr, np.float64)
  if math.isinf(epsilon):
    return np.ones_like(fpr)
  rare = math.exp(epsilon) * fpr + delta
  usual = 1 - math.exp(-epsilon) * (1 - delta - fpr)
  return np.minimum(np.minimum(rare, usual), 1.0)


def clopper_pearson(
    successes: int, trials: int, confidence: float = 0.95
) -> Interval:
  """Return the exact interval of a probability (Clopper, Pearson, 1934)."""
  tail = (1 - confidence) / 2
  low, high = 0.0, 1.0
  if successes:
    low = float(stats.beta.ppf(tail, successes, trials - successes + 1))
  if successes < trials:
    high = float(stats.beta.isf(tail, successes + 1, trials - successes))
  return Interval(low, high)


def _below(scores: np.ndarray, others: np.ndarray) -> np.ndarray:
  """Return the share of the (ascending) others below each score, ties half."""
  left = np.searchsorted(others, scores, side="left")
  right = np.searchsorted(others, scores, side="right")
  return (left + right) / (2 * others.size)


def _variance(values: np.ndarray) -> float:
  """Return the sample variance; infinite for one value."""
  return float(values.var(ddof=1)) if values.size > 1 else math.inf
