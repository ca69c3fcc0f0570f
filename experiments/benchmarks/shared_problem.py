"""What programs of other libraries are given to add up, as arrays of NumPy."""

from typing import Any, NamedTuple

import numpy as np

Examples = tuple[np.ndarray, np.ndarray]  # Images and labels.


class Problem(NamedTuple):
  """Tasks whose clipped gradients are added up; arrays of NumPy.

  Attributes:
    learner: "protonet", "ridge" or "supervised".
    params: a nested dict of arrays, as the JAX learner has them.
    support: (images [tasks, n, H, W, C], labels [tasks, n]); n is 0 without
      episodes.
    query: likewise; n is 1 without episodes.
    clip: the clip norm.
    dtype: in which to compute.
  """

  learner: str
  params: Any
  support: Examples
  query: Examples
  clip: float
  dtype: str = "float32"

  def part(self, first: int, step: int) -> "Problem":
    """Every so many-th of the tasks."""

    def of(examples: Examples) -> Examples:
      images, labels = examples
      return images[first::step], labels[first::step]

    return self._replace(support=of(self.support), query=of(self.query))
