"""The inner loop: a few gradient steps on one set of examples."""

from collections.abc import Callable
from typing import Literal

import jax
from jax import lax
import jax.numpy as jnp

from episodic_dp import backends
from episodic_dp.models.model import Params
from episodic_dp.sampling import episodes

# Maps the loss of an inner step, (params, examples, step) -> scalar, to its
# gradient, (params, examples, step) -> like params.
InnerGradient = Callable[
    [Callable[[Params, episodes.Examples, jax.Array | int], jax.Array]],
    Callable[..., Params],
]


def descend(
    gradient: Callable[..., Params],
    params: Params,
    examples: episodes.Examples,
    *,
    steps: int,
    rate: float | Callable[[jax.Array | int], Params],
    order: Literal["first", "second"] = "second",
    visit: Callable[[Params, jax.Array | int], jax.Array] | None = None,
) -> tuple[Params, jax.Array | None]:
  """Take gradient steps: params <- params - rate * gradient, `steps` times.

  Args:
    gradient: (params, examples, step) -> like params.
    params: initial parameters; entries that are None are left out.
    examples: passed to the gradient.
    steps: number of steps, at least 1.
    rate: one rate for all, or step -> tree like params of rates (scalars, or
      arrays like the parameters).
    order: "first" treats the gradients as constants when this is
      differentiated.
    visit: (params, step) -> scalar, called after every step.

  Returns:
    The parameters after the last step, and the values of `visit`, [steps].
  """

  def take(params: Params, i: jax.Array) -> tuple[Params, jax.Array | None]:
    slope = gradient(params, examples, i)
    if order == "first":
      slope = lax.stop_gradient(slope)
    if callable(rate):
      params = jax.tree.map(lambda p, g, r: p - r * g, params, slope, rate(i))
    else:
      params = jax.tree.map(lambda p, g: p - rate * g, params, slope)
    if visit is None:
      return params, None
    return params, visit(params, i)

  # A loop compiles its step once; a single step needs none.
  unroll = steps == 1 or not backends.choices().loops
  return lax.scan(take, params, jnp.arange(steps), unroll=unroll)
