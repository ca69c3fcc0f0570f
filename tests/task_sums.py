"""The sum of the clipped gradients of all tasks, in one call; flat trees."""

import types
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from episodic_dp import plan
from episodic_dp import private
from episodic_dp import sampling
from episodic_dp.private import keys
from episodic_dp.private import quantile
from episodic_dp.private import state as state_lib
from episodic_dp.private import step as step_lib


def settings_of(
    learner: Any, mechanism: plan.Mechanism, episode: Any, **options: Any
) -> step_lib.Settings:
  """Return settings of a step that sums tasks and draws none."""
  release: Any = types.SimpleNamespace(
      mechanism=mechanism, plan=types.SimpleNamespace(episode=episode)
  )
  dataset: Any = types.SimpleNamespace(rotate=False, targets=0)
  optimizer: Any = None
  compute = private.Compute(**{"mesh": None, **options})
  return step_lib.Settings(learner, optimizer, dataset, release, compute)


def state_of(
    params: Any, mechanism: plan.Mechanism, key: jax.Array, clip: Any = None
) -> state_lib.State:
  """Return a state before its first step; `clip` as it begins, or is given."""
  clip = quantile.init(mechanism, params) if clip is None else clip
  return state_lib.State(params, (), jnp.int32(0), key, clip)


def sum_tasks(
    learner: Any,
    mechanism: plan.Mechanism,
    params: Any,
    tasks: step_lib.StepTasks,
    key: jax.Array,
    *,
    episode: plan.Episode | None,
    **options: Any,
) -> tuple[Any, step_lib.Diagnostics]:
  """Return the sum (flat) and the metrics "private/..." of all tasks.

  Args:
    learner: and the next three as in a step.
    mechanism: of a fixed clip norm.
    params: where the gradients are taken.
    tasks: all of them.
    key: of the run.
    episode: None where every task is one example.
    **options: fields of `private.Compute`.
  """
  settings = settings_of(learner, mechanism, episode, **options)
  state = state_of(params, mechanism, key)
  totals = step_lib.begin(settings, state, tasks.mask.size)
  totals = step_lib.add(settings, state, totals, tasks)
  return totals.sum, step_lib.summarise(totals.diagnostics, tasks.mask)


def drawn(key: jax.Array, dataset: Any, described: Any, step: int) -> dict:
  """Return slot -> episode, of the tasks that a step draws and augments."""
  indices = sampling.sample(
      jax.random.fold_in(key, keys.SAMPLING), dataset.hierarchy, described, step
  )
  rows, mask = sampling.task_indices(*indices, dataset.hierarchy, described)
  own = keys.step_key(key, keys.AUGMENTATION, step)
  return {
      int(slot): sampling.make_episode(
          jax.random.fold_in(own, slot),
          jnp.asarray(dataset.images)[rows[slot]],
          described.episode,
      )
      for slot in np.flatnonzero(np.asarray(mask))
  }


def flat(tree: Any) -> np.ndarray:
  """Return float64[coordinates] of all arrays."""
  leaves = [np.asarray(leaf, np.float64) for leaf in jax.tree.leaves(tree)]
  return np.concatenate([np.zeros(0), *(leaf.ravel() for leaf in leaves)])
