"""metrics.jsonl: one line per step, appended, never a step twice."""

from collections.abc import Mapping
import json
import math
import os
import pathlib
from typing import Any

from episodic_dp.output import files

FILE = "metrics.jsonl"


class Lines:
  """Appends one JSON object per step and keeps the file whole.

  A killed process may leave steps after its last checkpoint, and half a line:
  `Lines(path, keep=step)` drops both before the resumed run appends.
  """

  def __init__(self, path: str | os.PathLike, *, keep: int):
    path = pathlib.Path(path)
    kept = [line for line in read(path) if line["step"] <= keep]
    files.write_text(path, "".join(_dump(line) for line in kept))
    # Unbuffered: what could not be written is told at once, and not again when
    # the file is closed.
    self._file = open(path, "ab", buffering=0)

  def add(self, values: Mapping[str, Any]) -> None:
    """Appends; `values` has the key "step"."""
    rest = _dump(values).encode()
    while rest:
      rest = rest[self._file.write(rest) :]

  def close(self) -> None:
    """Closes the file."""
    self._file.close()


def read(path: str | os.PathLike) -> list[dict[str, Any]]:
  """The lines in order; one that was cut short or damaged is left out."""
  path = pathlib.Path(path)
  if not path.exists():
    return []
  lines = []
  for text in path.read_bytes().split(b"\n"):
    try:
      value = json.loads(text)
    except (ValueError, RecursionError):
      continue  # Empty, damaged, or cut short by a kill.
    if isinstance(value, dict) and isinstance(value.get("step"), int):
      lines.append(value)
  return lines


def _dump(values: Mapping[str, Any]) -> str:
  # JSON has no infinity and no NaN: they are written as strings.
  clean = {
      k: str(v) if isinstance(v, float) and not math.isfinite(v) else v
      for k, v in values.items()
  }
  return json.dumps(clean, allow_nan=False) + "\n"
