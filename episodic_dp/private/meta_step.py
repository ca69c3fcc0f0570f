"""One private meta-step: sample, clip each task, sum, noise once, update.

[M] "Meta-Learning with Differential Privacy" (DP-MAML), Algorithm 1, with the
sum divided by the expected, public number of tasks instead of the drawn one.

Formal guarantees
-----------------
The released vector of a step is the sum over the drawn tasks of gradients
clipped to C, plus N(0, (z C)^2 I), which is what `accounting` accounts for the
same hierarchy, plan and mechanism. Everything else that a step returns is a
function of released vectors and public constants, unless
`Compute(diagnostics=True)` asks for the entries named "private/...". The
guarantee holds against whoever does not know `State.key`.
"""

from collections.abc import Callable
import dataclasses
from typing import Any, NamedTuple

import jax
from jax import lax
import jax.numpy as jnp
import optax

from episodic_dp import plan as plan_lib
from episodic_dp import sampling
from episodic_dp.private import checks
from episodic_dp.private import clipping
from episodic_dp.private import noise

# What each key of a step is folded with. Changing one changes every run.
_SAMPLING, _AUGMENTATION, _NOISE, _PARAMETERS = range(4)

Metrics = dict[str, jax.Array]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Compute:
  """How a step is computed; no setting changes what it guarantees.

  Attributes:
    tasks_per_chunk: tasks whose gradients are in memory at once.
    mesh: None; only one device is supported.
    diagnostics: also return "private/..." metrics, which are outside the
      guarantee: keep them apart and unpublished.
  """

  tasks_per_chunk: int = 4
  mesh: None = None
  diagnostics: bool = False

  def __post_init__(self):
    if self.tasks_per_chunk < 1:
      raise ValueError(
          f"tasks_per_chunk {self.tasks_per_chunk} must be at least 1"
      )
    if self.mesh is not None:
      raise ValueError(
          f"mesh {self.mesh!r}: a step runs on one device only, pass mesh=None"
      )


class State(NamedTuple):
  """What a run is made of between two steps.

  Attributes:
    params: the meta-parameters.
    opt_state: the optimizer's.
    step: int32 scalar, steps done.
    key: the run's secret key (typed), the same in all steps.
  """

  params: Any
  opt_state: Any
  step: jax.Array
  key: jax.Array


def init(
    key: jax.Array,
    learner: Any,
    optimizer: optax.GradientTransformation,
    mechanism: plan_lib.Mechanism,
    *,
    params: Any = None,
) -> State:
  """The state before the first step.

  Args:
    key: the run's secret key, a scalar typed key (`jax.random.key` or
      `wrap_key_data`).
    learner: as in `make_meta_step`.
    optimizer: an Optax transformation.
    mechanism: what will be released.
    params: where to start (copied); None draws them with the learner.

  Raises:
    ValueError: the key is not a typed key.
  """
  del mechanism  # Fixed clipping and noise keep no state.
  checks.check_key(key)
  if params is None:
    params = learner.init(jax.random.fold_in(key, _PARAMETERS))
  # Copies: the first step donates the state, and the caller keeps the original.
  params = jax.tree.map(lambda p: jnp.array(p, copy=True), params)
  data = jnp.array(jax.random.key_data(key), copy=True)
  return State(
      params,
      optimizer.init(params),
      jnp.zeros((), jnp.int32),
      jax.random.wrap_key_data(data, impl=jax.random.key_impl(key)),
  )


def make_meta_step(
    learner: Any,
    optimizer: optax.GradientTransformation,
    dataset: Any,
    plan: plan_lib.SamplingPlan,
    mechanism: plan_lib.Mechanism,
    *,
    compute: Compute = Compute(),
) -> Callable[[State], tuple[State, Metrics]]:
  """The function that makes one step: one compiled call, state donated.

  Args:
    learner: offers `loss(params, episode) -> scalar` and
      `predict(params, support, query_images) -> logits`.
    optimizer: an Optax transformation of the noised mean gradient.
    dataset: `images` (uint8 or float32 [rows, H, W, C], kept on the device),
      `hierarchy`, `rows` (leaf -> row) and `rotate`.
    plan: how tasks are sampled; needs an episode.
    mechanism: clip unit (the task), clip norm and noise.
    compute: how to compute it.

  Returns:
    state -> (state, metrics). Metrics: "step" (int32, steps done) and
    "update_norm" (float32, l2 norm of the optimizer's update), which are
    functions of released quantities. With diagnostics also "private/loss",
    "private/accuracy" (on queries), "private/clipped" (share of the tasks),
    "private/norm" (mean raw norm), "private/tasks" and "private/non_finite"
    (counts).

  Raises:
    plan.PlanError: plan, data, learner or mechanism contradict one another.
    plan.UnsoundPlanError: the clip unit is not the task.
  """
  checks.check(learner, dataset, plan, mechanism)
  tasks = plan_lib.tasks_per_step(dataset.hierarchy, plan)
  stddev = mechanism.noise_multiplier * mechanism.clip_norm
  if mechanism.noise_multiplier == 0:
    stddev = 0.0  # Also for an infinite clip norm.

  def gradient_sum(params, images, key, step):
    return _gradient_sum(
        learner, dataset, plan, mechanism, compute, params, images, key, step
    )

  def update(state: State, images: jax.Array) -> tuple[State, Metrics]:
    total, metrics = gradient_sum(state.params, images, state.key, state.step)
    noise_key = _step_key(state.key, _NOISE, state.step)
    total = noise.add_noise(noise_key, total, stddev)
    mean = jax.tree.map(
        lambda g, p: (g / tasks).astype(p.dtype), total, state.params
    )
    updates, opt_state = optimizer.update(mean, state.opt_state, state.params)
    step = state.step + 1
    metrics |= {"step": step, "update_norm": optax.tree.norm(updates)}
    params = optax.apply_updates(state.params, updates)
    return State(params, opt_state, step, state.key), metrics

  compiled = jax.jit(update, donate_argnums=0)
  # An argument, not a constant of the program: it would be compiled in.
  images = jnp.asarray(dataset.images)
  return lambda state: compiled(state, images)


