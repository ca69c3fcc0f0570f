"""Bound epsilon from below by the scores of an attack, with confidence.

An attacker who knows everything but one record scores the output of a run by
any function of it. A high score says that the record was present. Differential
privacy limits how well any score can do, so a score that does better proves a
larger epsilon. NumPy and SciPy only: the scores may come from anywhere.

Formal guarantees
-----------------
Let the mechanism be (epsilon, delta)-differentially private for the neighbours
that made the scores. Then, over the randomness of the runs, for any score,

    P(measure_epsilon(...).epsilon <= epsilon) >= confidence.

The confidence covers the randomness of these runs and the choice of the
threshold, for every score that was fixed before the runs were made. Not
covered:

| case | remedy |
| --- | --- |
| a score that was fitted to these runs | fit it to other runs |
| a choice among k audits | all hold together at 1 - k (1 - confidence) |
| other pairs of data sets | none: they may leak more |

A bound of 0 proves nothing. A bound above a claimed epsilon refutes the claim,
at this confidence.
"""

import dataclasses
from typing import Any

import numpy as np
import scipy

from episodic_dp import _validate
from episodic_dp.errors import DataError

_CANDIDATES = 4096  # Most thresholds to compare.


@dataclasses.dataclass(frozen=True, kw_only=True)
class Bound:
  """A lower bound on epsilon, with confidence.

  Attributes:
    epsilon: the bound, at least 0.
    delta: delta of the bounded guarantee.
    confidence: see the module's text.
    direction: "remove" if runs with the record were distinguished from runs
      without it, "add" for the reverse.
    threshold: runs with at least this score were guessed to have the record.
  """

  epsilon: float
  delta: float
  confidence: float
  direction: str
  threshold: float


def measure_epsilon(
    with_record: Any,
    without_record: Any,
    *,
    delta: float,
    confidence: float = 0.95,
    threshold: float | None = None,
) -> Bound:
  """Bound epsilon by runs with the record and runs without it.

  Differential privacy implies TPR <= e^epsilon FPR + delta for every test, and
  TNR <= e^epsilon FNR + delta for the same test with the data sets exchanged
  (Kairouz, Oh and Viswanath, "The Composition Theorem for Differential
  Privacy", 2015). The rates are bounded by Clopper and Pearson's intervals,
  each one-sided and wrong with probability (1 - confidence) / 2. Both
  directions of the test use the same two intervals:

      epsilon >= log((TPR_low - delta) / FPR_high),
      epsilon >= log((TNR_low - delta) / FNR_high),

  with FNR_high = 1 - TPR_low and TNR_low = 1 - FPR_high. The threshold is the
  best one on the first half of each set of runs. The bound is computed from the
  other half only, which the choice has not used. So the order of the runs must
  not depend on their scores.

  Args:
    with_record: float[runs], the scores of independent runs with the record.
    without_record: float[runs], the scores of independent runs without it.
    delta: in [0, 1).
    confidence: in (0, 1).
    threshold: a threshold that was fixed before the runs were made; then all
      runs count.

  Returns:
    The bound, `Bound`.

  Raises:
    DataError: a value out of range, scores that are NaN, or too few runs.
  """
  _check(delta, confidence)
  scores = {"with_record": with_record, "without_record": without_record}
  present, absent = (_scores(*named) for named in scores.items())
  if threshold is None:
    here, there = present.size // 2, absent.size // 2
    if not here or not there:
      raise DataError(
          "one score cannot be split into a half that chooses the threshold and"
          " one that is counted: give at least 2 of each kind, or threshold="
      )
    threshold = best_threshold(
        present[:here], absent[:there], delta=delta, confidence=confidence
    )
    present, absent = present[here:], absent[there:]
  remove, add = _epsilons(
      np.count_nonzero(present >= threshold), present.size,
      np.count_nonzero(absent >= threshold), absent.size, delta, confidence,
  )
  return Bound(
      epsilon=max(float(remove), float(add), 0.0),
      delta=delta,
      confidence=confidence,
      direction="remove" if remove >= add else "add",
      threshold=float(threshold),
  )


def most_epsilon(counted: int, delta: float, confidence: float = 0.95) -> float:
  """Return the `measure_epsilon` of a score that makes no mistake.

  However much leaks, this number of runs cannot prove more. It is 0 if delta is
  too large for the number.

  Args:
    counted: counted runs with the record, and without it: all, or half of them
      if the other half chooses the threshold.
    delta: as for `measure_epsilon`.
    confidence: as for `measure_epsilon`.
  """
  _check(delta, confidence)
  remove, _ = _epsilons(counted, counted, 0, counted, delta, confidence)
  return max(float(remove), 0.0)


def best_threshold(
    with_record: np.ndarray,
    without_record: np.ndarray,
    *,
    delta: float,
    confidence: float = 0.95,
    runs: int | None = None,
) -> float:
  """Return the threshold with the largest bound on these scores.

  These scores must not be counted: use a part of the runs, or simulated ones.

  Args:
    with_record: float[scores], of runs with the record.
    without_record: float[scores], of runs without it.
    delta: as for `measure_epsilon`.
    confidence: as for `measure_epsilon`.
    runs: number of runs of each set that will be counted; None for the number
      of these.
  """
  sides = with_record, without_record
  candidates = np.unique(np.concatenate(sides))
  if candidates.size > _CANDIDATES:  # Close enough, and much faster.
    ranks = np.linspace(0, candidates.size - 1, _CANDIDATES).astype(int)
    tails = np.arange(_CANDIDATES // 4)
    ranks = np.union1d(ranks, [tails, candidates.size - 1 - tails])
    candidates = candidates[ranks]
  here, there = (runs or side.size for side in sides)
  hits, alarms = (
      1 - np.searchsorted(np.sort(side), candidates) / side.size
      for side in sides
  )
  both = _epsilons(
      hits * here, here, alarms * there, there, delta, confidence
  )
  best = int(np.argmax(np.maximum(*both)))
  # Halfway down to the next score: other runs may score just below the best.
  pair = candidates[max(best - 1, 0) : best + 1]
  return float(pair.mean() if np.isfinite(pair).all() else candidates[best])


def _epsilons(
    hits: Any,
    present: int,
    alarms: Any,
    absent: int,
    delta: float,
    confidence: float,
) -> tuple[np.ndarray, np.ndarray]:
  """Return the bounds of both directions, -inf without a bound."""
  wrong = (1 - confidence) / 2
  miss_high = _upper(present - hits, present, wrong)
  alarm_high = _upper(alarms, absent, wrong)

  def bound(miss, alarm):
    with np.errstate(divide="ignore"):
      return np.log(np.maximum(1 - miss - delta, 0)) - np.log(alarm)

  return bound(miss_high, alarm_high), bound(alarm_high, miss_high)


def _upper(count: Any, trials: int, wrong: float) -> np.ndarray:
  """Bound a rate from above, wrong with a given probability.

  Source: Clopper and Pearson (1934).
  """
  # Without a further trial: the quantile of all of them.
  found = scipy.stats.beta.ppf(1 - wrong, count + 1, trials - count)
  return np.where(count < trials, found, 1.0)


def _scores(name: str, values: Any) -> np.ndarray:
  values = np.asarray(values, np.float64)
  if values.ndim != 1 or not values.size or np.isnan(values).any():
    raise DataError(
        f"{name} of shape {list(values.shape)}: expected one score for each"
        " run, none of them NaN"
    )
  return values


def _check(delta: float, confidence: float) -> None:
  if delta:
    _validate.fraction("delta", delta)
  _validate.fraction("confidence", confidence)
