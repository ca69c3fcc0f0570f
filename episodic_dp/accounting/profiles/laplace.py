"""The Laplace mechanism, once, as a profile of its own.

Let f have l1 sensitivity D and let Laplace noise of scale b be added to each
coordinate, d = D / b. Move the centre along a path of l1 length d, at speed 1:
for every set S the probability P_t(S) changes at a rate of at most
min(P_t(S), 1 - P_t(S)), for the density changes at a relative rate of at most
1. In one dimension and for half lines this is an equality, so that whatever the
number of coordinates, Lap(d) against Lap(0) on a line dominates:

  H_alpha = 1 - e^((ln(alpha) - d) / 2)  for ln(alpha) < d, and 0 beyond,

in both directions alike, with the Renyi divergences of Mironov, "Renyi
Differential Privacy" (CSF 2017), table II.
"""

import dataclasses
from typing import Any

import numpy as np

from episodic_dp.accounting.profiles.amplification import Direction


@dataclasses.dataclass(frozen=True)
class Laplace:
  """Laplace noise on a sum that moves by at most a distance.

  Attributes:
    distance: l1 sensitivity over the noise's scale, above 0.
  """

  distance: float

  @property
  def tail(self) -> None:
    """None: the moments have a closed form, and no Gaussian is needed."""

  def as_dict(self) -> dict[str, Any]:
    """Plain data for statements."""
    return {"kind": "laplace", "own_distance": self.distance}

  def divergence(
      self, log_alpha: np.ndarray, direction: Direction
  ) -> np.ndarray:
    """H_alpha, float64[n], exact, convex in alpha >= 1."""
    del direction  # Alike in both.
    gap = np.minimum((np.asarray(log_alpha, float) - self.distance) / 2, 0.0)
    return -np.expm1(gap)

  def log_moments(
      self, direction: Direction, orders: tuple[float, ...]
  ) -> np.ndarray:
    """ln E_Q (P/Q)^order, float64[orders], for orders above 1."""
    del direction
    order, d = np.asarray(orders, float), self.distance
    first = np.log(order / (2 * order - 1)) + (order - 1) * d
    second = np.log((order - 1) / (2 * order - 1)) - order * d
    return np.maximum(np.logaddexp(first, second), 0.0)
