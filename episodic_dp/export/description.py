"""What model.json says: network, learner, preprocessing, and which weights.

All of it is plain data. Reading it executes nothing: names are looked up among
the networks and learners of the library.
"""

import dataclasses
import json
import re
from typing import Any, Literal

from episodic_dp import errors
from episodic_dp import options
from episodic_dp import plain

FORMAT = 1
Background = Literal["light", "dark"]
START = "start.safetensors"
_WEIGHTS = re.compile(r"weights(_\d)?\.safetensors")
# Sizes above these are no mistake of rounding: nothing was trained with them.
_LONGEST_SIDE, _MOST_STEPS, _WIDEST = 4096, 1000, 65536


@dataclasses.dataclass(frozen=True, kw_only=True)
class Preprocessing:
  """From an example to what the network sees; see `preprocessing`.

  Attributes:
    kind: images are brought to `shape`; features have it.
    shape: (height, width, channels), (time, channels) or (features,).
    dtype: of a row before it is divided.
    divide_by: what a row is divided by: 255 for uint8.
    resample: how images are brought to another size.
    inverted: whether images are turned from light to dark first.
    background: of the data's public images, where all look alike.
    offset: taken away from float32 values; then
    scale: they are divided by it; and then
    clip: the least and the largest value that is kept.
  """

  kind: Literal["image", "features"]
  shape: tuple[int, ...]
  dtype: Literal["uint8", "float32"]
  divide_by: float
  resample: Literal["bilinear", "nearest"]
  inverted: bool
  background: Background | None
  offset: tuple[float, ...] | None
  scale: tuple[float, ...] | None
  clip: tuple[float, ...] | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Task:
  """The tasks that it was trained for, and measured on: `shot` of the tests."""

  way: int
  shot: int
  query: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Array:
  """An array of the weights, which are float32."""

  name: str
  shape: tuple[int, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Description:
  """model.json.

  Attributes:
    format: `FORMAT`.
    library: what wrote it.
    network: of the library.
    learner: likewise.
    fine_tuning: of a supervised network, else None.
    preprocessing: of every example.
    task: what it was trained for.
    checkpoint: which of the run's: the last, the best on public validation
      tasks, or up to five of the best, whose probabilities are averaged.
    steps: of training, of each checkpoint.
    weights: the file of each checkpoint.
    start: the file of the public weights that stayed as they were, or None.
    arrays: of the weights, each file the same.
  """

  format: int
  library: str
  network: options.Network
  learner: options.Learner
  fine_tuning: options.FineTuning | None
  preprocessing: Preprocessing
  task: Task
  checkpoint: Literal["last", "best", "ensemble"]
  steps: tuple[int, ...]
  weights: tuple[str, ...]
  start: str | None
  arrays: tuple[Array, ...]

  @property
  def files(self) -> tuple[str, ...]:
    """The files of weights that it names."""
    return (*self.weights, *([self.start] if self.start else []))

  @property
  def parameters(self) -> int:
    """How many numbers were trained."""
    total = 0
    for array in self.arrays:
      size = 1
      for side in array.shape:
        size *= side
      total += size
    return total


def to_json(description: Description) -> dict[str, Any]:
  """Plain data for JSON; `from_json` reads it."""
  result: dict[str, Any] = plain.to_plain(description)
  return result


def from_json(content: bytes, name: str) -> Description:
  """Reads and checks what `to_json` gave.

  Args:
    content: of the file.
    name: of it, for messages.

  Raises:
    RunError: it is damaged, or of another version; one sentence.
  """
  try:
    data = json.loads(content)
  except (ValueError, RecursionError) as e:
    raise errors.RunError(
        f"{name} is not JSON ({str(e)[:80]}): export the run again"
    ) from e
  found = data.get("format") if isinstance(data, dict) else None
  if found != FORMAT:
    raise errors.RunError(
        f"{name} is of format {found!r} and this version reads {FORMAT}: load"
        " it with the version that wrote it, or export the run again"
    )
  try:
    result = plain.from_plain(Description, data, name="model")
    _check(result)
  except ValueError as e:
    raise errors.RunError(f"{name}: {e}") from e
  return result


def _check(found: Description) -> None:
  """ValueError for values that no run has."""
  network, learner, how = found.network, found.learner, found.preprocessing
  names = [*found.weights, *([found.start] if found.start else [])]
  ranges = (
      ("shape", how.shape, 1, _LONGEST_SIDE),
      ("widths", network.widths, 1, _WIDEST),
      ("width", (network.width,), 1, _WIDEST),
      ("rank", (network.rank,), 1, _WIDEST),
      ("outputs", (network.outputs or 1,), 1, _WIDEST),
      ("inner_steps", (learner.inner_steps,), 1, _MOST_STEPS),
      ("way", (found.task.way,), 2, _WIDEST),
      ("shot", (found.task.shot,), 1, _WIDEST),
  )
  for name, values, least, most in ranges:
    if not all(least <= value <= most for value in values):
      raise ValueError(
          f"the model's {name} is {list(values)}, which no run has: export the"
          " run again"
      )
  wrong = [x for x in names if x != START and not _WEIGHTS.fullmatch(x)]
  if wrong or len(set(names)) < len(names) or not found.weights:
    raise ValueError(
        f"the model names the weights {names}: export the run again"
    )
  if len(found.steps) != len(found.weights):
    raise ValueError(
        f"the model has {len(found.weights)} files of weights and steps"
        f" {list(found.steps)}: export the run again"
    )
  if (learner.name == "supervised") != (found.fine_tuning is not None):
    raise ValueError(
        f"the model's fine_tuning does not go with {learner.name}: export the"
        " run again"
    )
  if how.divide_by != (255 if how.dtype == "uint8" else 1):
    raise ValueError(
        f"the model divides {how.dtype} by {how.divide_by:g}, which no run"
        " does: export the run again"
    )
