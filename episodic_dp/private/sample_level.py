"""Sample-level DP-MAML: every example is a clip unit, in support and query.

Algorithm 2 of [M] "Meta-Learning with Differential Privacy" (DP-MAML), with
first-order outer gradients and sums divided by public counts.

Formal guarantees
-----------------
The outer sum depends on the examples of a task as follows. C_in and z_in are
the inner clip norm and noise multiplier, C is the outer clip norm.

| replaced example | affected quantity | change at most |
| --- | --- | --- |
| in the support set | each inner sum, before N(0, (z_in C_in)^2 I) | 2 C_in |
| in the query set | the outer sum | 2 C |

The gradient of one example depends only on that example and the parameters. The
parameters of inner step i + 1 depend on the noised sums of steps 0 .. i.
Nothing else reads the support set: noised gradients are constants of the outer
gradient. The inner noise depends on the task's key and on the inner step, and a
noised sum is used once.
"""

from collections.abc import Callable

import jax
from jax import lax

from episodic_dp import learners
from episodic_dp import plan as plan_lib
from episodic_dp.models.model import Params
from episodic_dp.private import clipping
from episodic_dp.private import noise
from episodic_dp.sampling import episodes

# (params, examples, inner step) -> scalar, and -> tree like params.
Loss = Callable[[Params, episodes.Examples, jax.Array | int], jax.Array]
Gradient = Callable[[Params, episodes.Examples, jax.Array | int], Params]


def inner_gradient(
    mechanism: plan_lib.Mechanism, key: jax.Array
) -> Callable[[Loss], Gradient]:
  """Make the private gradient for `adapt(params, support, inner_gradient=...)`.

  Args:
    mechanism: its `inner_clip_norm`, `inner_noise_multiplier` and `clip_by`.
    key: key of one task; inner step i folds i into it.

  Returns:
    loss -> gradient, in place of `jax.grad(loss)`: the gradients of single
    examples, clipped to C_in, summed and noised, divided by their number (way *
    shot, which is public).
  """
  clip_norm = mechanism.inner_clip_norm
  multiplier = mechanism.inner_noise_multiplier
  assert clip_norm is not None and multiplier is not None

  def make(loss: Loss) -> Gradient:
    def gradient(
        params: Params, examples: episodes.Examples, step: jax.Array | int
    ) -> Params:
      def of_one(example: episodes.Examples) -> Params:
        slope = jax.grad(loss)(params, episodes.batch_of(example), step)
        return clipping.clip(slope, clip_norm, mechanism.clip_by).gradient

      clipped = jax.vmap(of_one)(examples)
      noised = noise.add_noise(
          jax.random.fold_in(key, step),
          clipping.sum_units(clipped),
          clip_norm * multiplier,
      )
      count = jax.tree.leaves(examples)[0].shape[0]
      mean = jax.tree.map(
          lambda g, p: (g / count).astype(p.dtype), noised, params
      )
      # A constant for the outer gradient: a derivative of the loss would read
      # the support examples again, without noise.
      return lax.stop_gradient(mean)

    return gradient

  return make


def query_sum(
    learner: learners.Learner,
    mechanism: plan_lib.Mechanism,
    params: Params,
    task: episodes.EpisodeBatch,
    key: jax.Array,
    bounds: jax.Array,
) -> tuple[jax.Array, clipping.Clipped]:
  """Sum one task's clipped query gradients after private adaptation.

  The gradient of a query example is that of its loss at the adapted parameters,
  propagated back to `params` through `adapt` with the noised inner gradients as
  constants: for MAML the first-order gradient of [M].

  Args:
    learner: a learner with `example_gradients`.
    mechanism: the inner clip norm and noise.
    params: the parameters that the task adapts.
    task: `support` and `query`.
    key: key of this task's inner noise.
    bounds: float32[groups], the outer clip norm, as in `clipping.clip`.

  Returns:
    (mean query loss; `Clipped` with the sum of the clipped gradients, and its
    other attributes as arrays [query examples])
  """
  adapted, pull_back = jax.vjp(
      lambda p: learner.adapt(
          p, task.support, inner_gradient=inner_gradient(mechanism, key)
      ),
      params,
  )

  def of_one(example: episodes.Examples) -> tuple[jax.Array, clipping.Clipped]:
    loss, slope = jax.value_and_grad(learner.adapted_loss)(
        adapted, episodes.batch_of(example)
    )
    (slope,) = pull_back(slope)
    return loss, clipping.clip(slope, bounds, mechanism.clip_by)

  losses, clipped = jax.vmap(of_one)(task.query)
  total = clipping.sum_units(clipped.gradient)
  return losses.mean(), clipped._replace(gradient=total)
