"""Networks of Flax Linen, Flax NNX and Haiku as pairs of pure functions.

Each is called with examples alone. With `random_layers=True` a Linen module or
a Haiku function is called with the argument `train` besides: True, and with a
key of the task, where it is trained, and False elsewhere. A module of NNX is
put into training or evaluation by its own `train()` and `eval()`.
"""

from collections.abc import Callable
import inspect
from typing import Any

from flax import linen as nn
from flax import nnx
import haiku as hk
import jax
import jax.numpy as jnp

from episodic_dp import plan
from episodic_dp.models import model as model_lib


def from_flax(
    module: nn.Module,
    input_shape: tuple[int, ...],
    *,
    mixes_examples: bool = True,
    random_layers: bool = False,
) -> model_lib.Model:
  """Return a Flax Linen module as a Model.

  Args:
    module: examples [n, ...] -> logits [n, way]; its only collection of
      variables must be "params".
    input_shape: of one example, (H, W, C), (time, channels) or (features,).
    mixes_examples: False claims that every example is treated alone; the claim
      is tried on random weights.
    random_layers: whether it takes `train` and has layers that draw.

  Raises:
    plan.UnsoundPlanError: the module carries statistics or other state from
      call to call (for example "batch_stats").
    ValueError: the claim fails, the logits are not [n, way], or the module
      takes no `train`. A module that draws unasked fails as Flax says.
  """
  name = type(module).__name__
  takes_train = "train" in inspect.signature(type(module).__call__).parameters
  if random_layers and not takes_train:
    raise ValueError(
        f"random_layers=True, and the __call__ of {name} takes no argument"
        " train: give it one, (examples, train), and let its random layers draw"
        " where train is True"
    )
  still: dict[str, Any] = {"train": False} if random_layers else {}

  def init(key):
    return module.init(key, jnp.zeros((1, *input_shape)), **still)

  def apply(params, examples):
    return module.apply({"params": params}, examples, **still)

  def random(params, examples, key):
    # Streams of any name ("dropout") are drawn from the one that is there.
    return module.apply(
        {"params": params}, examples, train=True, rngs={"params": key}
    )

  collections = sorted(
      set(jax.eval_shape(init, jax.random.key(0))) - {"params"}
  )
  if collections:
    raise _carried(name, f"collections {collections}")
  return _checked(
      lambda key: init(key).get("params", {}),
      apply,
      random if random_layers else None,
      mixes_examples,
      input_shape,
  )


def from_nnx(
    build: Callable[[nnx.Rngs], nnx.Module],
    input_shape: tuple[int, ...],
    *,
    mixes_examples: bool = True,
    random_layers: bool = False,
) -> model_lib.Model:
  """Return a Flax NNX module as a Model.

  Args:
    build: rngs -> the module; its variables must be `nnx.Param`, and with
      `random_layers` random state.
    input_shape: as in `from_flax`.
    mixes_examples: as in `from_flax`.
    random_layers: whether it has layers that draw, such as `nnx.Dropout`.

  Raises:
    plan.UnsoundPlanError: the module has other variables (running statistics).
    ValueError: as in `from_flax`.
  """
  module = nnx.eval_shape(lambda: build(nnx.Rngs(0)))
  name = type(module).__name__
  graph, *states = nnx.split(module, nnx.Param, nnx.RngState, ...)
  shapes, streams, rest = states
  if others := sorted({type(v).__name__ for _, v in nnx.to_flat_state(rest)}):
    raise _carried(name, f"variables {others}")
  if nnx.to_flat_state(streams) and not random_layers:
    raise ValueError(
        f"{name} has layers that draw random numbers (dropout): say"
        " random_layers=True, with which they draw from a key of the task while"
        " it is trained, and not at all where it is evaluated"
    )

  def init(key):
    return nnx.to_pure_dict(nnx.state(build(nnx.Rngs(key)), nnx.Param))

  def call(params, examples, key, train):
    state = jax.tree.map(lambda shape: shape, shapes)  # A copy to write to.
    nnx.replace_by_pure_dict(state, params)
    if not random_layers:
      return nnx.merge(graph, state)(examples)
    module = nnx.merge(graph, state, _seeded(streams, key))
    (module.train if train else module.eval)()
    return module(examples)

  return _checked(
      init,
      # What is evaluated draws nothing: any key will do.
      lambda params, examples: call(params, examples, jax.random.key(0), False),
      (lambda params, examples, key: call(params, examples, key, True))
      if random_layers
      else None,
      mixes_examples,
      input_shape,
  )


def _seeded(streams: Any, key: jax.Array) -> Any:
  """Return the random state of an NNX module, each stream with own key."""
  keys = iter(range(len(jax.tree.leaves(streams))))

  def seeded(shape):
    if not jnp.issubdtype(shape.dtype, jax.dtypes.prng_key):
      return jnp.zeros(shape.shape, shape.dtype)  # How often it was drawn from.
    own = jax.random.fold_in(key, next(keys))
    return own if not shape.shape else jax.random.split(own, shape.shape)

  return jax.tree.map(seeded, streams)


def from_haiku(
    transformed: hk.Transformed | hk.TransformedWithState,
    input_shape: tuple[int, ...],
    *,
    mixes_examples: bool = True,
    random_layers: bool = False,
) -> model_lib.Model:
  """Return a transformed Haiku function as a Model.

  Args:
    transformed: from `hk.transform`, or from `hk.transform_with_state` when the
      state is empty.
    input_shape: as in `from_flax`.
    mixes_examples: as in `from_flax`.
    random_layers: whether it takes `train` and has layers that draw.

  Raises:
    plan.UnsoundPlanError: the function has state.
    ValueError: as in `from_flax`.
  """
  example = jnp.zeros((1, *input_shape))
  still: dict[str, Any] = {"train": False} if random_layers else {}
  stateless = (
      hk.without_state(transformed)
      if isinstance(transformed, hk.TransformedWithState)
      else transformed
  )

  def init(key):
    return stateless.init(key, example, **still)

  def apply(params, examples):
    return stateless.apply(params, None, examples, **still)

  def random(params, examples, key):
    return stateless.apply(params, key, examples, train=True)

  if isinstance(transformed, hk.TransformedWithState):
    _, state = jax.eval_shape(
        lambda key: transformed.init(key, example, **still), jax.random.key(0)
    )
    if state:
      raise _carried("the Haiku function", f"state {sorted(state)}")
  return _checked(
      init,
      apply,
      random if random_layers else None,
      mixes_examples,
      input_shape,
  )


def _checked(
    init: Callable[[jax.Array], Any],
    apply: model_lib.Apply,
    random: model_lib.Random | None,
    mixes_examples: bool,
    input_shape: tuple[int, ...],
) -> model_lib.Model:
  model = model_lib.Model(init, apply, mixes_examples, random=random)
  return model_lib.checked(model, input_shape)


# What is refused --------------------------------------------------------------


def _carried(who: str, what: str) -> plan.UnsoundPlanError:
  return plan.UnsoundPlanError(
      f"{who} has {what}: statistics carried from task to task release what no"
      " clipping bounds; use the current batch's statistics"
      " (models.batch_norm, norm='batch'), or models.group_norm, norm='group'"
  )
