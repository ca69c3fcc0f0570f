"""The state that a run carries from step to step, and the iterates' average.

A run publishes the average. Under noise the last parameters scatter around the
path of the training, and their average is nearer to that path. It is a function
of the released, noised updates and costs no privacy: De, Berrada, Hayes, Smith
and Balle, "Unlocking High-Accuracy Differentially Private Image Classification
through Scale" (2022), section 3.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from episodic_dp import learners
from episodic_dp import options
from episodic_dp import plan as plan_lib
from episodic_dp.models.model import Params
from episodic_dp.private import keys
from episodic_dp.private import quantile

Metrics = dict[str, jax.Array]


class State(NamedTuple):
  """The state that a run carries from one step to the next.

  Attributes:
    params: the meta-parameters.
    opt_state: the optimizer's state.
    step: int32 scalar, steps done.
    key: the run's secret key (typed), the same in all steps; `repr` hides it.
    clip: float32[groups], the clip norm of the next step, for the whole
      gradient (one group) or for each array; with
      clipping="percentile_window" a `quantile.Window`, which holds norms of
      single tasks: private data.
  """

  params: Params
  opt_state: optax.OptState
  step: jax.Array
  key: jax.Array
  clip: Any

  @property
  def bounds(self) -> jax.Array:
    """Return the clip norm of the next step: float32[groups]."""
    if isinstance(self.clip, quantile.Window):
      return self.clip.bounds
    return self.clip

  def __repr__(self) -> str:
    shapes = jax.tree.map(lambda a: f"{a.dtype}{list(a.shape)}", self.params)
    return f"State(step={self.step}, params={shapes}, key=<secret>)"


def init(
    key: jax.Array,
    learner: learners.Learner,
    optimizer: optax.GradientTransformation,
    mechanism: plan_lib.Mechanism,
    *,
    params: Params | None = None,
) -> State:
  """Return the state before the first step.

  Args:
    key: the run's secret key, from `secret_key`.
    learner: as in `make_meta_step`.
    optimizer: an Optax transformation.
    mechanism: the released vector of a step.
    params: initial parameters (copied); None initialises them by the learner.

  Raises:
    RunError: the key is not one typed key of threefry.

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
  state = State(
      params,
      optimizer.init(params),
      jnp.zeros((), jnp.int32),
      key,
      quantile.init(mechanism, params),
  )
  # A step donates its state; the caller's arrays must stay valid.
  return jax.tree.map(jnp.copy, state)


class Averaged(NamedTuple):
  """The state of `averaged`.

  Attributes:
    average: of the parameters, with their shapes.
    steps: int32 scalar, the number of averaged steps.
    inner: the optimizer's state.
  """

  average: Params
  steps: jax.Array
  inner: optax.OptState


def averaged(
    optimizer: optax.GradientTransformation, decay: float
) -> optax.GradientTransformation:
  """Return the optimizer with an average of the parameters in its state.

  The updates stay the same. After step t the average becomes d average +
  (1 - d) parameters with d the smaller of `decay` and t / (t + 1): first the
  plain mean of 1 / (1 - decay) steps, then an exponential mean.

  Args:
    optimizer: any Optax transformation.
    decay: at least 0 and below 1; about 1 / (1 - decay) steps are averaged.
  """

  def init(params: Params) -> Averaged:
    return Averaged(params, jnp.zeros((), jnp.int32), optimizer.init(params))

  def update(
      updates: Params, state: Averaged, params: Params | None = None
  ) -> tuple[Params, Averaged]:
    updates, inner = optimizer.update(updates, state.inner, params)
    new, count = optax.apply_updates(params, updates), state.steps
    before = count.astype(jnp.float32)
    share = 1 - jnp.minimum(decay, before / (before + 1.0))
    average = jax.tree.map(
        lambda a, b: a + share.astype(a.dtype) * (b - a), state.average, new
    )
    return updates, Averaged(average, count + 1, inner)

  return optax.GradientTransformation(init, update)


def make_optimizer(
    chosen: options.Optimizer, steps: int
) -> optax.GradientTransformation:
  """Build Adam or SGD with a cosine schedule, and the average of its iterates.

  Args:
    chosen: the optimizer's options.
    steps: number of steps of the run, more than those of the warm-up.
  """
  schedule = optax.warmup_cosine_decay_schedule(
      0.0, chosen.rate, chosen.warm_up, steps, chosen.final_rate
  )
  moments = {"b1": chosen.momentum, "b2": chosen.second_momentum}
  if chosen.name == "sgd":
    moments = {"momentum": chosen.momentum}
  given = {k: v for k, v in moments.items() if v is not None}
  optimizer = getattr(optax, chosen.name)(
      lambda step: schedule(step.astype(jnp.float32)), **given
  )
  if chosen.average:
    optimizer = averaged(optimizer, chosen.average)
  return optimizer


def published(state: State) -> Params:
  """Return the model of a state: the average, or the parameters without one."""
  if isinstance(state.opt_state, Averaged):
    return state.opt_state.average
  return state.params
