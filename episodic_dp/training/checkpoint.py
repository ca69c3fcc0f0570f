"""Checkpoints: parameters, optimiser state and step in one file; never a key.

Each is a zip file of arrays as `numpy.load` reads it, `checkpoints/STEP.npz`.
It is put in place in one operation, so that a killed process leaves only
complete files. The last checkpoint is kept, and the five that are best on
public validation tasks (the ensemble). "params/..." may be published.
"rest/..." may be too, except for the clip norms of a run with
clipping="percentile_window".
"""

from collections.abc import Callable, Iterator
import contextlib
import hashlib
import io
import json
import math
import os
from typing import Any

import jax
import numpy as np

from episodic_dp import foreign
from episodic_dp.errors import RunError
from episodic_dp.models import parts
from episodic_dp.output import files
from episodic_dp.training import workdir as workdir_lib

BEST = 5
_ABOUT = "about"  # The entry that holds JSON as text.

Arrays = Any  # A pytree of arrays.


class Checkpoints:
  """The checkpoints of one work directory.

  Attributes:
    folder: `WORKDIR/checkpoints`.
  """

  def __init__(self, workdir: str | os.PathLike):
    self.folder = workdir_lib.folder_of(workdir) / workdir_lib.CHECKPOINTS

  def steps(self) -> tuple[int, ...]:
    """Return the steps that have a checkpoint, in order."""
    if not self.folder.exists():
      return ()
    return tuple(sorted(
        int(path.stem)
        for path in self.folder.iterdir()
        if path.suffix == ".npz" and path.stem.isdigit()
    ))

  def latest(self) -> int | None:
    """Return the last of `steps()`, or None."""
    return max(self.steps(), default=None)

  def best(self) -> tuple[tuple[int, float], ...]:
    """Return up to five (step, quality on validation tasks), best first.

    Of equal qualities the later step comes first.
    """
    found = []
    for step in self.steps():
      quality = self.about(step).get("quality")
      if quality is not None and math.isfinite(quality):
        found.append((quality, step))
    best = sorted(found, reverse=True)[:BEST]
    return tuple((step, quality) for quality, step in best)

  def save(
      self,
      step: int,
      params: Arrays,
      rest: Arrays,
      *,
      seal: Callable[[int, str], str] | None = None,
      quality: float | None = None,
      **about: Any,
  ) -> None:
    """Write a checkpoint, unless the step has one; remove those not kept.

    Args:
      step: number of steps done.
      params: the model's parameters.
      rest: all other state that the run needs to resume, except its key.
      seal: (step, digest of the arrays) -> value that binds them to a key.
      quality: of these parameters on validation tasks; higher is better.
      **about: JSON-able, stored with the arrays.

    Raises:
      OSError: the folder cannot be written.
    """
    if step in self.steps():
      return
    entries = _named({"params": params, "rest": rest})
    found = digest(entries)
    about |= {"step": step, "quality": quality, "digest": found}
    if seal is not None:
      about["seal"] = seal(step, found)
    stream = io.BytesIO()
    # Its entries have no time: the time at which a step ended reveals its
    # sample.
    stored: dict[str, Any] = {_ABOUT: json.dumps(about), **entries}
    np.savez(stream, **stored)
    files.write_bytes(self._path(step), stream.getvalue())
    kept = {step, *(best for best, _ in self.best())}
    for old in self.steps():
      if old not in kept:
        self._path(old).unlink()

  def about(self, step: int) -> dict[str, Any]:
    """Return the data stored with a step's arrays.

    Raises:
      RunError: the checkpoint is damaged.
    """
    with self._open(step) as saved:
      found = json.loads(str(saved[_ABOUT]))
      if found["step"] != step:
        raise ValueError("it is of another step")
    return found

  def restore(
      self, step: int, params: Arrays, rest: Arrays = None
  ) -> tuple[Arrays, Arrays]:
    """Return (params, rest) of a step, as NumPy arrays.

    Args:
      step: one of `steps()`.
      params: the model's parameters, for their tree, shapes and dtypes.
      rest: the same for the other state; None restores the parameters only.

    Raises:
      RunError: the checkpoint is damaged or of another model.
    """
    like = {"params": params}
    if rest is not None:
      like["rest"] = rest
    named = _named(like)
    with self._open(step) as saved:
      found = {name: _like(saved[name], x) for name, x in named.items()}
      if rest is not None and digest(found) != self.about(step)["digest"]:
        raise ValueError("its contents differ from those that were saved")
    tree = jax.tree.unflatten(jax.tree.structure(like), list(found.values()))
    return tree["params"], tree.get("rest")

  def arrays(self, step: int, part: str = "params") -> dict[str, np.ndarray]:
    """Return the arrays of a part of a step by name ("block_0/kernel").

    Args:
      step: one of `steps()`.
      part: "params", the model's parameters, or a part of the other state, such
        as "rest/moments".

    Raises:
      RunError: the checkpoint is damaged.
    """
    with self._open(step) as saved:
      return {
          name.removeprefix(f"{part}/"): saved[name]
          for name in saved.files
          if name.startswith(f"{part}/")
      }

  @contextlib.contextmanager
  def _open(self, step: int) -> Iterator[Any]:
    """Open a checkpoint; report any fault of it in one sentence."""
    try:
      with self._path(step).open("rb") as file, np.load(file) as saved:
        foreign.check_arrays(saved)
        yield saved
    except Exception as e:  # Parsers of damaged files may raise anything.
      raise RunError(
          f"the checkpoint {self._path(step)} cannot be read"
          f" ({str(e)[:120] or type(e).__name__}): move it away and run the"
          " same command again, which repeats the same steps bit for bit from"
          " the previous checkpoint"
      ) from e

  def _path(self, step: int) -> Any:
    return self.folder / f"{step}.npz"


def latest(
    workdir: str | os.PathLike,
) -> tuple[Checkpoints, int]:
  """Return the checkpoints of a run, read-only, and the last one's step.

  Raises:
    RunError: there is no checkpoint.
  """
  checkpoints = Checkpoints(workdir)
  step = checkpoints.latest()
  if step is None:
    raise RunError(
        f"{checkpoints.folder} has no checkpoint yet: let episodic-dp train"
        " run until it has saved one"
    )
  return checkpoints, step


def digest(arrays: Arrays) -> str:
  """Return SHA-256 over bytes, dtypes and shapes of the leaves in order."""
  total = hashlib.sha256()
  for leaf in jax.tree.leaves(arrays):
    leaf = np.asarray(leaf)
    total.update(f"{leaf.dtype}{leaf.shape}".encode())
    total.update(leaf.reshape(-1).view(np.uint8).data)
  return total.hexdigest()


def _named(tree: Arrays) -> dict[str, np.ndarray]:
  """Return path -> copy of an array; a view would change with a donation."""
  return {name: np.array(leaf) for name, leaf in parts.by_name(tree).items()}


def _like(found: np.ndarray, like: np.ndarray) -> np.ndarray:
  """Return a stored array, checked for the shape and type of another."""
  if found.dtype.kind == "V" and found.itemsize == like.itemsize:
    found = found.view(like.dtype)  # NumPy's format has no bfloat16.
  if found.shape != like.shape or found.dtype != like.dtype:
    raise ValueError(
        f"it holds {found.dtype}{list(found.shape)} and the model has"
        f" {like.dtype}{list(like.shape)}"
    )
  return found
