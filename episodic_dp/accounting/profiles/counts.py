"""Distributions of whole numbers, rounded upwards where they are cut.

A profile grows with a number of places or of clip units, in the usual
stochastic order. So a distribution may be replaced by a stochastically larger
one: probability may move to larger values, never to smaller ones. An upper tail
that is cut off is moved to values up to the largest.
"""

import functools
import itertools
import math
from typing import NamedTuple

import numpy as np

# Supports up to this size are kept whole; longer ones are cut at each end where
# less than e^-92 < 1.2e-40 remains (Bernstein's inequality).
WHOLE = 4096
_EXPONENT = 92.0
# Probabilities below this, which a double may have lost, are moved up.
_TINY = 1e-290
# Below this probability only a few values are distinguished.
_NEGLIGIBLE = 1e-40
# Values outside this range are rounded up more.
_OUTSIDE = 1e-20
# Supports that are added up value by value; longer ones are made coarser.
_LONGEST_SUM = 1 << 13


class Counts(NamedTuple):
  """A distribution of whole numbers, or one that is stochastically larger.

  Equal and hashed by its contents.

  Attributes:
    values: int64[n], ascending, none negative.
    probs: float64[n], whose sum is 1 up to a rounding error above.
  """

  values: np.ndarray
  probs: np.ndarray

  @property
  def most(self) -> int:
    """Return the largest value."""
    return int(self.values[-1])

  @property
  def some(self) -> float:
    """Return P(K > 0), exact where it is tiny."""
    return float(self.probs[self.values > 0].sum())

  def __hash__(self) -> int:
    return hash((self.values.tobytes(), self.probs.tobytes()))

  def __eq__(self, other: object) -> bool:
    return isinstance(other, Counts) and hash(self) == hash(other)


def from_above(probs: np.ndarray) -> np.ndarray:
  """Sum numbers, mostly probabilities, from each to the last, float64[n]."""
  return np.cumsum(probs[::-1])[::-1]


def constant(value: int) -> Counts:
  """Return the distribution of a known number."""
  return Counts(np.asarray([value], np.int64), np.ones(1))


def _made(values: np.ndarray, probs: np.ndarray) -> Counts:
  """Build counts; values too unlikely for a double are moved to the last."""
  lost = (probs < _TINY) & (np.arange(probs.size) > int(np.argmax(probs)))
  if lost.any():
    probs = np.where(lost, 0.0, probs)
    probs[-1] += _TINY * int(lost.sum())
  some = probs > 0
  return Counts(values[some].astype(np.int64), probs[some])


def _window(low: int, high: int, mean: float) -> tuple[int, int]:
  """Find the part of a support with less than e^-92 beyond each end.

  Bernstein's inequality: a sum of independent coins deviates from its mean m by
  t with probability at most exp(-t^2 / (2 (m + t / 3))), at either end; so does
  a hypergeometric number (Hoeffding, "Probability Inequalities for Sums of
  Bounded Random Variables", 1963, section 6).
  """
  if high - low <= WHOLE:
    return low, high
  third = _EXPONENT / 3
  t = third + math.sqrt(third**2 + 2 * _EXPONENT * mean)
  return max(low, math.floor(mean - t)), min(high, math.ceil(mean + t))


def _from_ratios(first: int, log_ratios: np.ndarray) -> Counts:
  """Build counts from ln P(i + 1) / P(i), normalised over the values.

  This changes each probability by less than its rounding error.
  """
  logs = np.append(0.0, np.cumsum(log_ratios))
  probs = np.exp(logs - logs.max())
  return _made(first + np.arange(probs.size), probs / probs.sum())


def _with_tail(counts: Counts, high: int, trials: int, rate: float) -> Counts:
  """Add the probability above the window, at values that double.

  For two such values v < v', v' receives a bound on everything above v:
  Chernoff's exp(-n KL(a || p)) for more than n a successes in n trials, which
  holds for a hypergeometric number too (Hoeffding, 1963, theorems 1 and 4).
  """
  values, probs = list(counts.values), list(counts.probs)
  while values[-1] < high:
    share = (int(values[-1]) + 1) / trials
    exponent = share * math.log(share / rate)
    if share < 1:
      exponent += (1 - share) * (
          math.log1p(-share) - math.log1p(-rate)
      )
    probs.append(max(math.exp(-min(trials * exponent, 800.0)), _TINY))
    values.append(min(2 * int(values[-1]) + 1, high))
  return Counts(np.asarray(values, np.int64), np.asarray(probs))


@functools.lru_cache(maxsize=4096)
def binomial(n: int, rate: float) -> Counts:
  """Compute Binomial(n, rate)."""
  if rate >= 1 or n == 0:
    return constant(n)
  if rate <= 0:
    return constant(0)
  low, high = _window(0, n, n * rate)
  i = np.arange(low, high, dtype=float)
  odds = math.log(rate) - math.log1p(-rate)
  found = _from_ratios(low, np.log((n - i) / (i + 1)) + odds)
  return _with_tail(found, n, n, rate) if high < n else found


def hypergeometric(population: int, marked: int, drawn: int) -> Counts:
  """Compute the number of `marked` units among `drawn` of the population."""
  least, most = max(0, marked + drawn - population), min(marked, drawn)
  low, high = _window(least, most, marked * drawn / population)
  i = np.arange(low, high, dtype=float)
  ratios = (marked - i) * (drawn - i) / (i + 1)
  found = _from_ratios(
      low, np.log(ratios / (population - marked - drawn + i + 1))
  )
  rate = max(marked, drawn) / population
  return _with_tail(found, most, most, rate) if high < most else found


