"""The files of an exported model, and the description in model.json.

Reading them executes nothing: model.json is plain data, and its names are
looked up among the networks and learners of the library. digests.json shows
that each file is as it was exported, if digests.json itself is trusted.
"""

import dataclasses
import hashlib
import json
import os
import pathlib
import stat
from typing import Literal

from episodic_dp import _validate
from episodic_dp import errors
from episodic_dp import options
from episodic_dp import plain
from episodic_dp.output import files
from episodic_dp.output import quoting

MODEL, STATEMENT, CARD = "model.json", "privacy_statement.json", "README.md"
START, DIGESTS = "start.safetensors", "digests.json"
FORMAT = 2
Choice = Literal["last", "best", "ensemble"]
# Of one file, and of a number in model.json: no model of this library has more.
_MOST_BYTES, _MOST = 2**32, 65536
_AGAIN = "get the folder again from its publisher"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Preprocessing:
  """Turn an example into an input of the network; see `preprocessing`.

  Attributes:
    kind: images are resized to `shape`; features have it.
    shape: (height, width, channels), (time, channels) or (features,).
    dtype: of a row; uint8 is divided by 255.
    resample: how images are brought to another size.
  """

  kind: Literal["image", "features"]
  shape: tuple[int, ...]
  dtype: Literal["uint8", "float32"]
  resample: Literal["bilinear", "nearest"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Description:
  """model.json.

  Attributes:
    format: `FORMAT`.
    written_by: name and version of the package that wrote the file.
    data: name of the data set of training.
    network: of the library.
    learner: of the library.
    fine_tuning: of a supervised network, else None.
    preprocessing: of every example.
    way: number of classes of its tasks.
    shot: number of support images of a class in its test tasks.
    checkpoint: the last of the run, the best on public validation tasks, or up
      to five of the best, whose probabilities are averaged.
    steps: of training, of each checkpoint.
    weights: the file of each checkpoint.
    start: the file of the public weights that were not trained, or None.
  """

  format: int
  written_by: str
  data: str
  network: options.Network
  learner: options.Learner
  fine_tuning: options.FineTuning | None
  preprocessing: Preprocessing
  way: int
  shot: int
  checkpoint: Choice
  steps: tuple[int, ...]
  weights: tuple[str, ...]
  start: str | None

  @property
  def files(self) -> tuple[str, ...]:
    """Return the files of weights that it names."""
    return (*self.weights, *([self.start] if self.start else []))

  @property
  def fixed_way(self) -> bool:
    """Return whether it has one logit for each class of a training task."""
    return self.learner.name in ("maml", "anil", "meta_sgd", "reptile")

  @property
  def transductive(self) -> bool:
    """Return whether a prediction depends on the other examples of a call."""
    return self.network.norm == "batch" and self.network.name != "mlp"


def describe(content: bytes, name: str) -> Description:
  """Read and check the JSON of a description.

  Args:
    content: of the file.
    name: of it, for messages.

  Raises:
    RunError: it is damaged, or of another version; one sentence.
  """
  try:
    data = json.loads(content)
    if data["format"] != FORMAT:
      raise ValueError(
          f"it is of format {data['format']!r} and this version reads {FORMAT}:"
          " load it with the version that wrote it, or export the run again"
      )
    result = plain.from_plain(Description, data, name="model")
    network, steps = result.network, result.learner.inner_steps
    _validate.one_of("model.name", network.name, options.NETWORKS)
    sizes = (*result.preprocessing.shape, *network.widths, network.width, steps)
    # Before arrays are made, or as many steps compiled.
    if not all(1 <= size <= _MOST for size in sizes):
      raise ValueError(f"its sizes are {sizes}, which no run has")
  except (ValueError, KeyError, TypeError, RecursionError) as e:
    raise errors.RunError(f"{name}: {e}") from e
  return result


def seal(root: pathlib.Path) -> None:
  """Write digests.json: the SHA-256 of every other file of a folder."""
  found = {
      path.name: _sha256(path.read_bytes()) for path in sorted(root.iterdir())
  }
  files.write_json(root / DIGESTS, {"algorithm": "SHA-256", "files": found})


def read(root: pathlib.Path) -> dict[str, bytes]:
  """Return the content of every file of a folder that is as it was exported.

  Raises:
    RunError: a file is missing, changed, added, too large or a link; one
      sentence that names it.
  """
  try:
    wanted = dict(json.loads((root / DIGESTS).read_bytes())["files"])
  except (OSError, ValueError, KeyError, TypeError, RecursionError) as e:
    raise errors.RunError(
        f"{root} has no {DIGESTS} that lists files: give a folder that"
        " episodic-dp export wrote"
    ) from e
  contents = {}
  present = {*os.listdir(root)} - {DIGESTS}
  for name in sorted({*present, *wanted, MODEL, STATEMENT}):
    shown = root / quoting.printable(name)
    if name not in present:
      raise errors.RunError(f"{root} lacks {name}: {_AGAIN}")
    status = os.lstat(root / name)
    if not stat.S_ISREG(status.st_mode) or status.st_size > _MOST_BYTES:
      raise errors.RunError(
          f"{shown} is a link, a folder or too large, and a model has plain"
          " files only: remove it"
      )
    if name not in wanted:
      raise errors.RunError(f"{shown} is not named in {DIGESTS}: remove it")
    contents[name] = (root / name).read_bytes()
    if _sha256(contents[name]) != wanted[name]:
      raise errors.RunError(
          f"{shown} is not as it was exported (its SHA-256 is not that in"
          f" {DIGESTS}): {_AGAIN}"
      )
  return contents


def _sha256(content: bytes) -> str:
  return hashlib.sha256(content).hexdigest()
