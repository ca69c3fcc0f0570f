"""Pairs of outputs on a line, and their losses with every rounding downwards.

A pair is what one step releases with and without a unit, for one fixed data
set: two mixtures of Gaussians of variance 1 on a line. For measures P and Q

  H_alpha(P || Q) = sup over events of P - alpha Q

does not fall when P grows or Q falls, and neither does that of a product; it
does not rise when outcomes are merged. So outcomes are merged into the cells of
a grid, masses of P are rounded down and those of Q up, and what is left gives
no more than the truth, alone and composed.
"""

from typing import Literal, NamedTuple

import numpy as np
from scipy import special

from episodic_dp.accounting.lower_bounds import laws

Direction = Literal["remove", "add"]
DIRECTIONS: tuple[Direction, Direction] = ("remove", "add")

# Above the relative rounding error of a cell's mass.
ROUNDING = 5e-12
# Larger losses are lowered to it, and smaller masses left out.
_LARGEST_LOSS, _SMALLEST = 650.0, 1e-300
# Where normal distribution functions underflow.
_FARTHEST = 37.0
# Components times cells that are worth computing.
_MOST_WORK = 1 << 22
# Components of less weight are left out.
_SLIGHT = 1e-24


class Losses(NamedTuple):
  """A distribution of the loss ln P/Q under P, perhaps less than all of it.

  Attributes:
    losses: float64[n].
    probs: float64[n], of P; that of Q is at most exp(-loss) times as much.
    lost: in total variation, how far P and Q may be from the true ones beyond
      what rounding downwards covers.
  """

  losses: np.ndarray
  probs: np.ndarray
  lost: float


class Pair(NamedTuple):
  """Two mixtures of Gaussians of variance 1 on a line, of the same components.

  Attributes:
    means: float64[n], in standard deviations of the noise.
    larger: float64[n], weights with the unit.
    smaller: float64[n], weights without it (or with another in its place).
    lost: the weights that were left out, at most.
  """

  means: np.ndarray
  larger: np.ndarray
  smaller: np.ndarray
  lost: float

  @property
  def distance(self) -> float | None:
    """That of two single Gaussians; None for proper mixtures."""
    if (self.larger > 0).sum() != 1 or (self.smaller > 0).sum() != 1:
      return None
    ends = self.means[self.larger > 0] - self.means[self.smaller > 0]
    return abs(float(ends[0]))

  @property
  def key(self) -> bytes:
    """What tells it from other data sets; moving both changes nothing."""
    return b"".join(
        np.round(a, 12).tobytes()
        for a in (self.means - self.means[0], self.larger, self.smaller)
    )

  def losses(
      self, direction: Direction, tail: float, points: int
  ) -> Losses:
    """The loss of one step on a grid of cells.

    Args:
      direction: "remove" for the loss of `larger` against `smaller`.
      tail: the probability that the grid may leave out.
      points: cells over the components' reach, about.
    """
    first, second = self.larger, self.smaller
    if direction == "add":
      first, second = second, first
    edges = _edges(self.means[first > 0], tail, points)
    p = _masses(self.means, first, edges) * (1 - ROUNDING)
    q = _masses(self.means, second, edges) * (1 + ROUNDING)
    some = p > _SMALLEST
    p, q = p[some], q[some]
    with np.errstate(divide="ignore"):
      losses = np.log(p) - np.log(q)
    return Losses(np.minimum(losses, _LARGEST_LOSS), p, self.lost)


def pair_of(larger: laws.Law, smaller: laws.Law, spacing: float) -> Pair:
  """The pair of two laws of a whole number times `spacing` deviations."""
  first = min(larger.first, smaller.first)
  last = max(law.first + law.probs.size for law in (larger, smaller))
  weights = np.zeros((2, last - first))
  for row, law in zip(weights, (larger, smaller)):
    at = law.first - first
    row[at : at + law.probs.size] += law.probs
  some = weights.max(axis=0) > _SLIGHT
  return Pair(
      (first + np.flatnonzero(some)) * spacing,
      weights[0, some],
      weights[1, some],
      max(larger.lost, smaller.lost) + float(weights[:, ~some].sum()),
  )


def differs(pair: Pair) -> bool:
  """Whether the two outputs differ by more than rounding."""
  return bool(np.abs(pair.larger - pair.smaller).sum() > 1e-14)


def _edges(means: np.ndarray, tail: float, points: int) -> np.ndarray:
  """Of the cells: all that is within a reach of a component."""
  reach = -float(special.ndtri(max(tail / 2, 1e-300)))
  reach = min(max(reach, 1.0), _FARTHEST)
  points = max(min(points, _MOST_WORK // means.size), 64)
  span = float(means.max() - means.min()) + 2 * reach
  apart = 2 * reach * means.size
  if span <= 2 * apart:
    return np.linspace(means.min() - reach, means.max() + reach, points + 1)
  around = np.linspace(-reach, reach, max(points // means.size, 64))
  return np.unique((means[:, None] + around).ravel())


def _masses(
    means: np.ndarray, weights: np.ndarray, edges: np.ndarray
) -> np.ndarray:
  """float64[cells]: the mixture's probability of every cell."""
  total = np.zeros(edges.size - 1)
  for mean, weight in zip(means, weights):
    if weight <= 0:
      continue
    x = edges - mean
    outside = special.ndtr(-np.abs(x))
    same = (x[1:] <= 0) | (x[:-1] >= 0)
    total += weight * np.where(
        same,
        np.abs(outside[1:] - outside[:-1]),
        1 - outside[1:] - outside[:-1],
    )
  return total
