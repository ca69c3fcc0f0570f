"""Metrics of a run: metrics.jsonl.

It has one line per step and never repeats a step. The line of step 0 holds the
score of the initial parameters. Every line has the public name of its key, so
that the steps of a key that was replaced are still charged. No line has a time:
the duration of a step reveals its number of tasks, which is secret.
"""

from collections.abc import Iterable, Mapping
import contextlib
import json
import os
from typing import Any

from episodic_dp import plain
from episodic_dp.output import files
from episodic_dp.training import workdir as workdir_lib

FILE = workdir_lib.METRICS
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
