"""What a run carries from step to step."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from episodic_dp import learners
from episodic_dp import plan as plan_lib
from episodic_dp.private import adaptive
from episodic_dp.private import keys


class State(NamedTuple):
  """What a run carries from one step to the next.

  Attributes:
    params: the meta-parameters.
    opt_state: the optimizer's.
    step: int32 scalar, steps done.
    key: the run's secret key (typed), the same in all steps.
    clip: what the clip norm adapts by (see `adaptive`), () where it is fixed;
      with clipping="percentile_window" it holds norms of single tasks, which
      are private data.
  """

  params: Any
  opt_state: Any
  step: jax.Array
  key: jax.Array
  clip: adaptive.ClipState = ()


Metrics = dict[str, jax.Array]


def init(
    key: jax.Array,
    learner: learners.Learner,
    optimizer: optax.GradientTransformation,
    mechanism: plan_lib.Mechanism,
    *,
    params: Any = None,
) -> State:
  """The state before the first step.

  Args:
    key: the run's secret key, from `secret_key`.
    learner: as in `make_meta_step`.
    optimizer: an Optax transformation.
    mechanism: what will be released.
    params: where to start (copied); None draws them with the learner.

  Raises:
    ValueError: the key is not one typed key of threefry.

  Examples:
    >>> import optax
    >>> from episodic_dp import learners, models, plan, private
    >>> learner = learners.MAML(models.mlp(5, (8,), (28, 28, 1)), inner_steps=1)
    >>> m = plan.Mechanism(clip_unit="participant", noise_multiplier=1.0)
    >>> state = private.init(
    ...     private.secret_key(), learner, optax.adam(0.01), m
    ... )
    >>> int(state.step)
    0
  """
  keys.check_key(key)
  if params is None:
    params = learner.init(jax.random.fold_in(key, keys.PARAMETERS))
  data = jnp.array(jax.random.key_data(key), copy=True)
  return State(
      _copy(params),
      _copy(optimizer.init(params)),
      jnp.zeros((), jnp.int32),
      jax.random.wrap_key_data(data, impl=jax.random.key_impl(key)),
      adaptive.init(mechanism, params),
  )


def _copy(tree: Any) -> Any:
  """New arrays: a step donates its state, the caller keeps the originals."""
  return jax.tree.map(lambda a: jnp.array(a, copy=True), tree)
