"""Parts of a network's parameters: masks, names, public starts, and files.

A network that learned elsewhere is a start: either all of it is trained
further, or only a few of its numbers. Only the trained part is among the
parameters that a learner sees, so that only that is differentiated, clipped,
noised and stored: noise of a given multiplier has a norm that grows with the
root of the number of parameters.

The start is taken as public: the guarantee of the run that begins with it does
not cover the data that the start was learned from.
"""

from collections.abc import Callable, Mapping
import hashlib
import math
import os
import pathlib
from typing import Any, Literal

from absl import logging
import jax
import jax.numpy as jnp
import numpy as np
import safetensors.numpy

from episodic_dp import _validate
from episodic_dp.models import model as model_lib
from episodic_dp.output import files

Params = Any
Mask = Any  # A tree like the parameters, of bool.
Weights = Mapping[str, np.ndarray]
SUFFIXES = (".npz", ".safetensors")
SHIPPED = ("glyphs",)
"""Starts that the library ships."""
_FLOATS = tuple(
    np.dtype(kind)
    for kind in (np.float32, np.float64, np.float16, jnp.bfloat16)
)
Trained = Literal["all", "scale_shift", "low_rank", "head"]
TRAINED = ("all", "scale_shift", "low_rank", "head")
_NOTHING = {
    "scale_shift": (
        "trained='scale_shift' and the network has no norms (arrays named"
        " 'scale'): use trained='low_rank', or a network with norm='batch' or"
        " 'group'"
    ),
    "head": (
        "trained='head' and the network has no layer {head!r} (the features of"
        " a metric learner have none): use trained='scale_shift' or 'low_rank',"
        " or a learner with a head, such as maml"
    ),
}
_NORM = ("scale", "bias", "offset")


def split(params: Params, mask: Mask) -> tuple[Params, Params]:
  """Split into (where the mask holds, the rest), None elsewhere."""
  chosen = jax.tree.map(lambda m, p: p if m else None, mask, params)
  rest = jax.tree.map(lambda m, p: None if m else p, mask, params)
  return chosen, rest


def merge(chosen: Params, rest: Params) -> Params:
  """Undo `split`."""
  return jax.tree.map(
      lambda a, b: b if a is None else a,
      chosen,
      rest,
      is_leaf=lambda leaf: leaf is None,
  )


def everything(params: Params) -> Mask:
  """Return the mask of all parameters."""
  return jax.tree.map(lambda _: True, params)


def norms(params: Params) -> Mask:
  """Return the mask of the affine parameters of normalisation layers.

  A layer with an array "scale" normalises: its "scale" and its "bias" (in
  Haiku's own layers "offset") are what it multiplies by and adds.
  """
  if not isinstance(params, Mapping):
    return jax.tree.map(lambda _: False, params)
  normalises = "scale" in params and not isinstance(params["scale"], Mapping)
  return {
      name: True if normalises and name in _NORM else norms(part)
      for name, part in params.items()
  }


def is_head(entry: str, name: str) -> bool:
  """Return whether an entry is the layer "head" ("net/head" in Haiku)."""
  return f"/{entry}".endswith(f"/{name}")


def head(params: Params, name: str) -> Mask:
  """Return the mask of the top-level entry ("head", or "net/head" in Haiku).

  Raises:
    ValueError: there is none.
  """
  entries = params if isinstance(params, Mapping) else {}
  found = [key for key in entries if is_head(key, name)]
  if not found:
    raise ValueError(
        f"head {name!r} names none of the network's parameters"
        f" {sorted(entries)}: give the name of its last layer"
    )
  return {
      key: jax.tree.map(lambda _, key=key: key in found, part)
      for key, part in entries.items()
  }


# By name ----------------------------------------------------------------------


def by_name(params: Params) -> dict[str, Any]:
  """Return name -> leaf of nested mappings, such as "block_0/kernel".

  Raises:
    ValueError: the parameters are no nested mappings, or two have one name.
  """
  found: dict[str, Any] = {}
  for path, leaf in jax.tree_util.tree_flatten_with_path(params)[0]:
    if not path or not all(
        isinstance(key, jax.tree_util.DictKey) for key in path
    ):
      raise ValueError(
          "the parameters are no dictionaries of dictionaries of arrays, which"
          " have names: let the network's init return such"
      )
    name = "/".join(str(key.key) for key in path)
    if name in found:
      raise ValueError(f"two arrays of the network have the name {name!r}")
    found[name] = leaf
  return found


def of_names(params: Params, values: Mapping[str, Any]) -> Params:
  """Return nested dictionaries like the parameters, of some names.

  Args:
    params: as for `by_name`.
    values: name -> what takes the place of that leaf; the others are left out,
      and so is a dictionary of which nothing is left.
  """

  def chosen(part: Params, prefix: str) -> Params:
    result = {}
    for key, child in part.items():
      name = f"{prefix}{key}"
      if isinstance(child, Mapping):
        if inner := chosen(child, f"{name}/"):
          result[key] = inner
      elif name in values:
        result[key] = values[name]
    return result

  return chosen(params, "")


