"""Parts of a tree of parameters: those that adapt, norms, a head."""

from collections.abc import Mapping
from typing import Any

import jax

Params = Any
Mask = Any  # A tree like the parameters, of bool.

_NORM = ("scale", "bias", "offset")


def split(params: Params, mask: Mask) -> tuple[Params, Params]:
  """(where the mask holds, the rest); what is absent is None in either."""
  chosen = jax.tree.map(lambda m, p: p if m else None, mask, params)
  rest = jax.tree.map(lambda m, p: None if m else p, mask, params)
  return chosen, rest


def merge(chosen: Params, rest: Params) -> Params:
  """Undoes `split`."""
  return jax.tree.map(
      lambda a, b: b if a is None else a,
      chosen,
      rest,
      is_leaf=lambda leaf: leaf is None,
  )


def everything(params: Params) -> Mask:
  """All parameters."""
  return jax.tree.map(lambda _: True, params)


def norms(params: Params) -> Mask:
  """The affine parameters of normalisation layers.

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


def head(params: Params, name: str) -> Mask:
  """The top-level entry of this name ("head", or "network/head" in Haiku).

  Raises:
    ValueError: there is none.
  """
  entries = params if isinstance(params, Mapping) else {}
  found = [key for key in entries if f"/{key}".endswith(f"/{name}")]
  if not found:
    raise ValueError(
        f"head {name!r} names none of the network's parameters"
        f" {sorted(entries)}: give the name of its last layer"
    )
  return {
      key: jax.tree.map(lambda _, key=key: key in found, part)
      for key, part in entries.items()
  }
