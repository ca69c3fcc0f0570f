"""Distributions of whole numbers, with what was cut off their upper end."""

import functools
import math
from typing import NamedTuple

import numpy as np

# Supports up to this size are kept whole; longer ones lose what is less
# probable than e^-92 < 1.2e-40 (Bernstein's inequality) at an end.
WHOLE = 32
_EXPONENT = 92.0
_NEGLIGIBLE = math.exp(-_EXPONENT)
# More values than these are rounded up to a coarser lattice by `grouped`.
MAX_GROUPS = 96


class Counts(NamedTuple):
  """A distribution of whole numbers.

  Attributes:
    first: the smallest value.
    probs: float64[n] of first, first + 1, ...
    cut: an upper bound on the probability of larger values.
  """

  first: int
  probs: np.ndarray
  cut: float


def _window(low: int, high: int, mean: float) -> tuple[int, int, float]:
  """The part of a support that is kept, and what may lie above it.

  Bernstein's inequality: a sum of independent coins deviates from its mean m by
  t with probability at most exp(-t^2 / (2 (m + t / 3))), at either end; so does
  a hypergeometric number (Hoeffding, "Probability Inequalities for Sums of
  Bounded Random Variables", 1963, section 6).
  """
  if high - low <= WHOLE:
    return low, high, 0.0
  third = _EXPONENT / 3
  t = third + math.sqrt(third**2 + 2 * _EXPONENT * mean)
  last = min(high, math.ceil(mean + t))
  return (
      max(low, math.floor(mean - t)), last, _NEGLIGIBLE if last < high else 0.0
  )


def _from_ratios(first: int, log_ratios: np.ndarray, cut: float) -> Counts:
  """From ln P(i + 1) / P(i). What lies below `first` is spread over the rest.

  That changes each probability by less than its rounding error.
  """
  logs = np.concatenate([np.zeros(1), np.cumsum(log_ratios)])
  probs = np.exp(logs - logs.max())
  return Counts(first, probs / probs.sum(), cut)


@functools.lru_cache(maxsize=4096)
def binomial(n: int, rate: float) -> Counts:
  """Binomial(n, rate)."""
  if rate >= 1 or n == 0:
    return Counts(n, np.ones(1), 0.0)
  if rate <= 0:
    return Counts(0, np.ones(1), 0.0)
  low, high, cut = _window(0, n, n * rate)
  i = np.arange(low, high, dtype=float)
  odds = math.log(rate) - math.log1p(-rate)
  return _from_ratios(low, np.log((n - i) / (i + 1)) + odds, cut)


def hypergeometric(population: int, marked: int, drawn: int) -> Counts:
  """How many of `marked` units are among `drawn` of the population."""
  low, high, cut = _window(
      max(0, marked + drawn - population),
      min(marked, drawn),
      marked * drawn / population,
  )
  i = np.arange(low, high, dtype=float)
  ratios = (marked - i) * (drawn - i) / (i + 1)
  return _from_ratios(
      low, np.log(ratios / (population - marked - drawn + i + 1)), cut
  )


def thinned(counts: Counts, rate: float) -> Counts:
  """The number kept, each with probability `rate`, of a random number."""
  last = counts.first + counts.probs.size - 1
  probs = np.zeros(last + 1)
  cut = counts.cut
  for i, weight in enumerate(counts.probs):
    part = binomial(counts.first + i, rate)
    probs[part.first : part.first + part.probs.size] += weight * part.probs
    cut += float(weight) * part.cut
  some = np.flatnonzero(probs)
  return Counts(int(some[0]), probs[some[0] : some[-1] + 1], cut)


def grouped(counts: Counts) -> list[tuple[int, float]]:
  """(j, probability) for j > 0, at most `MAX_GROUPS`; more are rounded up."""
  last = counts.first + counts.probs.size - 1
  width = -(-counts.probs.size // MAX_GROUPS)
  groups: dict[int, float] = {}
  for i, weight in enumerate(counts.probs):
    j = last - width * ((last - counts.first - i) // width)
    groups[j] = groups.get(j, 0.0) + float(weight)
  return [(j, w) for j, w in groups.items() if j > 0 and w > 0]


def trimmed(counts: Counts) -> Counts:
  """Without the largest values, as far as they are negligible together."""
  if counts.cut == 0:
    return counts
  # Bernstein's window is wide: cut where as little is left by the true sizes.
  above = np.cumsum(counts.probs[::-1])[::-1]
  kept = max(int((above > _NEGLIGIBLE).sum()), 1)
  lost = float(above[kept]) if kept < above.size else 0.0
  return Counts(counts.first, counts.probs[:kept], counts.cut + lost)
