"""Batches of a release for PyTorch: what a `DataLoader` takes.

A loader asks its `batch_sampler` for nothing but lists of rows and their
number, so that this module imports neither PyTorch nor JAX.
"""

from collections.abc import Iterator

import numpy as np

from episodic_dp.plan import release as release_lib
from episodic_dp.sampling import numpy_sampler


class BatchSampler:
  """The rows that each step of a run draws, step after step.

  Give it to `torch.utils.data.DataLoader(batch_sampler=...)`, or iterate over
  it. A batch has the rows of all tasks of a step, way by way, shot + query of
  each: reshape what they select to [tasks, way, shot + query, ...]. Without an
  episode it has the rows of the examples. A batch may be empty, and is a step
  all the same: its noise is released too. A loader needs a `collate_fn` that
  takes an empty list for that.

  Attributes:
    release: what is sampled, and how.
    steps: of the whole run.
    first_step: the steps that were taken before; a run that is resumed goes on
      with the same samples.
  """

  def __init__(
      self,
      release: release_lib.Release,
      *,
      key: bytes,
      steps: int,
      first_step: int = 0,
  ):
    """Draws nothing yet, but one step where something is wrong with the plan.

    Args:
      release: what is sampled, and how.
      key: of `numpy_sampler.secret_key`; of this run alone.
      steps: of the whole run.
      first_step: the steps that were taken before.

    Raises:
      ValueError: a key that is none, or numbers of steps out of range.
      PlanError: the plan does not fit the hierarchy.
    """
    for name, value, least in (
        ("steps", steps, 1), ("first_step", first_step, 0)
    ):
      whole = isinstance(value, (int, np.integer))
      if not whole or isinstance(value, bool) or value < least:
        raise ValueError(
            f"{name}={value!r} must be a whole number of at least {least}"
        )
    self.release = release
    self.steps = int(steps)
    self.first_step = int(first_step)
    self._key = key
    self._rows(self.first_step)

  def __len__(self) -> int:
    return max(self.steps - self.first_step, 0)

  def __iter__(self) -> Iterator[list[int]]:
    for step in range(self.first_step, self.steps):
      yield self._rows(step)

  def _rows(self, step: int) -> list[int]:
    return (
        numpy_sampler.task_rows(self._key, self.release, step).ravel().tolist()
    )
