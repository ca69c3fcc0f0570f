"""Weights of the query losses after each inner step: MAML++'s multi-step loss.

Antoniou, Edwards and Storkey, "How to train your MAML" (ICLR 2019), section 4.
A schedule reads the number of the outer step, which is public, and nothing
else: the weights cost no privacy.
"""

from collections.abc import Callable
import math
from typing import Any

import jax
import jax.numpy as jnp

_EPOCHS = 10  # Stages in which the weights move, as in the authors' code.


def annealed(
    inner_steps: int, outer_steps: int
) -> Callable[[jax.Array], jax.Array]:
  """The authors' schedule: all steps alike at first, then the last alone.

  In stage e = 0 .. 9, each a tenth of `outer_steps`, an earlier step has the
  weight (1 - e / 10) / S for S inner steps, and the last one the rest up to
  one. After `outer_steps` only the last step counts.

  Args:
    inner_steps: S, at least 1.
    outer_steps: how long the weights move, at least 1.

  Returns:
    outer step -> float32[inner_steps], with sum 1.

  Raises:
    ValueError: either is below 1.
  """
  for name, value in (
      ("inner_steps", inner_steps), ("outer_steps", outer_steps)
  ):
    if value < 1:
      raise ValueError(f"{name} {value} must be at least 1")

  def weights(step: jax.Array) -> jax.Array:
    stage = _EPOCHS * jnp.minimum(step, outer_steps) // outer_steps
    early = (1 - stage / _EPOCHS) / inner_steps
    last = jnp.arange(inner_steps) == inner_steps - 1
    return jnp.where(last, 1 - (inner_steps - 1) * early, early)

  return weights


def check(weights: Any, inner_steps: int) -> None:
  """ValueError unless these are weights of so many steps, or a schedule."""
  if weights is None or callable(weights):
    return
  if isinstance(weights, jax.Array):  # A schedule's: its values are not known.
    if weights.shape != (inner_steps,):
      raise ValueError(
          f"loss_weights of shape {weights.shape}: a schedule must give"
          f" ({inner_steps},), one for each inner step"
      )
    return
  weights = tuple(weights)
  if (
      len(weights) != inner_steps
      or not all(0 <= w < math.inf for w in weights)
      or not sum(weights)
  ):
    raise ValueError(
        f"loss_weights {weights} must be {inner_steps} numbers, one for each"
        " inner step, none negative and not all zero"
    )


def resolved(weights: Any) -> jax.Array:
  """The weights as an array; ValueError for a schedule without a step."""
  if callable(weights):
    raise ValueError(
        "loss_weights is a schedule: take the loss of learner.at_step(step)"
    )
  return jnp.asarray(weights)
