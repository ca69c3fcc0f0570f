"""Exact binomial counts: the table that the sampler inverts.

A Poisson stage draws K ~ Binomial(N, p) children. Here the distribution
function is computed with whole numbers (no rounding that matters), scaled to
2^128 and cut where the remaining tail is below 2^-90, so that a count drawn by
inverting it with 128 random bits differs from the true one by less than
`error` in total variation. The sampler reads the table, the accountant charges
its error (`sampler_error`).
"""

import dataclasses
import fractions
import functools
import math

import numpy as np

BITS = 128
WORDS = BITS // 32
TAIL_BITS = 90
_FRACTION_BITS = 256
# One uniform number below n < 2^31 from 128 bits is off by at most n / 2^128 in
# total variation, and each of its values by at most that share.
UNIFORM_ERROR = 2.0 ** (31 - BITS)


@dataclasses.dataclass(frozen=True, eq=False)
class BinomialTable:
  """Thresholds of the distribution function of Binomial(n, p).

  Attributes:
    first: the smallest count of the table.
    thresholds: uint32[entries, 4], most significant word first, rising; a
      number u of 128 random bits draws the count
      `first + (how many thresholds are <= u)`.
    capacity: the largest count that can be drawn, first + entries.
    error: total variation from the true binomial, tails and rounding included.
    upper: the true probability of `capacity` or more, where more was cut off.
    lower: that of `first` or fewer, where fewer were cut off.
  """

  first: int
  thresholds: np.ndarray
  capacity: int
  error: float
  upper: float = 0.0
  lower: float = 0.0


@functools.lru_cache(maxsize=4096)
def binomial_table(n: int, p: float) -> BinomialTable:
  """Tabulate Binomial(n, p), with p a float taken at its exact value.

  Weights are scaled to 2^256 at the mode and follow the recurrence
  w(k+1) = w(k) (n-k) p / ((k+1) (1-p)) away from it, where each division loses
  less than one unit; the products of ratios are below one, so that losses do
  not grow: over at most 2^20 entries a cumulated weight is off by less than
  2^-216 of the total.
  """
  if p >= 1 or n == 0:
    return BinomialTable(n, np.zeros((0, WORDS), np.uint32), n, 0.0)
  exact = fractions.Fraction(p)
  up, down = exact.numerator, exact.denominator - exact.numerator
  mode = min(n, int((n + 1) * exact))
  above, k, w = [], mode, 1 << _FRACTION_BITS
  while k < n and w:
    w = w * (n - k) * up // ((k + 1) * down)
    k += 1
    above.append(w)
  below, k, w = [], mode, 1 << _FRACTION_BITS
  while k > 0 and w:
    w = w * k * down // ((n - k + 1) * up)
    k -= 1
    below.append(w)
  weights = [*reversed(below), 1 << _FRACTION_BITS, *above]
  first = mode - len(below)
  total = sum(weights)
  limit = total >> TAIL_BITS
  low, cut_low = 0, 0
  while cut_low + weights[low] <= limit:
    cut_low += weights[low]
    low += 1
  high, cut_high = len(weights) - 1, 0
  while cut_high + weights[high] <= limit:
    cut_high += weights[high]
    high -= 1
  sums, acc = [], cut_low
  for weight in weights[low:high]:
    acc += weight
    sums.append((acc << BITS) // total)
  words = np.asarray(
      [[(s >> (32 * i)) & 0xFFFFFFFF for i in (3, 2, 1, 0)] for s in sums],
      np.uint32,
  ).reshape(-1, WORDS)
  error = float(
      fractions.Fraction(cut_low + cut_high, total)
      + fractions.Fraction(len(weights), 1 << BITS)
  )
  return BinomialTable(
      first + low,
      words,
      first + high,
      error,
      upper=(
          _share(cut_high + weights[high], total) if first + high < n else 0.0
      ),
      lower=_share(cut_low + weights[low], total) if first + low > 0 else 0.0,
  )


def _share(weight: int, total: int) -> float:
  """Divide a weight by the total, rounded up."""
  return math.nextafter(float(fractions.Fraction(weight, total)), math.inf)
