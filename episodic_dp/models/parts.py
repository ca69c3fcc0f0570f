"""Parts of a tree of parameters: those that adapt, norms, a head."""

from collections.abc import Mapping
from typing import Any

import jax

Params = Any
Mask = Any  # A tree like the parameters, of bool.

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
