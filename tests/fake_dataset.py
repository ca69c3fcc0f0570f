"""A data set of any arrays, checked by nothing, for tests of what reads it."""

import dataclasses

import numpy as np

from episodic_dp import plan
from episodic_dp.data import dataset


@dataclasses.dataclass(kw_only=True, eq=False)
class FakeDataset:
  """The attributes of `data.Dataset`, which tests may change or spoil."""

  images: np.ndarray
  hierarchy: plan.Hierarchy
  name: str = "fake"
  rows: dataset.Rows = dataset.identity
  rotate: bool = False
  targets: int = 0
  labels: np.ndarray | None = None
  resident: bool = True

  @property
  def image_shape(self) -> tuple[int, int, int]:
    """(height, width, channels) of what a model sees."""
    height, width, channels = self.images.shape[1:]
    return height, width, channels - self.targets
