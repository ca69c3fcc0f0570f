"""metrics.jsonl: one line per step, appended, never a step twice.

The line of step 0 holds the score of the initial parameters.
"""

from collections.abc import Iterable, Mapping
import contextlib
import json
import math
import os
import pathlib
from typing import Any, NamedTuple

from episodic_dp.output import files

FILE = "metrics.jsonl"


class Validated(NamedTuple):
  """A score on public validation tasks after a step, with its interval."""

  step: int
  mean: float
  low: float
  high: float


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


def validated(
    lines: Iterable[Mapping[str, Any]], name: str
) -> list[Validated]:
  """The validations of a score ("accuracy") among lines; not damaged ones."""
  found = []
  for line in lines:
    with contextlib.suppress(KeyError, TypeError, ValueError):
      mean, low, high = (
          float(line[f"validation_{key}"]) for key in (name, "low", "high")
      )
      found.append(Validated(line["step"], mean, low, high))
  return found


def spent(lines: Iterable[Mapping[str, Any]]) -> list[tuple[int, float]]:
  """(step, epsilon so far) of lines, where it is finite."""
  found = []
  for line in lines:
    with contextlib.suppress(KeyError, TypeError, ValueError):
      epsilon = float(line["epsilon"])
      if math.isfinite(epsilon):
        found.append((line["step"], epsilon))
  return found


def _dump(values: Mapping[str, Any]) -> str:
  # JSON has no infinity and no NaN: they are written as strings.
  clean = {
      k: str(v) if isinstance(v, float) and not math.isfinite(v) else v
      for k, v in values.items()
  }
  return json.dumps(clean, allow_nan=False) + "\n"