def head_names(params: Params, name: str) -> frozenset[str]:
  """Return the names (`by_name`) of the arrays in "head", if any."""
  return frozenset(
      found
      for entry, part in params.items()
      if is_head(entry, name)
      for found in by_name({entry: part})
  )


# Public starts ----------------------------------------------------------------


def start_from(
    model: model_lib.Model,
    weights: Weights,
    *,
    trained: Trained = "all",
    rank: int = 4,
    head: str = "head",
    source: str = "the start",
) -> model_lib.Model:
  """A network that begins with given weights.

  The layer `head` is trained whatever `trained` says. It begins as the weights
  have it where they fit, and is drawn by `init` otherwise; a network without
  such a layer (of a metric learner) has its features trained alone.

  Args:
    model: the network; its parameters are dictionaries of arrays.
    weights: by name, as `read_weights` gives them; public.
    trained: "all"; "scale_shift", the scale and the shift of the norms (FiLM);
      "low_rank", a product of two factors that is added to every kernel (LoRA);
      "head", nothing else.
    rank: of "low_rank", at least 1; that of a smaller kernel is its own.
    head: the name of the last layer, at the top of the parameters.
    source: what the weights are called in a message.

  Returns:
    The Model of what is trained; its `whole` gives all of the network.

  Raises:
    ValueError: the weights do not fit, or nothing would be trained; one
      sentence.
  """
  _validate.one_of("trained", trained, TRAINED)
  _validate.count("rank", rank, 1)
  shapes = jax.eval_shape(model.init, jax.random.key(0))
  start = {
      name: jnp.asarray(array)
      for name, array in _fitted(weights, shapes, source, head).items()
  }
  draw = model.init

  def init(key: jax.Array) -> Params:
    return of_names(shapes, by_name(draw(key)) | start)

  model = model._replace(init=jax.jit(init))
  if trained != "all":
    own_head = head_names(shapes, head)
    if trained == "low_rank":
      model = _low_rank(model, shapes, start, own_head, rank)
    else:
      moving = own_head
      if trained == "scale_shift":
        masks = by_name(norms(shapes))
        moving = frozenset(name for name, is_norm in masks.items() if is_norm)
      if not moving:
        raise ValueError(_NOTHING[trained].format(head=head))
      model = _chosen(model, shapes, start, own_head | moving)
  trained_shapes = jax.eval_shape(model.init, jax.random.key(0))
  logging.info(
      "%s: %d numbers are trained (%s) of a network of %d; new are %s",
      source,
      sum(leaf.size for leaf in jax.tree.leaves(trained_shapes)),
      trained,
      sum(leaf.size for leaf in jax.tree.leaves(shapes)),
      ", ".join(sorted(set(by_name(shapes)) - set(start))) or "nothing",
  )
  return model._replace(start=digest(weights))


def _chosen(
    model: model_lib.Model,
    shapes: Params,
    start: Mapping[str, jax.Array],
    moving: frozenset[str],
) -> model_lib.Model:
  """The network of which the named arrays alone are trained."""
  frozen = {name: a for name, a in start.items() if name not in moving}

  def init(key: jax.Array) -> Params:
    drawn = by_name(model.init(key))
    return of_names(shapes, {name: drawn[name] for name in moving})

  def whole(params: Params) -> Params:
    return of_names(shapes, frozen | by_name(params))

  return _around(model, init, whole)


def _low_rank(
    model: model_lib.Model,
    shapes: Params,
    start: Mapping[str, jax.Array],
    own_head: frozenset[str],
    rank: int,
) -> model_lib.Model:
  """The network to whose kernels products of two factors are added.

  Hu et al., "LoRA" (ICLR 2022), section 4.1: "down" is random, and "up" zero,
  so that the first network is the start. A kernel is taken as a matrix
  [entries, outputs].
  """
  frozen = {name: a for name, a in start.items() if name not in own_head}
  kernels = {
      name: (math.prod(a.shape[:-1]), a.shape[-1])
      for name, a in sorted(frozen.items())
      if a.ndim >= 2
  }
  if not kernels:
    raise ValueError(
        "trained='low_rank' and the network has no kernels (arrays of two axes"
        " or more) before its head: use trained='head' or 'all'"
    )

  def init(key: jax.Array) -> Params:
    drawn = by_name(model.init(key))
    values: dict[str, Any] = {name: drawn[name] for name in own_head}
    for i, (name, (rows, columns)) in enumerate(kernels.items()):
      size = min(rank, rows, columns)
      own = jax.random.fold_in(key, i)
      down = jax.random.normal(own, (rows, size)) / math.sqrt(rows)
      values[name] = {"down": down, "up": jnp.zeros((size, columns))}
    return of_names(shapes, values)

  def whole(params: Params) -> Params:
    given = by_name(params)
    values = frozen | {name: given[name] for name in own_head}
    for name in kernels:
      added = given[f"{name}/down"] @ given[f"{name}/up"]
      values[name] = frozen[name] + added.reshape(frozen[name].shape)
    return of_names(shapes, values)

  return _around(model, init, whole)


