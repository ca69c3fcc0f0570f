"""The files of an exported model, and the description in model.json.

Reading them executes nothing: model.json is plain data, and its names are
looked up among the networks and learners of the library. A network of own code
is only named; the caller gives its function. digests.json shows that each file
is unchanged since the export, if digests.json itself is trusted.
"""

from collections.abc import Mapping
import dataclasses
import json
import math
import os
import pathlib
import stat
from typing import Literal

import numpy as np
import safetensors.numpy

from episodic_dp import options
from episodic_dp import plain
from episodic_dp.accounting import statement
from episodic_dp.data.backbone import Backbone
from episodic_dp.errors import RunError
from episodic_dp.errors import shown
from episodic_dp.output import files
from episodic_dp.output import quoting

MODEL, STATEMENT, CARD = "model.json", statement.EXPORTED, "README.md"
START, DIGESTS = "start.safetensors", "digests.json"
# Of a model that is adapted with a guarantee.
ADAPTATION, PROTOTYPES = statement.ADAPTED, "prototypes.safetensors"
BACKBONE = "backbone.onnx"
FORMAT = 3
MOMENTS = "moments/"  # Prefix of the moments' names in a file of weights.
Choice = Literal["last", "best", "ensemble"]
# Limits beyond any model of the library: bytes of all files, and of one that
# is JSON; numbers in model.json; values of an example; steps of an adaptation;
# layers; and checkpoints.
_MOST_BYTES, _MOST_JSON = 2**32, 2**18
_MOST, _MOST_VALUES, _MOST_STEPS, _MOST_LAYERS = 2**16, 2**24, 2**12, 100
_MOST_MEMBERS = 20
_MOST_WORK = 2**36  # Steps times bytes: minutes for a few images.
_AGAIN = "get the folder again from its publisher"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Preprocessing:
  """Settings that turn an example into an input; see `preprocessing`.

  Attributes:
    kind: images are resized to `shape`; features must have it.
    shape: (height, width, channels), (time, channels) or (features,).
    dtype: dtype of a row; uint8 is divided by 255.
    resample: filter that resizes images.
  """

  kind: Literal["image", "features"]
  shape: tuple[int, ...]
  dtype: Literal["uint8", "float32"]
  resample: Literal["bilinear", "nearest"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Description:
  """The content of model.json.

  Attributes:
    format: `FORMAT`.
    written_by: name and version of the package that wrote the file.
    data: name of the training data set.
    network: options of the network, one of the library or MODULE:FUNCTION.
    learner: options of the learner.
    fine_tuning: of a supervised network, else None.
    preprocessing: settings of every example.
    way: number of classes of its tasks.
    shot: number of support images of a class in its test tasks.
    checkpoint: the last of the run, the best on public validation tasks, or up
      to five of the best, whose probabilities are averaged.
    steps: number of training steps of each checkpoint.
    weights: the file of each checkpoint.
    start: the file of the public weights that were not trained, or None.
    moments: whether the weights hold the moments of public examples, which
      normalise every example.
    backbone: the public network that makes features of images, or None.
    mirror: whether images were mirrored in training.
  """

  format: int
  written_by: str
  data: str
  network: options.Network
  learner: options.LearnerOptions
  fine_tuning: options.FineTuningOptions | None
  preprocessing: Preprocessing
  way: int
  shot: int
  checkpoint: Choice
  steps: tuple[int, ...]
  weights: tuple[str, ...]
  start: str | None
  moments: bool
  backbone: Backbone | None = None
  mirror: bool = False

  @property
  def shape(self) -> tuple[int, ...]:
    """Return the shape of an example as the network takes it."""
    if self.backbone is None:
      return self.preprocessing.shape
    return (self.backbone.features or 1,)

  @property
  def files(self) -> tuple[str, ...]:
    """Return the names of its files of weights."""
    return tuple(filter(None, (*self.weights, self.start)))

  @property
  def fixed_way(self) -> bool:
    """Return whether it has one logit for each class of a training task."""
    return self.learner.adaptation == options.STEPS


def describe(content: bytes, name: str) -> Description:
  """Read and check the JSON of a description.

  Args:
    content: content of the file.
    name: name of the file, for messages.

  Raises:
    RunError: it is damaged, or of another version; one sentence.
  """
  try:
    if len(content) > _MOST_JSON:
      raise ValueError(
          f"it has {len(content)} bytes, above {_MOST_JSON}, which no run has"
      )
    data = json.loads(content)
    if not isinstance(data, dict) or "format" not in data:
      raise ValueError(f"it describes no model: {_AGAIN}")
    if data["format"] != FORMAT:
      raise ValueError(
          f"its format is {shown(data['format'])}, but this version"
          f" reads {FORMAT}: load it with the version that wrote it, or export"
          " the run again"
      )
    data = {"backbone": None, "mirror": False, **data}
    data["network"] = options.upgraded_network(data.get("network"))
    result = plain.from_plain(Description, data, name="model")
    _check_sizes(result)
  except (ValueError, KeyError, TypeError, RecursionError) as e:
    raise RunError(f"{name}: {e}") from e
  return result


def _check_sizes(found: Description) -> None:
  """Raise ValueError for sizes that no run has, before any work on them."""
  network, shape = found.network, found.preprocessing.shape
  steps = found.learner.inner_steps, getattr(found.fine_tuning, "steps", 1)
  sizes = (*shape, *found.shape, network.width, network.outputs or 1, *steps)
  supervised = found.learner.name == options.SUPERVISED
  if supervised == (found.fine_tuning is None) or (
      found.fixed_way and not network.outputs
  ):
    raise ValueError(
        f"learner {shown(found.learner.name)} lacks its fine_tuning or"
        f" its outputs: {_AGAIN}"
    )
  backbone = found.backbone
  if backbone is not None and None in (backbone.digest, backbone.features):
    raise ValueError(f"its backbone lacks its digest or its features: {_AGAIN}")
  fits = (
      all(1 <= size <= _MOST for size in (*sizes, *network.widths))
      and math.prod(shape) <= _MOST_VALUES
      and math.prod(shape[:-1]) * network.width <= _MOST_VALUES
      and max(steps) <= _MOST_STEPS
      and len(network.widths) <= _MOST_LAYERS
      and 1 <= len(found.weights) <= _MOST_MEMBERS
      and len({*found.files}) == len(found.files)
  )
  if not fits:
    raise ValueError(
        f"its sizes are {shown(sizes)} with {len(network.widths)} hidden"
        f" layers and {len(found.weights)} files of weights, which no run has:"
        f" expected {_MOST} at most, {_MOST_VALUES} values of an example,"
        f" {_MOST_STEPS} steps, {_MOST_LAYERS} layers, and"
        f" {_MOST_MEMBERS} files of different names"
    )


def check_work(found: Description, contents: Mapping[str, bytes]) -> None:
  """Raise ValueError if adapting would take hours, as for no run."""
  steps = max(found.learner.inner_steps, getattr(found.fine_tuning, "steps", 1))
  shape = found.preprocessing.shape
  values = 4 * math.prod(shape[:-1]) * found.network.width
  size = sum(len(contents[name]) for name in found.weights)
  if steps * max(size, values) > _MOST_WORK:
    raise ValueError(
        f"it takes {steps} steps on {size} bytes of weights, which no run does:"
        f" {_AGAIN}"
    )


def read_arrays(content: bytes, name: str) -> dict[str, np.ndarray]:
  """Read the arrays of a safetensors file; nothing in it is executed.

  Raises:
    RunError: it is damaged; one sentence.
  """
  try:
    return safetensors.numpy.load(content)
  except Exception as e:  # It raises many types for damaged files.
    reason = (str(e).strip().splitlines() or [type(e).__name__])[0]
    raise RunError(
        f"{name} is not safetensors ({reason[:80]}): export the run again"
    ) from e


def seal(root: pathlib.Path) -> None:
  """Write digests.json: the SHA-256 of every other file of a folder."""
  found = {}
  for path in sorted(root.iterdir()):
    found[path.name] = files.sha256(path.read_bytes())
  files.write_json(root / DIGESTS, {"algorithm": "SHA-256", "files": found})


def read(root: pathlib.Path) -> dict[str, bytes]:
  """Return the content of every file of a folder, checked against digests.json.

  Raises:
    RunError: a file is missing, changed, added, too large or a link; one
      sentence that names it.
  """
  try:
    wanted = dict(json.loads(_content(root, DIGESTS, _MOST_JSON))["files"])
  except RunError:
    raise
  except (OSError, ValueError, KeyError, TypeError, RecursionError) as e:
    fault = f"has no {DIGESTS} that lists files"
    if not root.exists():
      fault = "does not exist"
    raise RunError(
        f"{root} {fault}: give a folder that episodic-dp export wrote"
    ) from e
  contents: dict[str, bytes] = {}
  left = _MOST_BYTES
  # Git, a hub's client and macOS add hidden files, which nothing reads.
  present = {n for n in os.listdir(root) if not n.startswith(".")} - {DIGESTS}
  for name in sorted({*present, *wanted, MODEL, STATEMENT}):
    place = root / quoting.printable(name)
    if name not in present:
      raise RunError(f"{root} lacks {shown(name)}: {_AGAIN}")
    contents[name] = _content(root, name, left)
    left -= len(contents[name])
    if name not in wanted:
      raise RunError(f"{place} is not named in {DIGESTS}: remove it")
    if files.sha256(contents[name]) != wanted[name]:
      raise RunError(
          f"{place} has changed since the export (its SHA-256 is not that in"
          f" {DIGESTS}): {_AGAIN}"
      )
  return contents


def _content(root: pathlib.Path, name: str, most: int) -> bytes:
  """Read a plain file; RunError for a link, a folder or a larger file."""
  status = os.lstat(root / name)
  if not stat.S_ISREG(status.st_mode) or status.st_size > most:
    raise RunError(
        f"{root / quoting.printable(name)} is a link, a folder or too large"
        f" (above {most} bytes), and a model has plain files only: remove it"
    )
  return (root / name).read_bytes()
