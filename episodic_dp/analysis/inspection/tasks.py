"""Tasks as arrays: what `episodes` draws and the page shows."""

import dataclasses

import numpy as np


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class TaskImages:
  """One task, its classes in the order of their labels.

  Attributes:
    support: uint8[way, shot, H, W, C]; row i has the label i.
    query: uint8[way, query, H, W, C].
  """

  support: np.ndarray
  query: np.ndarray


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class TaskSheet:
  """What the contact sheet shows.

  Attributes:
    tasks: the first tasks of the step.
    source: the name and the description of the images' data set.
    how: a sentence on how they were drawn.
    private: whether they are private training images.
  """

  tasks: tuple[TaskImages, ...]
  source: str
  how: str
  private: bool
