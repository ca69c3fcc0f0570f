"""From the scores of an attack to a lower bound on epsilon, with confidence.

An attacker who knows everything but one record scores what a run released, by
any function of it; a high score says that the record was there. Differential
privacy limits how well any score can do, so a score that does better shows a
larger epsilon. NumPy and SciPy only: the scores may come from anywhere.

Formal guarantees
-----------------
Let the mechanism be (epsilon, delta)-differentially private for the neighbours
that made the scores. Then, over the randomness of the runs (and of the coins
that included the canaries), whatever the score,

    P(lower_bound(...).epsilon <= epsilon) >= confidence,
    P(one_run_bound(...).epsilon <= epsilon) >= confidence.

The confidence covers the chance of these runs, the choice of the threshold
(`lower_bound`) and that of the number of guesses (`one_run_bound`), for every
score that was fixed before the runs were made. It does not cover

| what | instead |
| --- | --- |
| a score that was fitted to these runs | fit it to other runs |
| a choice among k audits | all hold together at 1 - k (1 - confidence) |
| other pairs of data sets | none: they may leak more, never is it "at most" |

A bound of 0 says nothing. A bound above a claimed epsilon refutes the claim, at
the confidence.
"""

import dataclasses
import math
from typing import Any

import numpy as np
from scipy import optimize
from scipy import special
from scipy import stats

# No count of runs tells a larger epsilon from this one.
_LARGEST_EPSILON = 50.0
_CANDIDATES = 4096  # Thresholds that are compared.


@dataclasses.dataclass(frozen=True, kw_only=True)
class Bound:
  """epsilon is at least this much, with confidence.

  Attributes:
    epsilon: the lower bound, at least 0.
    delta: of the (epsilon, delta) that is bounded.
    confidence: see the module's text.
    method: "many runs" or "one run".
    direction: "remove" where runs with the record were told from runs without
      it, "add" the reverse, "both" for one run.
    threshold: scores of at least this were taken for runs with the record; NaN
      for one run, where scores are ranked.
    trials: the runs (of both kinds) or the canaries that were counted.
    guesses: how many of them were guessed on: all, or those not abstained from.
    correct: how many of the guesses were right.
  """

  epsilon: float
  delta: float
  confidence: float
  method: str
  direction: str
  threshold: float
  trials: int
  guesses: int
  correct: int

  def as_dict(self) -> dict[str, Any]:
    """Plain data for JSON; a threshold that does not exist is None."""
    values = dataclasses.asdict(self)
    if not math.isfinite(self.threshold):
      values["threshold"] = None
    return values


def lower_bound(
    with_record: Any,
    without_record: Any,
    *,
    delta: float,
    confidence: float = 0.95,
    threshold: float | None = None,
) -> Bound:
  """The bound from many runs, half with the record and half without.

  Differential privacy says TPR <= e^epsilon FPR + delta for every test, and
  TNR <= e^epsilon FNR + delta for the same test with the data sets exchanged
  (Kairouz, Oh and Viswanath, "The Composition Theorem for Differential
  Privacy", 2015). The rates are bounded by Clopper and Pearson's intervals,
  each one-sided and wrong with probability (1 - confidence) / 2; both
  directions of the test use the same two intervals:

      epsilon >= log((TPR_low - delta) / FPR_high),
      epsilon >= log((TNR_low - delta) / FNR_high),

  with FNR_high = 1 - TPR_low and TNR_low = 1 - FPR_high. The threshold is the
  best one on the first half of the runs of each kind, and the bound is computed
  from the other half alone, which the choice has not seen. So runs must be in
  an order that does not depend on their scores.

  Args:
    with_record: float[runs], the scores of independent runs with the record.
    without_record: float[runs], of independent runs without it.
    delta: in [0, 1).
    confidence: in (0, 1).
    threshold: a threshold that was fixed before the runs were made; then all
      runs count.

  Raises:
    ValueError: a value out of range, scores that are NaN, or too few runs.
  """
  _check(delta, confidence)
  present = _scores("with_record", with_record)
  absent = _scores("without_record", without_record)
  if threshold is None:
    for name, scores in (("with_record", present), ("without_record", absent)):
      if scores.size < 2:
        raise ValueError(
            f"{name} has {scores.size} score, which cannot be split into a half"
            " that chooses the threshold and one that is counted: give at least"
            " 2, or threshold="
        )
    here, there = present.size // 2, absent.size // 2
    threshold = best_threshold(
        present[:here], absent[:there], delta=delta, confidence=confidence
    )
    present, absent = present[here:], absent[there:]
  elif math.isnan(threshold):
    raise ValueError("threshold is NaN: give a number")
  hits = np.count_nonzero(present >= threshold)
  alarms = np.count_nonzero(absent >= threshold)
  remove, add = _epsilons(
      np.asarray(hits), present.size, np.asarray(alarms), absent.size, delta,
      confidence,
  )
  return Bound(
      epsilon=max(float(remove), float(add), 0.0),
      delta=delta,
      confidence=confidence,
      method="many runs",
      direction="remove" if remove >= add else "add",
      threshold=float(threshold),
      trials=present.size + absent.size,
      guesses=present.size + absent.size,
      correct=int(hits + absent.size - alarms),
  )


