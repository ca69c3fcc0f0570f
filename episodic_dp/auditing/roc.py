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
  """How members are told from non-members at every threshold.

  Attributes:
    members: float64[members], ascending scores.
    non_members: float64[non-members], ascending scores.
    fpr: float64[thresholds], from 0 to 1.
    tpr: float64[thresholds], likewise.
    auc: the probability that a member scores above a non-member (ties half).
    auc_interval: of that probability, 95 %.
  """

  members: np.ndarray
  non_members: np.ndarray
  fpr: np.ndarray
  tpr: np.ndarray
  auc: float
  auc_interval: Interval

  def at(self, fpr: float, *, confidence: float = 0.95) -> Point:
    """The threshold that finds most members within a rate of false alarms.

    The interval of the rate of true positives is exact at this threshold (given
    the non-members, that was fixed before members were looked at). That of
    false ones is conservative: the threshold is one of their order statistics.

    Args:
      fpr: the most false positives, as a share of the non-members. Below one in
        all of them the threshold is the largest of their scores.
      confidence: of each interval.

    Raises:
      ValueError: a rate outside [0, 1].
    """
    if not 0 <= fpr <= 1:
      raise ValueError(f"fpr {fpr} must lie between 0 and 1")
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
  """The curve of an attack that calls large scores members.

  Args:
    members: float[members], their scores.
    non_members: float[non-members], theirs.

  Raises:
    ValueError: no scores, or NaN among them.
  """
  members, non_members = (
      np.sort(np.asarray(scores, np.float64).reshape(-1))
      for scores in (members, non_members)
  )
  for name, scores in (("members", members), ("non-members", non_members)):
    if not scores.size or np.isnan(scores).any():
      raise ValueError(
          f"{np.isnan(scores).sum()} of {scores.size} scores of {name} are NaN:"
          " give one number or more, such as losses of a model that is finite"
      )
  m, n = members.size, non_members.size
  # Equal scores fall together, whoever has them.
  thresholds = np.unique(np.concatenate([members, non_members]))[::-1]
  tpr = 1 - np.searchsorted(members, thresholds, side="left") / m
  fpr = 1 - np.searchsorted(non_members, thresholds, side="left") / n
  # Which share of the others each one beats: DeLong, DeLong and Clarke-Pearson,
  # "Comparing the Areas under Two or More Correlated ROC Curves" (1988).
  beaten = _below(members, non_members)
  auc = float(beaten.mean())
  beating = _below(non_members, members)
  spread = math.sqrt(_variance(beaten) / m + _variance(beating) / n)
  return Roc(
      members=members,
      non_members=non_members,
      fpr=np.concatenate([[0.0], fpr]),
      tpr=np.concatenate([[0.0], tpr]),
      auc=auc,
      auc_interval=Interval(
          max(auc - 1.96 * spread, 0.0), min(auc + 1.96 * spread, 1.0)
      ),
  )


def most_true_positives(
    fpr: np.ndarray, epsilon: float, delta: float
) -> np.ndarray:
  """The largest rate of true positives that (epsilon, delta) allows.

  For every test of "with t" against "without t", TPR <= e^epsilon FPR + delta
  and 1 - FPR <= e^epsilon (1 - TPR) + delta: Kairouz, Oh and Viswanath, "The
  Composition Theorem for Differential Privacy" (2015), Theorem 2.1.

  Args:
    fpr: rates of false positives, any shape.
    epsilon: at least 0; infinity where nothing is guaranteed.
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
  """The exact two-sided interval of a probability (Clopper, Pearson, 1934)."""
  if not 0 <= successes <= trials or trials < 1:
    raise ValueError(f"{successes} successes of {trials} trials")
  tail = (1 - confidence) / 2
  low, high = 0.0, 1.0
  if successes:
    low = float(stats.beta.ppf(tail, successes, trials - successes + 1))
  if successes < trials:
    high = float(stats.beta.isf(tail, successes + 1, trials - successes))
  return Interval(low, high)


def _below(scores: np.ndarray, others: np.ndarray) -> np.ndarray:
  """For each score the share of the (ascending) others below it, ties half."""
  left = np.searchsorted(others, scores, side="left")
  right = np.searchsorted(others, scores, side="right")
  return (left + right) / (2 * others.size)


def _variance(values: np.ndarray) -> float:
  """The sample variance; infinite for one value."""
  return float(values.var(ddof=1)) if values.size > 1 else math.inf
