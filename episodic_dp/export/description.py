"""Describe an exported model: network, learner, preprocessing, weights.

All of it is plain data in model.json. Reading it executes nothing: names are
looked up among the networks and learners of the library.
"""

import dataclasses
import json
import math
import re
from typing import Any, Literal

from episodic_dp import errors
from episodic_dp import options
from episodic_dp import plain

FORMAT = 2
START = "start.safetensors"
Choice = Literal["last", "best", "ensemble"]
_WEIGHTS = re.compile(r"weights(_\d)?\.safetensors")
# Nothing was trained with sizes above these.
_LONGEST_SIDE, _MOST_STEPS, _WIDEST = 4096, 1000, 65536


@dataclasses.dataclass(frozen=True, kw_only=True)
class Preprocessing:
  """Turn an example into an input of the network; see `preprocessing`.

  Attributes:
    kind: images are brought to `shape`; features have it.
    shape: (height, width, channels), (time, channels) or (features,).
    dtype: of a row before it is divided.
    divide_by: divides a row: 255 for uint8.
    resample: how images are brought to another size.
    inverted: whether light and dark are exchanged first.
    offset: subtracted from float32 values.
    scale: divides them next.
    clip: the least and the largest value that is kept at last.
  """

  kind: Literal["image", "features"]
  shape: tuple[int, ...]
  dtype: Literal["uint8", "float32"]
  divide_by: float
  resample: Literal["bilinear", "nearest"]
  inverted: bool
  offset: tuple[float, ...] | None
  scale: tuple[float, ...] | None
  clip: tuple[float, ...] | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Task:
  """The size of its tasks; `shot` is that of the test tasks."""

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
    written_by: name and version of the package that wrote the file.
    network: of the library.
    learner: of the library.
    fine_tuning: of a supervised network, else None.
    preprocessing: of every example.
    task: of training.
    checkpoint: the last of the run, the best on public validation tasks, or up
      to five of the best, whose probabilities are averaged.
    steps: of training, of each checkpoint.
    weights: the file of each checkpoint.
    start: the file of the public weights that were not trained, or None.
    arrays: of the weights, each file the same.
  """

  format: int
  written_by: str
  network: options.Network
  learner: options.Learner
  fine_tuning: options.FineTuning | None
  preprocessing: Preprocessing
  task: Task
  checkpoint: Choice
  steps: tuple[int, ...]
  weights: tuple[str, ...]
  start: str | None
  arrays: tuple[Array, ...]

  @property
  def files(self) -> tuple[str, ...]:
    """Return the files of weights that it names."""
    return (*self.weights, *([self.start] if self.start else []))

  @property
  def parameters(self) -> int:
    """Return the number of trained parameters."""
    return sum(math.prod(array.shape) for array in self.arrays)

  @property
  def fixed_way(self) -> bool:
    """Tell whether it has one logit for each class of a training task."""
    return self.learner.name in ("maml", "anil", "meta_sgd", "reptile")


def to_json(description: Description) -> dict[str, Any]:
  """Return plain data for JSON; `from_json` reads it."""
  result: dict[str, Any] = plain.to_plain(description)
  return result


def from_json(content: bytes, name: str) -> Description:
  """Read and check the JSON of a description.

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
  """Raise ValueError for values that no run has."""
  network, learner, how = found.network, found.learner, found.preprocessing
  names = [*found.weights, *([found.start] if found.start else [])]
  sizes = {
      "shape": how.shape,
      "widths": (*network.widths, network.width, network.outputs or 1),
      "rank": (network.rank,),
      "inner_steps": (learner.inner_steps,),
      "way": (found.task.way - 1, found.task.shot),
  }
  most = {"shape": _LONGEST_SIDE, "inner_steps": _MOST_STEPS}
  for name, values in sizes.items():
    if not all(1 <= value <= most.get(name, _WIDEST) for value in values):
      raise ValueError(
          f"the model's {name} is {list(values)}, which no run has"
      )
  wrong = [x for x in names if x != START and not _WEIGHTS.fullmatch(x)]
  if wrong or len(set(names)) < len(names) or not found.weights:
    raise ValueError(f"the model names the weights {names}")
  if len(found.steps) != len(found.weights):
    raise ValueError(
        f"the model has {len(found.weights)} files of weights and steps"
        f" {list(found.steps)}"
    )
  if (learner.name == "supervised") != (found.fine_tuning is not None):
    raise ValueError(
        f"the model's fine_tuning does not go with {learner.name}"
    )
  if how.divide_by != (255 if how.dtype == "uint8" else 1):
    raise ValueError(
        f"the model divides {how.dtype} by {how.divide_by:g}, which no run does"
    )
