"""Metrics of a run: metrics.jsonl, and TensorBoard's events, without times.

metrics.jsonl has one line per step and never repeats a step. The line of step 0
holds the score of the initial parameters. Every line has the public name of its
key, so that the steps of a key that was replaced are still charged.

The duration of a step reveals its number of tasks, which is secret. So an
event's `wall_time` is its step, and an event file is named by the steps done
before it.
"""

from collections.abc import Iterable, Mapping
import contextlib
import json
import math
import os
import struct
from typing import Any

from etils import epath
from tensorboardX import record_writer
from tensorboardX.proto import event_pb2
from tensorboardX.proto import summary_pb2

from episodic_dp import plain
from episodic_dp.output import files
from episodic_dp.training import workdir as workdir_lib

FILE = workdir_lib.METRICS
TENSORBOARD = "tensorboard"
KEY = "key"
PRIVATE = "private/"  # Prefix of values that no guarantee covers.


class Appended:
  """A file to append to; on an object store `flush` writes it whole.

  Args:
    path: path of the file.
    content: initial content; it replaces that of the file.
    private: whether only the owner may read it.
  """

  def __init__(
      self,
      path: str | os.PathLike,
      content: bytes = b"",
      *,
      private: bool = False,
  ):
    files.write_bytes(path, content, private=private)
    self._path, self._content = path, content
    self._file = None
    if not workdir_lib.is_remote(path):
      self._file = open(path, "ab")

  def append(self, data: bytes) -> None:
    """Append bytes; a full disk is reported at once."""
    if self._file is None:
      self._content += data
    else:
      self._file.write(data)
      self._file.flush()

  def flush(self) -> None:
    """Write all appended bytes to the object store."""
    if self._file is None:
      files.write_bytes(self._path, self._content)

  def close(self) -> None:
    """Write the rest and close the file."""
    self.flush()
    if self._file is not None:
      self._file.close()


class Lines(Appended):
  """Append one JSON object per step and keep the file valid.

  A killed process may leave steps after its last checkpoint, and half a line:
  `Lines(path, keep=step)` drops both before the resumed run appends.
  """

  def __init__(
      self, path: str | os.PathLike, *, keep: int, private: bool = False
  ):
    kept = [line for line in read(path) if line["step"] <= keep]
    content = "".join(map(_dump, kept)).encode()
    super().__init__(path, content, private=private)

  def add(self, values: Mapping[str, Any]) -> None:
    """Append a line; `values` has the key "step"."""
    self.append(_dump(values).encode())


class Board(Appended):
  """A file of TensorBoard's events.

  Args:
    folder: receives the file; see `workdir.folder_of`.
    done: the steps done; later steps of earlier files are hidden.
  """

  def __init__(self, folder: epath.Path, *, done: int):
    super().__init__(folder / f"events.out.tfevents.{done:010d}.episodic_dp")
    self._write(event_pb2.Event(wall_time=done, file_version="brain.Event:2"))
    start = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
    self._write(
        event_pb2.Event(wall_time=done, step=done + 1, session_log=start)
    )

  def add(self, values: Mapping[str, Any]) -> None:
    """Write those values of a step that are finite floats."""
    found = [
        summary_pb2.Summary.Value(tag=name, simple_value=value)
        for name, value in values.items()
        if isinstance(value, float) and math.isfinite(value)
    ]
    summary = summary_pb2.Summary(value=found)
    step = values["step"]
    self._write(event_pb2.Event(wall_time=step, step=step, summary=summary))

  def _write(self, event: event_pb2.Event) -> None:
    """Append a record: its length and bytes, each with a check value."""
    data = event.SerializeToString()
    length = struct.pack("<Q", len(data))
    self.append(
        length
        + struct.pack("<I", record_writer.masked_crc32c(length))
        + data
        + struct.pack("<I", record_writer.masked_crc32c(data))
    )


def read(path: str | os.PathLike) -> list[dict[str, Any]]:
  """Return the lines in order, without incomplete or damaged ones."""
  file = workdir_lib.folder_of(path)
  if not file.exists():
    return []
  lines = []
  for text in file.read_bytes().split(b"\n"):
    # Some lines are empty, damaged, or cut short by a kill.
    with contextlib.suppress(ValueError, RecursionError):
      value = json.loads(text)
      if isinstance(value, dict) and isinstance(value.get("step"), int):
        lines.append(value)
  return lines


def validated(
    lines: Iterable[Mapping[str, Any]], name: str
) -> list[dict[str, float]]:
  """Return "step", "mean", "low" and "high" of each validation of a score."""
  mean = f"validation_{name}"
  return [
      {
          "step": line["step"],
          "mean": float(line[mean]),
          "low": float(line["validation_low"]),
          "high": float(line["validation_high"]),
      }
      for line in lines
      if mean in line
  ]


def _dump(values: Mapping[str, Any]) -> str:
  # JSON has no infinity and no NaN: they are written as strings.
  return json.dumps(plain.to_plain(values), allow_nan=False) + "\n"
