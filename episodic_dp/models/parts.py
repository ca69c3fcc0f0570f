"""Parts of a network's parameters: masks, names, public starts, and files.

A network that was trained elsewhere is a start: either all of its weights are
trained further, or only a few of them. A learner sees the trained part only, so
that only this part is differentiated, clipped, noised and stored. Noise of a
given multiplier has a norm that grows with the root of the number of
parameters.

The start is assumed to be public: the run's guarantee does not cover the data
that the start was trained on.
"""

from collections.abc import Callable, Mapping
import hashlib
import os
import pathlib
import re
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import safetensors.numpy

from episodic_dp import _validate
from episodic_dp import backends
from episodic_dp import foreign
from episodic_dp import options
from episodic_dp.errors import DataError
from episodic_dp.errors import RunError
from episodic_dp.models import model as model_lib
from episodic_dp.models.model import Params
from episodic_dp.output import files

Path = jax.tree_util.KeyPath
Mask = Any  # A tree of bool like the parameters.
Weights = Mapping[str, np.ndarray]
SUFFIXES = (".npz", ".safetensors")
SHIPPED = tuple(options.STARTS.values())
"""Starts that the library ships."""
Trained = Literal["all", "scale_shift", "head"]
TRAINED = ("all", "scale_shift", "head")
_NONE = {
    "all": "parameters: give a network that has some",
    "scale_shift": (
        "norms (arrays named 'scale'): use a network with norm='batch' or"
        " 'group'"
    ),
    "head": (
        "layer {head!r} (the features of a metric learner have none): use"
        " trained='scale_shift', or a learner with a head, such as maml"
    ),
}
"""Missing parts that leave nothing to train, each with a remedy."""
_NORM = ("scale", "bias", "offset")


def split(params: Params, mask: Mask) -> tuple[Params, Params]:
  """Split into (leaves with a true mask, the rest), None elsewhere."""
  chosen = jax.tree.map(lambda m, p: p if m else None, mask, params)
  return chosen, jax.tree.map(lambda m, p: None if m else p, mask, params)


def merge(chosen: Params, rest: Params) -> Params:
  """Undo `split`."""
  return jax.tree.map(
      lambda a, b: b if a is None else a,
      chosen,
      rest,
      is_leaf=lambda leaf: leaf is None,
  )


def norms(params: Params) -> Mask:
  """Return the mask of the affine parameters of normalisation layers.

  A layer with an array "scale" is a normalisation layer. Its "scale" and its
  "bias" ("offset" in Haiku's own layers) are affine parameters.
  """
  names = by_name(params)

  def is_norm(path: Path, _: jax.Array) -> bool:
    layer, own = _name(path[:-1]), _name(path[-1:])
    return own in _NORM and f"{layer}/scale".strip("/") in names

  return jax.tree_util.tree_map_with_path(is_norm, params)


def head(params: Params, name: str) -> Mask:
  """Return the mask of the top-level entry ("head", or "net/head" in Haiku).

  Raises:
    RunError: there is none.
  """
  names = _head_names(params, name)
  if not names:
    raise RunError(
        f"head={name!r}: expected the name of the network's last layer, one of"
        f" {sorted(by_name(params))}"
    )
  return jax.tree_util.tree_map_with_path(
      lambda path, _: _name(path) in names, params
  )


# By name ----------------------------------------------------------------------


def _name(path: Path) -> str:
  return jax.tree_util.keystr(path, simple=True, separator="/")


def by_name(params: Params) -> dict[str, Any]:
  """Return name -> leaf, such as "block_0/kernel"."""
  leaves = jax.tree_util.tree_leaves_with_path(params)
  return {_name(path): leaf for path, leaf in leaves}


def of_names(params: Params, values: Mapping[str, Any]) -> Params:
  """Return a tree like the parameters, None for names without a value.

  Args:
    params: arrays, or their shapes.
    values: name (`by_name`) -> new value of that leaf.
  """
  return jax.tree_util.tree_map_with_path(
      lambda path, _: values.get(_name(path)), params
  )


def _head_names(params: Params, name: str) -> set[str]:
  """Return the names of the arrays in the head, if any."""
  return {
      _name(path)
      for path, _ in jax.tree_util.tree_leaves_with_path(params)
      if f"/{_name(path[:1])}".endswith(f"/{name}")
  }


