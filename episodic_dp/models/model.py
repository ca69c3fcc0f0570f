"""What the learners see of a network: a pair of pure functions."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from episodic_dp.models import mixing

Params = Any
Apply = Callable[[Params, jax.Array], jax.Array]
Random = Callable[[Params, jax.Array, jax.Array], jax.Array]


class Model(NamedTuple):
  """A network without state.

  Attributes:
    init: key -> params.
    apply: (params, examples float32 [n, ...]) -> logits float32 [n, way]; pure,
      so that equal examples have equal logits.
    mixes_examples: whether one example's logits may depend on the others
      (batch normalisation). Fine where a whole task is clipped, refused where
      single examples are.
    input_shape: of one example, (H, W, C), (time, channels) or (features,);
      None when unknown.
    way: the number of outputs (logits, or features of a network without a
      head), or None when unknown.
    random: (params, examples, key) -> logits, `apply` while it is trained, for
      a network with random layers such as dropout; None without such.
    key: what they draw from, where they do (`drawing`).
    draws: how often a task is drawn anew in a step; its gradients are averaged
      before they are clipped.
    whole: params -> the parameters of the whole network, where some are frozen
      (`start.start_from`); None where params are all of them.
    start: digest of the weights that it begins with, None where these are
      random; a run's privacy statement says it.
  """

  init: Callable[[jax.Array], Params]
  apply: Apply
  mixes_examples: bool = True
  input_shape: tuple[int, ...] | None = None
  way: int | None = None
  random: Random | None = None
  key: jax.Array | None = None
  draws: int = 1
  whole: Callable[[Params], Params] | None = None
  start: str | None = None

  def drawing(self, key: jax.Array) -> "Model":
    """The network whose random layers draw from a key; itself without such."""
    random = self.random
    if random is None:
      return self
    own = jax.random.fold_in(key, 0)
    return self._replace(
        apply=lambda params, examples: random(params, examples, own), key=key
    )

  def in_pass(self, i: jax.Array | int) -> "Model":
    """The network in pass i = 0, 1, .. over a task, which draws anew."""
    if self.key is None:
      return self
    return self.drawing(jax.random.fold_in(self.key, i + 1))


def mixes(model: Model, input_shape: tuple[int, ...]) -> bool:
  """Whether one example is found to change the outputs of another.

  The network is tried (`mixing`), as it is trained and as it is evaluated; what
  it claims is not read.
  """
  params = jax.eval_shape(model.init, jax.random.key(0))
  trained = model.drawing(jax.random.key(0))
  return any(
      mixing.mixes_examples(apply, params, input_shape)
      for apply in dict.fromkeys((model.apply, trained.apply))
  )


def checked(model: Model, input_shape: tuple[int, ...]) -> Model:
  """The Model with its shapes, after one look at them and at its claim.

  Args:
    model: its `init` and `apply` as a library gives them.
    input_shape: of one example.

  Raises:
    ValueError: no such shape, logits that are not [n, way], or a false claim
      that every example is treated alone.
  """
  if not (1 <= len(input_shape) <= 3 and min(input_shape) >= 1):
    raise ValueError(
        f"input_shape {input_shape} must be (height, width, channels), (time,"
        " channels) or (features,), all at least 1"
    )
  # Compiled: eager initialisation of a network takes seconds.
  model = model._replace(init=jax.jit(model.init))
  examples = jax.ShapeDtypeStruct((2, *input_shape), jnp.float32)
  params = jax.eval_shape(model.init, jax.random.key(0))
  outputs = (
      jax.eval_shape(function, params, examples)
      for function in (model.apply, model.drawing(jax.random.key(0)).apply)
  )
  for logits in outputs:
    if getattr(logits, "ndim", 0) != 2 or logits.shape[0] != 2:
      raise ValueError(
          f"the model maps examples {examples.shape} to"
          f" {getattr(logits, 'shape', type(logits).__name__)}: it must return"
          " logits [n, way]"
      )
  if not model.mixes_examples and mixes(model, tuple(input_shape)):
    raise ValueError(
        "mixes_examples=False, and changing one example changes the logits of"
        " another: remove the layer that mixes them, or say"
        " mixes_examples=True"
    )
  return model._replace(input_shape=tuple(input_shape), way=logits.shape[1])
