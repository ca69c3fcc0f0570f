"""An average of the iterates, which is what a run gives away.

Under noise the last parameters are a point of a cloud around the path of the
training; their average is nearer to it. It is a function of what is released
anyway (of the noised updates), so that it costs no privacy. De, Berrada, Hayes,
Smith and Balle, "Unlocking High-Accuracy Differentially Private Image
Classification through Scale" (2022), section 3.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from episodic_dp.private import state as state_lib


class Averaged(NamedTuple):
  """The state of `averaged`.

  Attributes:
    average: of the parameters, with their shapes.
    steps: int32 scalar, how many it is of.
    inner: the optimiser's own.
  """

  average: Any
  steps: jax.Array
  inner: Any


def averaged(
    optimizer: optax.GradientTransformation, decay: float
) -> optax.GradientTransformation:
  """The same updates, and an average of the parameters that they give.

  After step t it becomes d average + (1 - d) parameters with d the smaller of
  `decay` and t / (t + 1): the plain mean of the first 1 / (1 - decay) steps, an
  exponential one from there on.

  Args:
    optimizer: any.
    decay: at least 0 and below 1; about 1 / (1 - decay) steps are averaged.

  Raises:
    ValueError: another decay.
  """
  if not 0 <= decay < 1:
    raise ValueError(f"decay {decay} must be at least 0 and below 1")

  def init(params: Any) -> Averaged:
    return Averaged(params, jnp.zeros((), jnp.int32), optimizer.init(params))

  def update(updates: Any, state: Averaged, params: Any = None) -> Any:
    updates, inner = optimizer.update(updates, state.inner, params)
    new, count = optax.apply_updates(params, updates), state.steps
    share = 1 - jnp.minimum(decay, count / (count + 1.0))
    average = jax.tree.map(
        lambda a, b: a + share.astype(a.dtype) * (b - a), state.average, new
    )
    return updates, Averaged(average, count + 1, inner)

  return optax.GradientTransformation(init, update)


def published(state: state_lib.State) -> Any:
  """What of a state is the model: the average, or the parameters themselves."""
  if isinstance(state.opt_state, Averaged):
    return state.opt_state.average
  return state.params
