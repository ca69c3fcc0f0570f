"""The average of profiles over something that may be taken as known.

By joint convexity the divergence of a mixture is at most the average of the
divergences of its parts, where both outputs are mixed by the same chances.
"""

import dataclasses
from typing import Any

import numpy as np

from episodic_dp.accounting.profiles import amplification
from episodic_dp.accounting.profiles import random_count
from episodic_dp.accounting.profiles.amplification import Direction

Part = amplification.Amplification | random_count.RandomCount


@dataclasses.dataclass(frozen=True)
class Averaged:
  """Kinds of units, one of which a unit is of in each step, by chance.

  Attributes:
    parts: pairs (chance, kind), from the one that costs least to the one that
      costs most; the chances add up to 1.
  """

  parts: tuple[tuple[float, Part], ...]

  @property
  def at_most(self) -> amplification.Amplification:
    """The unit if it always were of the kind that costs most."""
    most = self.parts[-1][1]
    if isinstance(most, random_count.RandomCount):
      return most.at_most
    return most

  @property
  def tail(self) -> tuple[float, float]:
    """Of the part that costs most: never less than the others'."""
    return self.parts[-1][1].tail

  def as_dict(self) -> dict[str, Any]:
    """Plain data for statements."""
    return {
        **self.parts[-1][1].as_dict(),
        "kind": "average",
        "parts": [
            {"chance": chance, "outer_distances": list(kind.outer_distances)}
            for chance, kind in self.parts
        ],
    }

  def divergence(
      self, log_alpha: np.ndarray, direction: Direction
  ) -> np.ndarray:
    """H_alpha in the direction, for alpha >= 1, float64[n]."""
    log_alpha = np.asarray(log_alpha, float)
    value = np.zeros_like(log_alpha)
    for chance, kind in self.parts:
      if chance > 0:
        value += chance * kind.divergence(log_alpha, direction)
    return value
