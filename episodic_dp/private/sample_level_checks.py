"""What sample-level training is refused for, before anything is compiled.

These are the rules that only a learner or a network can break; those about the
plan are in `plan.soundness`.
"""

from typing import Any

import jax
from jax import lax
import jax.numpy as jnp

from episodic_dp import learners
from episodic_dp import plan as plan_lib
from episodic_dp import sampling
from episodic_dp.data import dataset as dataset_lib
from episodic_dp.private import mixing

_MARK = "optimization_barrier"


def check_learner(
    learner: learners.Learner,
    dataset: dataset_lib.Dataset,
    plan: plan_lib.SamplingPlan,
    mechanism: plan_lib.Mechanism,
) -> None:
  """Refuses learners and networks that the proof does not cover.

  Raises:
    UnsoundPlanError: the learner is not a first-order one that reads the
      support set through `inner_steps` injected gradients alone, the same in
      every step; or its network mixes examples.
  """
  name = type(learner).__name__
  if not learner.example_gradients:
    raise plan_lib.UnsoundPlanError(
        f"{name} cannot be trained with clip_unit '{mechanism.clip_unit}': its"
        " update does not split into gradients of single examples at noisily"
        " adapted parameters; use MAML with order='first'"
    )
  if learner.loss_weights is not None:
    raise plan_lib.UnsoundPlanError(
        f"loss_weights with clip_unit '{mechanism.clip_unit}': the gradient of"
        " a query example is taken after the last inner step alone; leave"
        " loss_weights out"
    )
  if _changes(learner):
    raise plan_lib.UnsoundPlanError(
        f"{name}.at_step gives another learner with clip_unit"
        f" '{mechanism.clip_unit}', of which nothing was checked: leave at_step"
        " out, or let it return the learner itself"
    )
  params, support = _start(learner, dataset, plan)
  steps, stated = _steps(learner, params, support), mechanism.inner_steps or 0
  if steps not in (list(range(stated)), ["traced"] * stated):
    raise plan_lib.UnsoundPlanError(
        f"{name}.adapt asks for the inner gradients {steps} and the mechanism"
        f" states inner_steps={mechanism.inner_steps}: each of these must be"
        " asked for once, since each is released once"
    )
  if _reads_support(learner, params, support):
    raise plan_lib.UnsoundPlanError(
        f"{name}.adapt reads the support set by another way than"
        " inner_gradient(loss)(params, support, step), with the support set as"
        " it is and a loss of one example: nothing clips that; use MAML with"
        " order='first'"
    )
  mixing.check(learner.model, dataset.image_shape, mechanism.clip_unit)


def _changes(learner) -> bool:
  """Whether some step's learner may be another one."""
  found: list[Any] = []
  jax.eval_shape(
      lambda step: found.append(learner.at_step(step)),
      jax.ShapeDtypeStruct((), jnp.int32),
  )
  return any(other is not learner for other in found)


def _start(
    learner: learners.Learner,
    dataset: dataset_lib.Dataset,
    plan: plan_lib.SamplingPlan,
) -> tuple[Any, Any]:
  """The shapes of parameters and of a support set."""
  episode = plan.episode
  assert episode is not None  # Checked before.

  def begin(key, images):
    task = sampling.make_episode(
        key, images, episode, targets=dataset.targets
    )
    return learner.init(key), task.support

  examples = episode.shot + episode.query
  return jax.eval_shape(
      begin,
      jax.random.key(0),
      jax.ShapeDtypeStruct(
          (episode.way, examples, *dataset.images.shape[1:]),
          dataset.images.dtype,
      ),
  )


def _steps(learner, params, support) -> list[Any]:
  """The steps for which `adapt` asks, "traced" where a scan counts them."""
  asked: list[Any] = []

  def injected(loss):
    del loss

    def gradient(params, examples, step):
      del examples
      asked.append("traced" if isinstance(step, jax.core.Tracer) else int(step))
      zeros = jax.tree.map(jnp.zeros_like, params)
      return lax.optimization_barrier(zeros)  # Seen in the program.

    return gradient

  def adapt(params, support):
    return learner.adapt(params, support, inner_gradient=injected)

  with jax.disable_jit():  # Or a loop would ask once, however often it runs.
    program = jax.make_jaxpr(adapt)(params, support)
  found = sum(e.primitive.name == _MARK for e in program.eqns)
  # What is left in loops or branches runs as often as data decide.
  return asked if found == len(asked) else [*asked, "an unknown number"]


def _reads_support(learner, params, support) -> bool:
  """Whether more than the injected gradients depends on the support set.

  Every injected gradient is that of a constant example, so that nothing of the
  program that leads to the adapted parameters may read the support set.
  """
  others: list[Any] = []

  def adapt(params, support):
    own = jax.tree.leaves(support)

    def injected(loss):
      def gradient(params, examples, step):
        given = jax.tree.leaves(examples)
        if [id(a) for a in given] != [id(a) for a in own]:
          others.append(examples)  # Something made of them.
        one = [jnp.zeros((1, *a.shape[1:]), a.dtype) for a in own]
        one = jax.tree.unflatten(jax.tree.structure(support), one)
        return jax.grad(loss)(params, one, step)

      return gradient

    return learner.adapt(params, support, inner_gradient=injected)

  program = jax.make_jaxpr(adapt)(params, support).jaxpr
  needed = {id(v) for v in program.outvars}
  for equation in reversed(program.eqns):
    if any(id(v) in needed for v in equation.outvars):
      needed |= {id(v) for v in equation.invars}
  last = program.invars[-len(jax.tree.leaves(support)) :]
  return bool(others) or any(id(v) in needed for v in last)