def _step_key(key: jax.Array, purpose: int, step: jax.Array) -> jax.Array:
  return jax.random.fold_in(jax.random.fold_in(key, purpose), step)


def _gradient_sum(
    learner, dataset, plan, mechanism, compute, params, images, key, step
) -> tuple[Any, Metrics]:
  """The sum of the clipped gradients of the step's tasks, and diagnostics."""
  sampling_key = jax.random.fold_in(key, _SAMPLING)
  rows, mask = sampling.task_indices(
      *sampling.sample(sampling_key, dataset.hierarchy, plan, step), plan
  )
  slots, chunk = mask.shape[0], compute.tasks_per_chunk
  padding = -slots % chunk
  rows = jnp.pad(rows, ((0, padding), (0, 0), (0, 0)))
  mask = jnp.pad(mask, (0, padding))
  augmentation_key = _step_key(key, _AUGMENTATION, step)

  def one_task(episode):
    loss, gradient = jax.value_and_grad(learner.loss)(params, episode)
    clipped = clipping.clip(
        gradient, mechanism.clip_norm, mechanism.clip_by
    )
    return clipped, _diagnose(learner, params, episode, loss, clipped, compute)

  def add_chunk(i, carry):
    chosen = lax.dynamic_slice_in_dim(rows, i * chunk, chunk)
    real = lax.dynamic_slice_in_dim(mask, i * chunk, chunk)
    keys = jax.vmap(jax.random.fold_in, (None, 0))(
        augmentation_key, i * chunk + jnp.arange(chunk)
    )
    episodes = jax.vmap(
        lambda k, x: sampling.make_episode(
            k, x, plan.episode, rotate=dataset.rotate
        )
    )(keys, images[dataset.rows(chosen)])
    clipped, facts = jax.vmap(one_task)(episodes)

    def accumulate(total, new):
      shape = (chunk,) + (1,) * (new.ndim - 1)
      return total + jnp.where(real.reshape(shape), new, 0).sum(0)

    return jax.tree.map(accumulate, carry, (clipped.gradient, facts))

  zeros = jax.tree.map(lambda p: jnp.zeros(p.shape, jnp.float32), params)
  facts = {name: jnp.zeros(()) for name in _FACTS if compute.diagnostics}
  # Drawn tasks come first: the chunks beyond the last one are not computed.
  drawn = jnp.max(jnp.where(mask, jnp.arange(slots + padding) + 1, 0))
  total, facts = lax.fori_loop(
      0, (drawn + chunk - 1) // chunk, add_chunk, (zeros, facts)
  )
  return total, _summarise(facts, mask)


_FACTS = ("loss", "accuracy", "clipped", "norm", "non_finite")


def _diagnose(
    learner, params, episode, loss, clipped, compute
) -> dict[str, jax.Array]:
  """One task's private facts, float32 scalars; none unless asked for."""
  if not compute.diagnostics:
    return {}
  logits = learner.predict(params, episode.support, episode.query.images)
  right = jnp.argmax(logits, -1) == episode.query.labels
  return {
      "loss": jnp.nan_to_num(loss),
      "accuracy": right.mean(),
      "clipped": clipped.clipped.astype(jnp.float32),
      "norm": clipped.norm,
      "non_finite": 1.0 - clipped.finite,
  }


def _summarise(facts: dict[str, jax.Array], mask: jax.Array) -> Metrics:
  """Sums over the step's tasks to means, except the counts."""
  if not facts:
    return {}
  tasks = mask.sum().astype(jnp.float32)
  non_finite = facts.pop("non_finite")
  metrics = {
      f"private/{name}": total / jnp.maximum(tasks, 1)
      for name, total in facts.items()
  }
  return metrics | {
      "private/tasks": tasks,
      "private/non_finite": non_finite,
  }