# Public starts ----------------------------------------------------------------


def start_from(
    model: model_lib.Model,
    weights: Weights,
    *,
    trained: Trained = "all",
    head: str = "head",
    source: str = "the start",
) -> model_lib.Model:
  """Return a network that starts with given weights.

  The layer `head` is always trained. It starts with the given weights if they
  fit, and is initialised by `init` otherwise. In a network without this layer
  (of a metric learner) only features are trained.

  Args:
    model: the network.
    weights: name -> array, as from `read_weights`; public.
    trained: "all"; "scale_shift", the scale and the shift of the norms (FiLM);
      "head", the head only.
    head: the name of the last layer, at the top of the parameters.
    source: name of the weights in messages.

  Returns:
    The Model of the trained part. Frozen parameters are None in its tree, and
    its `whole` returns all parameters of the network.

  Raises:
    DataError: the weights do not fit; one sentence.
    RunError: nothing would be trained.
  """
  _validate.one_of("trained", trained, TRAINED)
  shapes = model.shapes
  start = jax.tree.map(jnp.asarray, fitted(weights, shapes, source, head))
  chosen = own_head = _head_names(shapes, head)
  if trained == "all":
    chosen = set(by_name(shapes))
  elif trained == "scale_shift":
    masks = by_name(norms(shapes))
    chosen = {name for name, is_norm in masks.items() if is_norm}
  if not chosen:
    reason = _NONE[trained].format(head=head)
    raise RunError(
        f"trained={trained!r}: the network has no {reason}"
    )
  moving = own_head | chosen
  frozen = {name: a for name, a in start.items() if name not in moving}
  draw = model.init

  def init(key: jax.Array) -> Params:
    drawn = by_name(draw(key)) | start
    return of_names(shapes, {name: drawn[name] for name in moving})

  def whole(params: Params) -> Params:
    return of_names(shapes, frozen | by_name(params))

  model = model._replace(init=backends.jit_init(init), start=digest(weights))
  if trained == "all":
    return model
  return _around(model, whole)


def _around(
    model: model_lib.Model, whole: Callable[[Params], Params]
) -> model_lib.Model:
  """Return the Model of the trained part of a network."""

  def of_trained(function):
    """Return the function of the trained part, the parameters first."""
    if function is None:
      return None
    return lambda params, *others: function(whole(params), *others)

  return model._replace(
      apply=of_trained(model.apply),
      random=of_trained(model.random),
      moments=of_trained(model.moments),
      by_moments=of_trained(model.by_moments),
      whole=whole,
  )


# Files of weights -------------------------------------------------------------


def write_weights(path: str | os.PathLike[str], params: Params) -> None:
  """Write parameters to a file, whole or not at all.

  Args:
    path: ends in .npz or .safetensors.
    params: nested dictionaries of arrays. The file has their names
      ("block_0/kernel"). For a run with frozen weights pass them through
      `Model.whole` first.

  Raises:
    PlanError: another ending.
  """
  path = files.path_of(path)
  suffix = path.suffix.lower()
  _validate.one_of("ending of the weights", suffix, SUFFIXES)
  arrays = {
      name: np.asarray(leaf, order="C")  # Keeps a scalar a scalar.
      for name, leaf in by_name(params).items()
  }
  with files.replacing(path) as place:
    if suffix == ".npz":
      with open(place, "wb") as out:
        np.savez(out, **arrays)  # type: ignore[arg-type]
    else:
      # Not `save_file`: on a full disk its error is not an OSError.
      place.write_bytes(safetensors.numpy.save(arrays))


def shipped(name: str) -> pathlib.Path:
  """Return the file of a start that the library ships, one of `SHIPPED`."""
  return pathlib.Path(__file__).parent / "starts" / f"{name}.npz"