def _around(
    model: model_lib.Model,
    init: Callable[[jax.Array], Params],
    whole: Callable[[Params], Params],
) -> model_lib.Model:
  """The Model of what is trained of a network."""
  random = model.random
  return model._replace(
      init=jax.jit(init),
      apply=lambda params, examples: model.apply(whole(params), examples),
      random=random and (
          lambda params, examples, key: random(whole(params), examples, key)
      ),
      whole=whole,
  )


# Files of weights -------------------------------------------------------------


def write_weights(path: str | os.PathLike[str], params: Any) -> None:
  """Write parameters to a file, whole or not at all.

  Args:
    path: ends in .npz or .safetensors.
    params: nested dictionaries of arrays, whose names ("block_0/kernel") the
      file has; those of a run with frozen weights go through `Model.whole`.

  Raises:
    ValueError: another ending, or arrays without a name.
  """
  path = pathlib.Path(path)
  _validate.one_of("ending of the weights", path.suffix, SUFFIXES)
  arrays = {
      name: np.asarray(leaf, order="C")  # A scalar stays one.
      for name, leaf in by_name(params).items()
  }
  with files.replacing(path) as place:
    if path.suffix == ".npz":
      with open(place, "wb") as out:
        np.savez(out, **arrays)  # type: ignore[arg-type]
    else:
      # Not `save_file`, whose errors of a full disk are no OSError.
      place.write_bytes(safetensors.numpy.save(arrays))


def shipped(name: str) -> pathlib.Path:
  """Return the file of a start that the library ships, one of `SHIPPED`."""
  return pathlib.Path(__file__).parent / "starts" / f"{name}.npz"


def read_weights(path: str | os.PathLike[str]) -> dict[str, np.ndarray]:
  """Read the arrays of a file by name; nothing in it is executed.

  Args:
    path: an .npz or .safetensors file; or "glyphs", the public start that the
      library ships for grey images and `conv4` of width 32 without a head
      (`python -m experiments.starts` makes it from generated data alone).

  Raises:
    ValueError: there is none, it cannot be read, or holds no arrays; one
      sentence.
  """
  path = shipped(path) if path in SHIPPED else pathlib.Path(path)
  _validate.one_of("ending of the weights", path.suffix, SUFFIXES)
  try:
    if path.suffix == ".npz":
      with np.load(path, allow_pickle=False) as found:
        return {name: found[name] for name in found.files}
    return safetensors.numpy.load_file(path)
  except Exception as e:  # Either library raises many types for damaged files.
    reason = (str(e).strip().splitlines() or [type(e).__name__])[0]
    if "allow_pickle" in reason:  # NumPy advises to trust the file.
      reason = "it holds Python objects"
    raise ValueError(
        f"the weights {path} cannot be read ({reason[:100]}): give a file of"
        " arrays that numpy.savez or safetensors wrote"
    ) from e


def _fitted(
    weights: Weights, params: Any, source: str, head: str
) -> dict[str, np.ndarray]:
  """Return the arrays of a network, as its own dtypes.

  Those of its head are left out unless all of them are there and fit: tasks of
  other classes have another head.

  Raises:
    ValueError: one is missing, of another shape, no float or not finite, or of
      a name that the network does not have; one sentence.
  """
  shapes = by_name(params)
  own_head = head_names(params, head)
  found = {  # But for the head of a network that had one.
      name: array
      for name, array in weights.items()
      if name in shapes or head not in name.split("/")[:-1]
  }
  if not all(
      name in found and found[name].shape == shapes[name].shape
      for name in own_head
  ):
    found = {k: v for k, v in found.items() if k not in own_head}
    shapes = {k: v for k, v in shapes.items() if k not in own_head}
  if others := sorted(found.keys() ^ shapes.keys()):
    raise ValueError(
        f"{source} and the network differ in {', '.join(others[:4])}: give"
        f" weights by the names of the network, {', '.join(sorted(shapes)[:4])}"
    )
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


def digest(weights: Weights) -> str:
  """Return SHA-256 over names, dtypes, shapes and bytes, in any file form."""
  total = hashlib.sha256()
  for name in sorted(weights):
    array = np.ascontiguousarray(weights[name])
    total.update(f"{name} {array.dtype} {array.shape}\n".encode())
    total.update(array.tobytes())
  return total.hexdigest()