def most_epsilon(counted: int, delta: float, confidence: float = 0.95) -> float:
  """The `lower_bound` of runs that a score tells apart without a mistake.

  However much leaks, fewer runs cannot show more: with delta too large for
  their number it is 0.

  Args:
    counted: runs of each kind that are counted: all, or half of them where the
      other half chooses the threshold.
    delta: as for `lower_bound`.
    confidence: as for `lower_bound`.
  """
  _check(delta, confidence)
  remove, _ = _epsilons(
      np.asarray(counted), counted, np.asarray(0), counted, delta, confidence
  )
  return max(float(remove), 0.0)


def best_threshold(
    with_record: Any,
    without_record: Any,
    *,
    delta: float,
    confidence: float = 0.95,
    runs: int | None = None,
) -> float:
  """The threshold with the largest bound on these scores, in one direction.

  For scores that are not counted: a part of the runs, or simulated ones.

  Args:
    with_record: float[scores], of what is like runs with the record.
    without_record: float[scores], of what is like runs without it.
    delta: as for `lower_bound`.
    confidence: as for `lower_bound`.
    runs: of each kind that will be counted; by default as many as here.
  """
  present, absent = np.sort(with_record), np.sort(without_record)
  candidates = np.unique(np.concatenate([present, absent]))
  if candidates.size > _CANDIDATES:  # Close enough, and much quicker.
    chosen = np.linspace(0, candidates.size - 1, _CANDIDATES).astype(int)
    tails = np.arange(_CANDIDATES // 4)
    chosen = np.union1d(chosen, np.union1d(tails, candidates.size - 1 - tails))
    candidates = candidates[chosen]
  here, there = (runs or a.size for a in (present, absent))
  hits = 1 - np.searchsorted(present, candidates) / present.size
  alarms = 1 - np.searchsorted(absent, candidates) / absent.size
  both = _epsilons(
      hits * here, here, alarms * there, there, delta, confidence
  )
  best = int(np.argmax(np.maximum(*both)))
  # Half way down to the next score: other runs may lie just below the best.
  pair = candidates[max(best - 1, 0) : best + 1]
  return float(pair.mean() if np.isfinite(pair).all() else candidates[best])


def one_run_bound(
    scores: Any,
    included: Any,
    *,
    delta: float,
    confidence: float = 0.95,
    guesses: int | tuple[int, int] | None = None,
) -> Bound:
  """The bound from one run with many canaries, each included by a fair coin.

  Steinke, Nasr and Jagielski, "Privacy Auditing with One (1) Training Run"
  (2023), Theorem 5.2: of m canaries the k+ with the highest scores are guessed
  to be in and the k- with the lowest to be out. If the run is (epsilon,
  delta)-differentially private for each canary, the others fixed, then the
  number of right guesses among r = k+ + k- is at least v with probability at
  most

      beta + 2 m delta max_{1 <= i <= v} (P(B >= v - i) - beta) / i,

  with B ~ Binomial(r, e^epsilon / (1 + e^epsilon)) and beta = P(B >= v). The
  bound is the largest epsilon at which that is below 1 - confidence.

  Args:
    scores: float[m], high for "in"; ties are broken by position.
    included: bool[m], from independent fair coins.
    delta: in [0, 1).
    confidence: in (0, 1).
    guesses: r (half of it on each side), or (k+, k-), fixed before the run. By
      default m, m / 2, m / 4, ... down to 16, each on both sides and on the
      side "in" alone; the best of these counts, and each of them is allowed its
      share of 1 - confidence.

  Raises:
    ValueError: a value out of range, or arrays of unlike shapes.
  """
  _check(delta, confidence)
  scores = _scores("scores", scores)
  included = np.asarray(included)
  if included.shape != scores.shape or included.dtype != np.bool_:
    raise ValueError(
        f"included is {included.dtype}{list(included.shape)}: give one bool for"
        f" each of the {scores.size} scores"
    )
  m = scores.size
  pairs = _guesses(guesses, m)
  order = np.argsort(-scores, kind="stable")
  ranked = included[order]
  best: Bound | None = None
  for first, last in pairs:
    correct = int(ranked[:first].sum() + (~ranked[m - last :]).sum())
    epsilon = _one_run_epsilon(
        m, first + last, correct, delta, (1 - confidence) / len(pairs)
    )
    if best is None or epsilon > best.epsilon:
      best = Bound(
          epsilon=epsilon,
          delta=delta,
          confidence=confidence,
          method="one run",
          direction="both",
          threshold=math.nan,
          trials=m,
          guesses=first + last,
          correct=correct,
      )
  assert best is not None  # There is at least one pair.
  return best


def one_run_p_value(
    canaries: int, guesses: int, correct: int, epsilon: float, delta: float
) -> float:
  """Bounds the probability of so many right guesses; see `one_run_bound`."""
  q = special.expit(epsilon)
  beta = float(np.asarray(stats.binom.sf(correct - 1, guesses, q)))
  if delta == 0 or correct == 0:
    return beta
  i = np.arange(1, correct + 1)
  more = stats.binom.sf(correct - i - 1, guesses, q) - beta
  alpha = float(np.max(more / i))
  return min(1.0, beta + 2 * canaries * delta * alpha)


def _epsilons(
    hits: np.ndarray,
    present: int,
    alarms: np.ndarray,
    absent: int,
    delta: float,
    confidence: float,
) -> tuple[np.ndarray, np.ndarray]:
  """The bounds of both directions, -inf where there is none."""
  wrong = (1 - confidence) / 2
  miss_high = _upper(present - hits, present, wrong)
  alarm_high = _upper(alarms, absent, wrong)

  def bound(miss, alarm):
    gained = 1 - miss - delta
    with np.errstate(divide="ignore"):
      return np.log(np.maximum(gained, 0)) - np.log(alarm)

  return bound(miss_high, alarm_high), bound(alarm_high, miss_high)


def _upper(count: np.ndarray, trials: int, wrong: float) -> np.ndarray:
  """Clopper and Pearson (1934): above the rate but with probability `wrong`."""
  with np.errstate(invalid="ignore"):
    found = stats.beta.ppf(1 - wrong, count + 1, trials - count)
  return np.where(count < trials, found, 1.0)


def _guesses(
    guesses: int | tuple[int, int] | None, m: int
) -> list[tuple[int, int]]:
  """The pairs (k+, k-) that are tried."""
  if guesses is None:
    pairs = [((m + 1) // 2, m // 2)]
    total = m // 2
    while total >= 16:
      pairs += [((total + 1) // 2, total // 2), (total, 0)]
      total //= 2
    return pairs
  if isinstance(guesses, tuple):
    first, last = guesses
  else:
    first, last = (guesses + 1) // 2, guesses // 2
  if min(first, last) < 0 or not 0 < first + last <= m:
    raise ValueError(
        f"guesses {guesses!r} of {m} canaries: give between 1 and {m}, or two"
        " numbers (highest, lowest) with such a sum"
    )
  return [(first, last)]


def _one_run_epsilon(
    m: int, guesses: int, correct: int, delta: float, wrong: float
) -> float:
  """The largest epsilon that is refuted, 0 where none is."""

  def excess(epsilon):
    return one_run_p_value(m, guesses, correct, epsilon, delta) - wrong

  if excess(0.0) >= 0:
    return 0.0
  if excess(_LARGEST_EPSILON) < 0:
    return _LARGEST_EPSILON
  # Whichever root is found: what is private at an epsilon is so at every larger
  # one, so an epsilon that is refuted refutes all smaller ones.
  root = optimize.bisect(excess, 0.0, _LARGEST_EPSILON, xtol=1e-6)
  return float(max(root - 1e-6, 0.0))


def _scores(name: str, values: Any) -> np.ndarray:
  values = np.asarray(values, np.float64)
  if values.ndim != 1 or not values.size:
    raise ValueError(
        f"{name} has shape {list(values.shape)}: give one score per run or"
        " canary"
    )
  if np.isnan(values).any():
    raise ValueError(
        f"{name} holds {np.isnan(values).sum()} scores that are NaN: a score"
        " must say how likely the record was there, for every outcome"
    )
  return values


def _check(delta: float, confidence: float) -> None:
  if not 0 <= delta < 1:
    raise ValueError(f"delta {delta!r} must be at least 0 and less than 1")
  if not 0 < confidence < 1:
    raise ValueError(f"confidence {confidence!r} must lie between 0 and 1")
