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
from episodic_dp.models import model as model_lib
from episodic_dp.private import sample_level

_MARK = "optimization_barrier"  # Of an injected gradient, in a program.


def check_learner(
    learner: learners.Learner,
    dataset: dataset_lib.Dataset,
    plan: plan_lib.SamplingPlan,
    mechanism: plan_lib.Mechanism,
) -> None:
  """Refuse learners and networks that the proof does not cover.

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
  if _changes_with_step(learner):
    raise plan_lib.UnsoundPlanError(
        f"{name}.at_step gives another learner with clip_unit"
        f" '{mechanism.clip_unit}', of which nothing was checked: leave at_step"
        " out, or let it return the learner itself"
    )
  if learner.model.random is not None:
    raise plan_lib.UnsoundPlanError(
        f"random layers (dropout) with clip_unit '{mechanism.clip_unit}': what"
        " they draw is shared by the examples of a task, of which nothing is"
        " proved; use a network without them (random_layers=False)"
    )
  params, support = _params_and_support(learner, dataset, plan)
  steps = _requested_steps(learner, params, support)
  stated = mechanism.inner_steps or 0
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
  check_network(learner.model, dataset.image_shape, mechanism.clip_unit)


def check_network(
    model: model_lib.Model, input_shape: tuple[int, ...], clip_unit: str
) -> None:
  """Refuse a network in which one example changes another's outputs.

  The network is tried on random weights (`models.mixing`), also as its random
  layers draw; what it claims is not read.

  Args:
    model: `init` and `apply`.
    input_shape: of one example, such as (H, W, C).
    clip_unit: the level of the examples, for the message.

  Raises:
    UnsoundPlanError: it mixes examples.
  """
  if model_lib.mixes(model, input_shape):
    raise plan_lib.UnsoundPlanError(
        f"clip_unit '{clip_unit}' with a model that mixes examples (changing"
        " one of them changes the outputs of others, as batch normalisation"
        f" does): a gradient would belong to no single {clip_unit}; use"
        " norm='group' or another layer that treats every example alone, such"
        " as layer normalisation"
    )


def _changes_with_step(learner: learners.Learner) -> bool:
  """Whether `at_step` gives another learner in some step."""
  found: list[Any] = []
  jax.eval_shape(
      lambda step: found.append(learner.at_step(step)),
      jax.ShapeDtypeStruct((), jnp.int32),
  )
  return any(other is not learner for other in found)


def _params_and_support(
    learner: learners.Learner,
    dataset: dataset_lib.Dataset,
    plan: plan_lib.SamplingPlan,
) -> tuple[Any, Any]:
  """Shapes and dtypes of the parameters and of a support set."""
  episode = plan.episode
  assert episode is not None  # Checked before.

  def begin(key: jax.Array, images: jax.Array) -> tuple[Any, Any]:
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


def _requested_steps(
    learner: learners.Learner, params: Any, support: Any
) -> list[Any]:
  """The inner steps whose gradients `adapt` requests, in order.

  A step that a scan counts is "traced".
  """
  requested: list[Any] = []

  def injected(loss: sample_level.Loss) -> sample_level.Gradient:
    del loss

    def gradient(params: Any, examples: Any, step: Any) -> Any:
      del examples
      traced = isinstance(step, jax.core.Tracer)
      requested.append("traced" if traced else int(step))
      zeros = jax.tree.map(jnp.zeros_like, params)
      return lax.optimization_barrier(zeros)  # `_MARK`.

    return gradient

  def adapt(params: Any, support: Any) -> Any:
    return learner.adapt(params, support, inner_gradient=injected)

  # Not compiled: a loop would request once, however often it runs.
  with jax.disable_jit():
    program = jax.make_jaxpr(adapt)(params, support)
  found = sum(e.primitive.name == _MARK for e in program.eqns)
  # A mark that is not at the top level is in a loop or branch of the program,
  # which runs as often as data decide.
  if found == len(requested):
    return requested
  return [*requested, "an unknown number"]


def _reads_support(
    learner: learners.Learner, params: Any, support: Any
) -> bool:
  """Whether anything but the injected gradients depends on the support set.

  Here the injected gradients are those of a constant example, so that nothing
  in the program that leads to the adapted parameters may read the support set.
  """
  others: list[Any] = []

  def adapt(params: Any, support: Any) -> Any:
    own = jax.tree.leaves(support)

    def injected(loss: sample_level.Loss) -> sample_level.Gradient:
      def gradient(params: Any, examples: Any, step: Any) -> Any:
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
