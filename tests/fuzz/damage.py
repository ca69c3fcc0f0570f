"""Damaged files, and what a reader may answer to them."""

from collections.abc import Callable, Iterator
import os
import pathlib
import pickle
from typing import Any

import numpy as np

from episodic_dp.cli import app


class Marker:
  """A pickle of it writes a file when it is loaded."""

  def __init__(self, path: pathlib.Path):
    self._path = path

  def __reduce__(self):
    return os.mkdir, (str(self._path),)

  @property
  def ran(self) -> bool:
    return self._path.exists()


def answer(call: Callable[[], Any]) -> str | None:
  """The sentence that a main would end with, or None where it goes on.

  Raises:
    AssertionError: a traceback would be seen, or no sentence.
  """
  try:
    call()
  except Exception as e:
    if app.sentence(e) is None:
      raise AssertionError(f"a traceback of {type(e).__name__}: {e}") from e
    text = " ".join(str(e).split())  # As `app.fail` prints it.
    if not 20 <= len(text) <= 2000:
      raise AssertionError(f"no sentence: {text[:3000]!r}") from e
    return text
  return None


def pickles(marker: Marker) -> list[bytes]:
  """Files that run code in whoever unpickles them."""
  array = np.empty(2, object)
  array[:] = [marker, marker]
  return [pickle.dumps(marker, protocol) for protocol in (0, 2, 4)] + [
      array.dumps()
  ]


def damaged(
    content: bytes, rng: np.random.Generator, count: int
) -> Iterator[bytes]:
  """So many versions: cut short, with other bytes, with parts moved or out."""
  size = len(content)
  yield b""
  for _ in range(count - 1):
    kind = rng.integers(0, 6)
    a, b = sorted(rng.integers(0, size + 1, 2).tolist())
    if kind == 0:
      yield content[:b]
    elif kind == 1:
      yield content[:a] + content[b:]
    elif kind == 2:
      yield content[:b] + content[a:]
    elif kind == 3:
      yield content[:a] + rng.bytes(min(b - a, 64)) + content[a:]
    else:
      changed = bytearray(content)
      # In the head or the tail, where formats say what follows, or anywhere.
      span = int(rng.choice([64, 256, size]))
      low = 0 if rng.integers(0, 2) else max(0, size - span)
      for _ in range(int(rng.integers(1, 5))):
        place = min(low + int(rng.integers(0, span)), size - 1)
        changed[place] = int(rng.integers(0, 256))
      yield bytes(changed)


_JUNK = (
    None, True, -1, 0, 1e308, 2**70, "", "x", "../../../etc/passwd", [], {},
    [[[]]], {"a": 1}, "__import__('os').mkdir('ran')", "é" * 300, "nan",
    "Poisson(1e400)", [None], -0.5, "\0",
)  # fmt: skip


def tampered(value: Any, rng: np.random.Generator) -> Any:
  """The value with one field, somewhere inside, gone or another thing."""
  if isinstance(value, dict) and value and rng.integers(0, 5):
    name = str(rng.choice(sorted(value)))
    kind = rng.integers(0, 8)
    if kind == 0:
      return {k: v for k, v in value.items() if k != name}
    if kind == 1:
      return value | {f"{name}_": value[name]}
    return value | {name: tampered(value[name], rng)}
  if isinstance(value, list) and value and rng.integers(0, 5):
    place = int(rng.integers(0, len(value)))
    if not rng.integers(0, 5):
      return value + [value[place]]
    new = tampered(value[place], rng)
    return value[:place] + [new] + value[place + 1 :]
  return _JUNK[int(rng.integers(0, len(_JUNK)))]
