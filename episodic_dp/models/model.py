"""What the learners see of a network: a pair of pure functions."""

from collections.abc import Callable
from typing import Any, NamedTuple

from flax import linen as nn
from flax import nnx
import haiku as hk
import jax
import jax.numpy as jnp

from episodic_dp import plan
from episodic_dp.models import mixing

Params = Any


class Model(NamedTuple):
  """A network without state.

  Attributes:
    init: key -> params.
    apply: (params, images float32 [n, H, W, C]) -> logits float32 [n, way].
    mixes_examples: whether one example's logits may depend on the others
      (batch normalisation). Fine where a whole task is clipped, refused where
      single examples are.
    input_shape: (H, W, C), or None when unknown.
    way: the number of outputs (logits, or features of a network without a
      head), or None when unknown.
  """

  init: Callable[[jax.Array], Params]
  apply: Callable[[Params, jax.Array], jax.Array]
  mixes_examples: bool = True
  input_shape: tuple[int, int, int] | None = None
  way: int | None = None


def from_flax(
    module: nn.Module,
    input_shape: tuple[int, int, int],
    *,
    mixes_examples: bool = True,
) -> Model:
  """A Flax Linen module, called with images alone, as a Model.

  Args:
    module: images [n, H, W, C] -> logits [n, way]; its only collection of
      variables must be "params".
    input_shape: (H, W, C).
    mixes_examples: False claims that every example is treated alone; the claim
      is tried on random weights.

  Raises:
    plan.UnsoundPlanError: the module carries statistics or other state from
      call to call (for example "batch_stats").
    ValueError: the claim fails, or the logits are not [n, way].
  """

  def init(key):
    return module.init(key, jnp.zeros((1, *input_shape)))

  collections = sorted(set(_shapes(init, jax.random.key(0))) - {"params"})
  if collections:
    raise _carried(type(module).__name__, f"collections {collections}")

  def apply(params, images):
    return module.apply({"params": params}, images)

  return _checked(
      lambda key: init(key).get("params", {}), apply, mixes_examples,
      input_shape,
  )


def from_nnx(
    build: Callable[[nnx.Rngs], nnx.Module],
    input_shape: tuple[int, int, int],
    *,
    mixes_examples: bool = True,
) -> Model:
  """A Flax NNX module, called with images alone, as a Model.

  Args:
    build: rngs -> the module; all its variables must be `nnx.Param`.
    input_shape: (H, W, C).
    mixes_examples: as in `from_flax`.

  Raises:
    plan.UnsoundPlanError: the module has other variables (running statistics,
      random state).
    ValueError: as in `from_flax`.
  """
  module = nnx.eval_shape(lambda: build(nnx.Rngs(0)))
  graph, *states = nnx.split(module, nnx.Param, ...)
  shapes, rest = states
  if others := sorted({type(v).__name__ for _, v in nnx.to_flat_state(rest)}):
    raise _carried(type(module).__name__, f"variables {others}")

  def init(key):
    return nnx.to_pure_dict(nnx.state(build(nnx.Rngs(key)), nnx.Param))

  def apply(params, images):
    state = jax.tree.map(lambda shape: shape, shapes)  # A copy to write to.
    nnx.replace_by_pure_dict(state, params)
    return nnx.merge(graph, state)(images)

  return _checked(init, apply, mixes_examples, input_shape)


def from_haiku(
    transformed: hk.Transformed | hk.TransformedWithState,
    input_shape: tuple[int, int, int],
    *,
    mixes_examples: bool = True,
) -> Model:
  """A transformed Haiku function of images as a Model.

  Args:
    transformed: from `hk.transform`, or from `hk.transform_with_state` when the
      state is empty; it may not ask for random keys after initialisation.
    input_shape: (H, W, C).
    mixes_examples: as in `from_flax`.

  Raises:
    plan.UnsoundPlanError: the function has state.
    ValueError: as in `from_flax`.
  """
  example = jnp.zeros((1, *input_shape))
  if isinstance(transformed, hk.TransformedWithState):
    _, state = _shapes(lambda key: transformed.init(key, example),
                       jax.random.key(0))
    if state:
      raise _carried("the Haiku function", f"state {sorted(state)}")
    transformed = hk.without_state(transformed)
  stateless = transformed

  def apply(params, images):
    return stateless.apply(params, None, images)

  return _checked(
      lambda key: stateless.init(key, example), apply, mixes_examples,
      input_shape,
  )


def _shapes(function, *arguments):
  return jax.eval_shape(function, *arguments)


def _carried(who: str, what: str) -> plan.UnsoundPlanError:
  return plan.UnsoundPlanError(
      f"{who} has {what}: statistics carried from task to task release what no"
      " clipping bounds; use the current batch's statistics (norm='batch'), or"
      " norm='group'"
  )


def _checked(
    init: Callable[[jax.Array], Any],
    apply: Callable[[Any, jax.Array], jax.Array],
    mixes_examples: bool,
    input_shape: tuple[int, int, int],
) -> Model:
  """The Model, after one look at its shapes and its claim."""
  if len(input_shape) != 3:
    raise ValueError(f"input_shape {input_shape} must be (height, width,"
                     " channels)")
  # Compiled: eager initialisation of a network takes seconds.
  init = jax.jit(init)
  images = jax.ShapeDtypeStruct((2, *input_shape), jnp.float32)
  params = _shapes(init, jax.random.key(0))
  logits = _shapes(apply, params, images)
  if getattr(logits, "ndim", 0) != 2 or logits.shape[0] != 2:
    raise ValueError(
        f"the model maps images {images.shape} to"
        f" {getattr(logits, 'shape', type(logits).__name__)}: it must return"
        " logits [n, way]"
    )
  if not mixes_examples and mixing.mixes_examples(
      apply, params, tuple(input_shape)
  ):
    raise ValueError(
        "mixes_examples=False, and changing one image changes the logits of"
        " another: remove the layer that mixes them, or say"
        " mixes_examples=True"
    )
  height, width, channels = input_shape
  return Model(
      init, apply, mixes_examples, (height, width, channels), logits.shape[1]
  )
