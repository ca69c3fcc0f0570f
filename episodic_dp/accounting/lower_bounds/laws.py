"""Laws of whole numbers: how many clip units of one sign a step draws.

Everything here is a sum of products of positive numbers, right to a few units
in the last place. What is cut off is counted in `lost`.
"""

from collections.abc import Iterable
import math
from typing import NamedTuple

import numpy as np

# Probability that a law may leave out at an end.
_TAIL = 1e-26
# Wider laws than this are not computed: another data set must do.
MOST = 1 << 12


class TooWideError(Exception):
  """A law has more values than are worth computing."""


class Law(NamedTuple):
  """A distribution on first, first + 1, ...

  Attributes:
    first: the smallest value.
    probs: float64[n].
    lost: the probability that was left out, at most.
  """

  first: int
  probs: np.ndarray
  lost: float = 0.0

  @property
  def sure(self) -> int | None:
    """The value, where there is only one."""
    return self.first if self.probs.size == 1 else None


def point(value: int) -> Law:
  """The law of a constant."""
  return Law(value, np.ones(1))


def mix(parts: Iterable[tuple[float, Law]]) -> Law:
  """The law that is each of some laws with a given probability."""
  some = [(w, law) for w, law in parts if w > 0]
  first = min(law.first for _, law in some)
  last = max(law.first + law.probs.size for _, law in some)
  _check_width(last - first)
  probs = np.zeros(last - first)
  for weight, law in some:
    at = law.first - first
    probs[at : at + law.probs.size] += weight * law.probs
  return Law(first, probs, sum(w * law.lost for w, law in some))


def add(a: Law, b: Law) -> Law:
  """The law of a sum of independent numbers."""
  _check_width(a.probs.size + b.probs.size)
  return _trimmed(
      Law(a.first + b.first, np.convolve(a.probs, b.probs), a.lost + b.lost)
  )


def times(law: Law, factor: int) -> Law:
  """The law of factor times a number."""
  if not factor:
    return point(0)
  _check_width(abs(factor) * law.probs.size)
  probs = np.zeros((law.probs.size - 1) * abs(factor) + 1)
  probs[:: abs(factor)] = law.probs
  first = law.first * factor
  if factor < 0:
    return Law(first - probs.size + 1, probs[::-1], law.lost)
  return Law(first, probs, law.lost)


def power(law: Law, count: int) -> Law:
  """The law of the sum of `count` independent numbers of one law."""
  if law.sure is not None:
    return Law(law.first * count, np.ones(1), count * law.lost)
  if law.probs.size == 2:
    return _binomial(law, count)
  result, square = point(0), law
  while count:
    if count % 2:
      result = add(result, square)
    count //= 2
    if count:
      square = add(square, square)
  return result


def coin(probability: float) -> Law:
  """1 with a probability, else 0."""
  if probability in (0, 1):
    return point(int(probability))
  return Law(0, np.asarray([1 - probability, probability]))


def thinned(law: Law, probability: float) -> Law:
  """A number with a probability, else 0."""
  return mix(((1 - probability, point(0)), (probability, law)))


def _binomial(law: Law, count: int) -> Law:
  """`power` of a law with two neighbouring values."""
  # Lazy import: half of what it takes to import the accountant.
  from scipy import stats

  total = float(law.probs.sum())
  p = float(law.probs[1]) / total
  low = max(int(stats.binom.ppf(_TAIL, count, p)) - 1, 0)
  high = min(int(stats.binom.isf(_TAIL, count, p)) + 1, count)
  _check_width(high - low)
  probs = stats.binom.pmf(np.arange(low, high + 1), count, p)
  # Its logarithms of factorials leave some digits: what follows is about one
  # distribution, whose masses add up to 1.
  probs = probs / math.fsum(probs)
  lost = 2 * _TAIL + count * law.lost
  return Law(law.first * count + low, probs, lost)


def _trimmed(law: Law) -> Law:
  """Without ends that are next to nothing."""
  below = np.cumsum(law.probs)
  above = np.cumsum(law.probs[::-1])
  low = int(np.searchsorted(below, _TAIL))
  high = law.probs.size - int(np.searchsorted(above, _TAIL))
  if low == 0 and high == law.probs.size:
    return law
  return Law(law.first + low, law.probs[low:high], law.lost + 2 * _TAIL)


def _check_width(width: int) -> None:
  if width > MOST:
    raise TooWideError