def read_weights(
    path: str | os.PathLike[str], rename: Mapping[str, str] | None = None
) -> dict[str, np.ndarray]:
  """Read the arrays of a file by name; nothing in it is executed.

  Args:
    path: an .npz or .safetensors file; or a public start that the library ships
      for `conv4` of width 32 without a head: "glyphs" for grey images, "scenes"
      for colour (`python -m experiments.starts` makes each from generated data
      alone).
    rename: for a file of another library: a regular expression of whole names
      -> the name here, in which \\1 is the first group; arrays of other names
      are left out. None keeps all names. The arrays stay as they are: PyTorch
      has the outputs of a kernel first, and Flax last.

  Returns:
    Name -> array, such as "block_0/kernel" -> float32 [kh, kw, Cin, Cout].

  Raises:
    FileNotFoundError: the file does not exist.
    DataError: it cannot be read or holds no arrays, or two arrays get one name;
      one sentence.
  """
  found = _read_arrays(path)
  if rename is None:
    return found
  named: dict[str, np.ndarray] = {}
  for pattern, new in rename.items():
    for name, array in found.items():
      match = re.fullmatch(pattern, name)
      if match is None:
        continue
      if match.expand(new) in named:
        raise DataError(
            f"two arrays of {os.fspath(path)} get one name by rename: give each"
            " its own name"
        )
      named[match.expand(new)] = array
  return named


def _read_arrays(path: str | os.PathLike[str]) -> dict[str, np.ndarray]:
  """Read the arrays of a file, or of a shipped start."""
  path = shipped(path) if path in SHIPPED else files.path_of(path)
  suffix = path.suffix.lower()
  if suffix not in SUFFIXES:
    raise _validate.refusal(
        "weights", os.fspath(path),
        f"{', '.join(SHIPPED)}, or a file that ends with .npz or .safetensors",
    )
  if not path.exists():
    raise FileNotFoundError(f"{path} does not exist: give another path")
  try:
    if suffix == ".npz":
      # NumPy leaves a damaged file open that it opened itself.
      with path.open("rb") as file, np.load(file, allow_pickle=False) as found:
        foreign.check_arrays(found)
        return dict(found)
    return safetensors.numpy.load_file(path)
  except Exception as e:  # Both libraries raise many types for damaged files.
    # NumPy's own text advises to trust a file of Python objects.
    raise DataError(
        f"the weights {path} cannot be read ({type(e).__name__}): give a file"
        " of arrays written by numpy.savez or safetensors"
    ) from e


def fitted(
    weights: Weights, params: Params, source: str, head: str = ""
) -> dict[str, np.ndarray]:
  """Return the arrays of a network in its dtypes.

  The arrays of its `head`, if it is named, are left out unless all of them
  exist and fit: tasks of other classes have another head.

  Raises:
    DataError: an array is missing, has another shape, is not a finite float,
      or has a name that the network lacks; one sentence.
  """
  shapes, own_head = by_name(params), _head_names(params, head)
  found = {}
  for name, array in weights.items():
    # A head is left out if the network has none.
    if name in shapes or head not in name.split("/")[:-1]:
      found[name] = array
  if not all(
      name in found and found[name].shape == shapes[name].shape
      for name in own_head
  ):
    for name in own_head:
      found.pop(name, None)
      del shapes[name]
  if others := sorted(found.keys() ^ shapes.keys()):
    raise DataError(
        f"{source} and the network differ in {', '.join(others[:4])}: give"
        f" weights with the network's names, {', '.join(sorted(shapes)[:4])}"
        " (read_weights has rename={...} for files of other libraries)"
    )
  result = {}
  for name, shape in shapes.items():
    array = found[name]
    is_float = jnp.issubdtype(array.dtype, jnp.floating)
    if array.shape != shape.shape or not is_float:
      raise DataError(
          f"{source} has {name!r} as {array.dtype}{list(array.shape)} and the"
          f" network as {shape.dtype}{list(shape.shape)}: give weights of this"
          " network, or the network of these weights (colours, width, norm)"
      )
    with np.errstate(over="ignore"):  # The check below finds infinity.
      result[name] = np.asarray(array, shape.dtype)
    if not np.isfinite(result[name]).all():
      raise DataError(
          f"{source} holds NaN or infinity in {name!r}: give finite weights"
      )
  return result


def digest(weights: Weights) -> str:
  """Return SHA-256 over names, dtypes, shapes and bytes, in any file format."""
  total = hashlib.sha256()
  for name in sorted(weights):
    array = np.ascontiguousarray(weights[name])
    total.update(f"{name} {array.dtype} {array.shape}\n".encode())
    total.update(array.tobytes())
  return total.hexdigest()