def thinned(counts: Counts, rate: float) -> Counts:
  """Thin a random number: each one is kept with probability `rate`."""
  return mixed([
      (float(weight), binomial(int(value), rate))
      for value, weight in zip(*counts, strict=True)
  ])


def mixed(parts: list[tuple[float, Counts]]) -> Counts:
  """Return the mixture of distributions with these probabilities."""
  values = np.unique(np.concatenate([part.values for _, part in parts]))
  probs = np.zeros(values.size)
  for weight, part in parts:
    probs[np.searchsorted(values, part.values)] += weight * part.probs
  return _made(values, probs)


def added(first: Counts, second: Counts) -> Counts:
  """Compute the sum of two independent numbers."""
  first, second = (coarser(c, _LONGEST_SUM) for c in (first, second))
  if second.values.size > first.values.size:
    first, second = second, first
  if second.values.size == 1:
    return Counts(first.values + second.values[0], first.probs)
  low = int(first.values[0] + second.values[0])
  span = first.most + second.most - low + 1
  if span <= 4 * _LONGEST_SUM:
    probs = np.convolve(_dense(first), _dense(second))
    return _made(low + np.arange(span), probs)
  few = [coarser(c, 512) for c in (first, second)]
  sums = np.add.outer(few[0].values, few[1].values).ravel()
  values, where = np.unique(sums, return_inverse=True)
  chances = np.multiply.outer(few[0].probs, few[1].probs).ravel()
  return _made(values, np.bincount(where.ravel(), weights=chances))


def _dense(counts: Counts) -> np.ndarray:
  """Compute the probabilities of every value from the first to the last."""
  return np.bincount(counts.values - counts.values[0], counts.probs)


def times(counts: Counts, n: int) -> Counts:
  """Compute the sum of n independent copies, by repeated squares."""
  result, square = constant(0), counts
  while n:
    if n % 2:
      result = added(result, square)
    n //= 2
    if n:
      square = added(square, square)
  return result


def chosen(counts: Counts, n: int, rate: float) -> Counts:
  """Sum the copies that are sampled out of n, each with this rate."""
  if counts.most == 0:  # Otherwise each sampled number would be another value.
    return constant(0)
  if counts.values.size == 1:
    number, probs = binomial(n, rate)
    return Counts(number * counts.values[0], probs)
  if rate < 1:
    counts = mixed([(1 - rate, constant(0)), (rate, counts)])
  return times(counts, n)


def larger(first: Counts, second: Counts) -> Counts:
  """Compute the smallest number that is stochastically larger than both."""
  values = np.union1d(first.values, second.values)
  above = np.zeros(values.size)  # P(number >= value)
  for part in (first, second):
    tail = np.append(from_above(part.probs), 0.0)
    at = np.searchsorted(part.values, values)
    above = np.maximum(above, tail[at])
  return _made(values, np.maximum(above - np.append(above[1:], 0.0), 0.0))


def raised(counts: Counts, chance: float) -> Counts:
  """Move probability from the smallest values to the largest.

  The result is stochastically larger than every number up to the largest value
  whose distribution is within `chance` of this one in total variation.
  """
  if chance == 0:
    return counts
  probs = counts.probs.copy()
  probs -= np.diff(np.minimum(np.cumsum(probs), chance), prepend=0.0)
  probs[-1] += chance
  return _made(counts.values, probs)


def _rounded_up(counts: Counts, kept: np.ndarray) -> Counts:
  """Move every value up to the next kept one (bool[n]); the last is kept."""
  places = np.searchsorted(np.flatnonzero(kept), np.arange(kept.size))
  return Counts(
      counts.values[kept], np.bincount(places, weights=counts.probs)
  )


def coarser(counts: Counts, limit: int) -> Counts:
  """Round up to about `limit` values at most.

  Most of the limit goes to likely values; unlikely values on either side are
  rounded up more.
  """
  values, probs = counts
  if values.size <= limit:
    return counts
  below = int((np.cumsum(probs) < _OUTSIDE).sum())
  above = int((from_above(probs) < _OUTSIDE).sum())
  ends = (0, below, values.size - above, values.size)
  kept = np.zeros(values.size, bool)
  for (start, stop), share in zip(
      itertools.pairwise(ends), (0.1, 0.7, 0.2), strict=True
  ):
    width = -(-(stop - start) // max(int(limit * share), 1))
    kept[start:stop][::-1][:: max(width, 1)] = True
  return _rounded_up(counts, kept)


def by_chance(counts: Counts, limit: int) -> Counts:
  """Round up to at most `limit` values of about equal probability.

  Values in between are rounded up.
  """
  size = counts.values.size
  if size <= limit:
    return counts
  above = from_above(counts.probs)
  tails = max(limit // 3, 1)
  even = np.arange(1, limit - tails) / (limit - tails)
  left = np.concatenate([1 - even, 10.0 ** -np.arange(2, 2 * tails, 2), [0.0]])
  # The largest value with at least this probability at or above it.
  at = np.unique([max(int((above > chance).sum()) - 1, 0) for chance in left])
  kept = np.zeros(size, bool)
  kept[at] = kept[-1] = True
  return _rounded_up(counts, kept)


def without_tail(counts: Counts, chance: float = _NEGLIGIBLE) -> Counts:
  """Round unlikely large values up to values that double."""
  values = counts.values
  above = from_above(counts.probs)
  first = max(int((above >= chance).sum()), 1)
  ladder = values[first - 1] * 2 ** np.arange(1, 64, dtype=float)
  at = np.unique(np.minimum(np.searchsorted(values, ladder), values.size - 1))
  kept = np.zeros(values.size, bool)
  kept[:first] = kept[at] = kept[-1] = True
  return _rounded_up(counts, kept)
