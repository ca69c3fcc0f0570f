"""Weights of a network in a file: NPZ or safetensors, arrays by name."""

from collections.abc import Iterable, Mapping
import hashlib
import os
import pathlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import safetensors.numpy

from episodic_dp.models import parts
from episodic_dp.output import files

Weights = Mapping[str, np.ndarray]
SUFFIXES = (".npz", ".safetensors")
_FLOATS = tuple(
    np.dtype(kind)
    for kind in (np.float32, np.float64, np.float16, jnp.bfloat16)
)


def write_weights(path: str | os.PathLike[str], params: Any) -> None:
  """Writes parameters to a file, whole or not at all.

  Args:
    path: ends in .npz or .safetensors.
    params: nested dictionaries of arrays, whose names ("block_0/kernel") the
      file has; those of a run with frozen weights go through `Model.whole`.

  Raises:
    ValueError: another ending, or arrays without a name.
  """
  path = _checked_path(path)
  arrays = {
      name: np.asarray(leaf, order="C")  # A scalar stays one.
      for name, leaf in parts.by_name(params).items()
  }
  with files.replacing(path) as place:
    if path.suffix == ".npz":
      with open(place, "wb") as out:
        np.savez(out, **arrays)  # type: ignore[arg-type]
    else:
      # Not `save_file`, whose errors of a full disk are no OSError.
      place.write_bytes(safetensors.numpy.save(arrays))


def read_weights(path: str | os.PathLike[str]) -> dict[str, np.ndarray]:
  """The arrays of a file by name; nothing in it is executed.

  Raises:
    ValueError: there is none, it cannot be read, or holds no arrays; one
      sentence.
  """
  path = _checked_path(path)
  try:
    if path.suffix == ".npz":
      with np.load(path, allow_pickle=False) as found:
        return {name: found[name] for name in found.files}
    return safetensors.numpy.load_file(path)
  except FileNotFoundError as e:
    raise ValueError(
        f"the weights {path} do not exist: give the path of an .npz or"
        " .safetensors file"
    ) from e
  except Exception as e:  # Either library raises many types for damaged files.
    reason = str(e).strip().splitlines() or [type(e).__name__]
    if "allow_pickle" in reason[0]:  # NumPy advises to trust the file.
      reason = ["it holds no arrays of NumPy's, or Python objects"]
    raise ValueError(
        f"the weights {path} cannot be read ({reason[0][:100]}): give a file of"
        " arrays that numpy.savez or safetensors wrote"
    ) from e


def fitted(
    weights: Weights, params: Any, *, source: str, head: str
) -> dict[str, np.ndarray]:
  """The arrays of a network, as its own dtypes.

  Those of its head are left out unless all of them are there and fit: tasks of
  other classes have another head.

  Args:
    weights: by name.
    params: the network's, or their shapes.
    source: what the weights are called in a message.
    head: the name of the last layer.

  Raises:
    ValueError: one is missing, of another shape, no float or not finite, or of
      a name that the network does not have; one sentence.
  """
  shapes = parts.by_name(params)
  own_head = parts.head_names(params, head)
  found = dict(weights)
  for name in list(found):
    if name not in shapes and head in name.split("/")[:-1]:
      del found[name]  # Of a network that had one.
  if not all(
      name in found and found[name].shape == shapes[name].shape
      for name in own_head
  ):
    found = {k: v for k, v in found.items() if k not in own_head}
    shapes = {k: v for k, v in shapes.items() if k not in own_head}
  _check_names(found, shapes, source)
  result = {}
  for name, shape in shapes.items():
    array = found[name]
    if array.shape != shape.shape or array.dtype not in _FLOATS:
      raise ValueError(
          f"{source} has {name!r} as {array.dtype}{list(array.shape)} and the"
          f" network as {shape.dtype}{list(shape.shape)}: give weights of this"
          " network, or the network of these weights (config.model.width, norm)"
      )
    with np.errstate(over="ignore"):  # Infinity is found below.
      result[name] = np.asarray(array, shape.dtype)
    if not np.isfinite(result[name]).all():
      raise ValueError(
          f"{source} holds NaN or infinity in {name!r}: give finite weights"
      )
  return result


def _check_names(found: Iterable[str], own: Iterable[str], source: str) -> None:
  missing, foreign = sorted({*own} - {*found}), sorted({*found} - {*own})
  if missing or foreign:
    what = [f"lacks {_few(missing)}"] if missing else []
    what += [f"has {_few(foreign)}, which it does not"] if foreign else []
    raise ValueError(
        f"{source} {' and '.join(what)}: give weights by the names of the"
        f" network, {_few(sorted(own))}"
    )


def _few(names: list[str]) -> str:
  shown = ", ".join(repr(name) for name in names[:3])
  return shown + (f" and {len(names) - 3} more" if names[3:] else "")


def digest(weights: Weights) -> str:
  """SHA-256 over names, dtypes, shapes and bytes, whatever the file's form."""
  total = hashlib.sha256()
  for name in sorted(weights):
    array = np.ascontiguousarray(weights[name])
    total.update(f"{name} {array.dtype} {array.shape}\n".encode())
    total.update(array.tobytes())
  return total.hexdigest()


def shapes_digest(params: Any) -> str:
  """SHA-256 over the names, dtypes and shapes of parameters."""
  lines = [
      f"{jax.tree_util.keystr(path)} {leaf.dtype}{list(leaf.shape)}"
      for path, leaf in jax.tree_util.tree_flatten_with_path(params)[0]
  ]
  return hashlib.sha256("\n".join(sorted(lines)).encode()).hexdigest()


def _checked_path(path: str | os.PathLike[str]) -> pathlib.Path:
  path = pathlib.Path(path)
  if path.suffix not in SUFFIXES:
    raise ValueError(
        f"the weights {path} end in neither .npz nor .safetensors: give a file"
        " that does"
    )
  return path
