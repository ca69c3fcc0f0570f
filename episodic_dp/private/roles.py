"""Who does what in a step: server, participants, consumers; and what is sent.

The roles of "Meta-Learning with Differential Privacy" (DP-MAML), of a run whose
tasks are participants: the server draws participants and sends them the model,
each sends back one clipped gradient, the server adds them, adds noise, and
updates; consumers have the released model.

`participant` and `server` are a step of `make_meta_step` cut at what is sent,
to be read and tried: the same tasks give the same update up to rounding.

Formal guarantees
-----------------
None here that `meta_step` does not have. They hold against consumers, and
against participants who do not know who else was drawn; they do not hold
against the server, which adds the noise and holds the key.
"""

from collections.abc import Iterable
import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from episodic_dp import learners
from episodic_dp import plan as plan_lib
from episodic_dp import sampling
from episodic_dp.data import dataset as dataset_lib
from episodic_dp.private import adaptive
from episodic_dp.private import clipping
from episodic_dp.private import keys
from episodic_dp.private import noise
from episodic_dp.private import state as state_lib

_FLOAT = 4  # Bytes of a float32.


@dataclasses.dataclass(frozen=True, kw_only=True)
class Traffic:
  """What is sent, in bytes of float32 numbers, without headers.

  Attributes:
    participant: the level whose units take part.
    participants: how many there are.
    parameters: numbers that are trained.
    steps: of the run.
    rate: the largest probability that a step draws one participant.
    expected: participants of a step, in the mean.
    down: to each drawn one: the parameters.
    up: from each drawn one: its clipped gradient, and with an adaptive clip
      norm one number more.
  """

  participant: str
  participants: int
  parameters: int
  steps: int
  rate: float
  expected: float
  down: int
  up: int

  @property
  def up_in_all(self) -> float:
    """Bytes that one participant is expected to send in the whole run."""
    return self.up * self.rate * self.steps


def traffic(
    release: plan_lib.Release, parameters: int, steps: int
) -> Traffic | None:
  """Counts what a run sends, were its participants apart.

  Args:
    release: of the run.
    parameters: numbers that are trained.
    steps: of the run.

  Returns:
    None where a task is not one primary unit, which is all that a participant
    could compute alone.
  """
  if not _apart(release):
    return None
  hierarchy, plan = release.hierarchy, release.plan
  adapts = release.mechanism.clipping != "fixed"
  return Traffic(
      participant=hierarchy.levels[0],
      participants=hierarchy.num_units(0),
      parameters=parameters,
      steps=steps,
      rate=plan_lib.inclusion_rate(hierarchy, plan, level=hierarchy.levels[0]),
      expected=plan_lib.tasks_per_step(hierarchy, plan),
      down=_FLOAT * parameters,
      up=_FLOAT * (parameters + adapts),
  )


def _apart(release: plan_lib.Release) -> bool:
  episode = release.plan.episode
  return (
      episode is not None
      and episode.form == "unit"
      and not release.mechanism.noisy_inner_steps
  )


class Invitation(NamedTuple):
  """What the server sends a drawn participant.

  Attributes:
    params: the parameters of the step.
    rows: int32[way, shot + query], which of its examples to take.
    key: of the order of its labels.
  """

  params: Any
  rows: jax.Array
  key: jax.Array


def invite(
    release: plan_lib.Release,
    dataset: dataset_lib.Dataset,
    state: state_lib.State,
) -> list[Invitation]:
  """The server draws the participants of a step.

  That it also draws their examples lets the step be compared with that of
  `make_meta_step`: a participant can draw its own.

  Args:
    release: what a step samples and releases; its tasks are participants.
    dataset: whose rows are drawn; no image is looked at.
    state: before the step.

  Raises:
    PlanError: a task is not one participant, or the clip norm adapts.
  """
  _check(release)
  key = jax.random.fold_in(state.key, keys.SAMPLING)
  indices, mask = sampling.sample(
      key, release.hierarchy, release.plan, state.step
  )
  indices, mask = sampling.task_indices(
      indices, mask, release.hierarchy, release.plan
  )
  rows = dataset.rows(indices)
  order = keys.step_key(state.key, keys.AUGMENTATION, state.step)
  return [
      Invitation(state.params, rows[slot], jax.random.fold_in(order, slot))
      for slot in range(len(mask))
      if mask[slot]
  ]


def participant(
    learner: learners.Learner,
    release: plan_lib.Release,
    invitation: Invitation,
    images: jax.Array,
    *,
    rotate: bool = False,
) -> Any:
  """What a participant computes on its own examples, and sends.

  Args:
    learner: of the step; its network has no random layers.
    release: of the run, for the task and the clip norm.
    invitation: from the server.
    images: [way, shot + query, ...], its own examples of `invitation.rows`.
    rotate: whether its classes are turned, an augmentation.

  Returns:
    The clipped gradient, a tree like the parameters: all that leaves.
  """
  assert release.plan.episode is not None  # `invite` has checked it.
  task = sampling.make_episode(
      invitation.key, images, release.plan.episode, rotate=rotate
  )
  _, gradient = learner.meta_gradient(invitation.params, task)
  mechanism = release.mechanism
  return clipping.clip(
      gradient, mechanism.clip_norm, mechanism.clip_by
  ).gradient


def server(
    optimizer: optax.GradientTransformation,
    release: plan_lib.Release,
    state: state_lib.State,
    received: Iterable[Any],
) -> state_lib.State:
  """What the server does with what it received: sum, noise, update.

  Args:
    optimizer: of the run.
    release: likewise.
    state: before the step.
    received: the clipped gradients; of nobody, noise alone is released.

  Returns:
    The state after the step, of which `params` may leave.
  """
  total = jax.tree.map(lambda p: jnp.zeros(p.shape, jnp.float32), state.params)
  for gradient in received:
    total = jax.tree.map(jnp.add, total, gradient)
  noised = noise.add_noise(
      keys.step_key(state.key, keys.NOISE, state.step),
      total,
      adaptive.stddev(release.mechanism, state.clip),
  )
  # The expected number, which is public; how many came is not.
  expected = plan_lib.tasks_per_step(release.hierarchy, release.plan)
  mean = jax.tree.map(
      lambda g, p: (g / expected).astype(p.dtype), noised, state.params
  )
  updates, opt_state = optimizer.update(mean, state.opt_state, state.params)
  return state._replace(
      params=optax.apply_updates(state.params, updates),
      opt_state=opt_state,
      step=state.step + 1,
  )


def _check(release: plan_lib.Release) -> None:
  if not _apart(release):
    raise plan_lib.PlanError(
        "a participant computes its task alone, and here a task is not one"
        f" '{release.levels[0]}' with one gradient: use episode.form='unit'"
        " without noisy inner steps"
    )
  if release.mechanism.clipping != "fixed":
    raise plan_lib.PlanError(
        f"the roles are shown for a fixed clip norm, and this one is"
        f" '{release.mechanism.clipping}': set mechanism.clipping='fixed'"
    )
