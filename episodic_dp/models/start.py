"""Public weights to start from, and what of the network is trained.

A network that learned elsewhere is a start: either all of it is trained on, or
it stays as it is but for a few numbers. Only what is trained is among the
parameters that a learner sees, so that only that is differentiated, clipped,
noised and stored: noise of a given multiplier has a norm that grows with the
root of how many numbers there are.

The start is taken for public: what it tells of anybody's data is not covered by
the guarantee of the run that begins with it.
"""

from collections.abc import Callable, Mapping
import math
from typing import Any, Literal

from absl import logging
import jax
import jax.numpy as jnp

from episodic_dp.models import model as model_lib
from episodic_dp.models import parts
from episodic_dp.models import weights as weights_lib

Params = Any
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


def start_from(
    model: model_lib.Model,
    weights: weights_lib.Weights,
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
  if trained not in TRAINED:
    raise ValueError(f"trained={trained!r} must be one of {TRAINED}")
  if rank < 1:
    raise ValueError(f"rank {rank} must be at least 1")
  shapes = jax.eval_shape(model.init, jax.random.key(0))
  fitted = weights_lib.fitted(weights, shapes, source=source, head=head)
  start = {name: jnp.asarray(array) for name, array in fitted.items()}
  draw = model.init

  def init(key: jax.Array) -> Params:
    return parts.of_names(shapes, parts.by_name(draw(key)) | start)

  model = model._replace(init=jax.jit(init))
  if trained != "all":
    own_head = parts.head_names(shapes, head)
    if trained == "low_rank":
      model = _low_rank(model, shapes, start, own_head, rank)
    else:
      norms = _norms(shapes) if trained == "scale_shift" else frozenset()
      model = _chosen(model, shapes, start, own_head | norms)
      if not (norms or (trained == "head" and own_head)):
        raise ValueError(_NOTHING[trained].format(head=head))
  _tell(model, shapes, start, trained=trained, source=source)
  return model._replace(start=weights_lib.digest(weights))


def _norms(shapes: Params) -> frozenset[str]:
  """The names of scales and shifts of norms."""
  mask = parts.by_name(parts.norms(shapes))
  return frozenset(name for name, norm in mask.items() if norm)


def _chosen(
    model: model_lib.Model,
    shapes: Params,
    start: Mapping[str, jax.Array],
    moving: frozenset[str],
) -> model_lib.Model:
  """The network of which the named arrays alone are trained."""
  frozen = {name: a for name, a in start.items() if name not in moving}

  def init(key: jax.Array) -> Params:
    drawn = parts.by_name(model.init(key))
    return parts.of_names(shapes, {name: drawn[name] for name in moving})

  def whole(params: Params) -> Params:
    return parts.of_names(shapes, frozen | parts.by_name(params))

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
    drawn = parts.by_name(model.init(key))
    values: dict[str, Any] = {name: drawn[name] for name in own_head}
    for i, (name, (rows, columns)) in enumerate(kernels.items()):
      size = min(rank, rows, columns)
      own = jax.random.fold_in(key, i)
      down = jax.random.normal(own, (rows, size)) / math.sqrt(rows)
      values[name] = {"down": down, "up": jnp.zeros((size, columns))}
    return parts.of_names(shapes, values)

  def whole(params: Params) -> Params:
    given = parts.by_name(params)
    values = frozen | {name: given[name] for name in own_head}
    for name in kernels:
      added = given[f"{name}/down"] @ given[f"{name}/up"]
      values[name] = frozen[name] + added.reshape(frozen[name].shape)
    return parts.of_names(shapes, values)

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


def _tell(
    model: model_lib.Model,
    shapes: Params,
    start: Mapping[str, jax.Array],
    *,
    trained: str,
    source: str,
) -> None:
  """Says how many numbers are trained, and which arrays begin anew."""
  count = sum(
      math.prod(leaf.shape)
      for leaf in jax.tree.leaves(jax.eval_shape(model.init, jax.random.key(0)))
  )
  sizes = {k: math.prod(a.shape) for k, a in parts.by_name(shapes).items()}
  anew = sorted(set(sizes) - set(start))
  logging.info(
      "%s: %d numbers are trained (%s) of a network of %d%s",
      source,
      count,
      trained,
      sum(sizes.values()),
      f"; drawn anew: {', '.join(anew)}" if anew else "",
  )
