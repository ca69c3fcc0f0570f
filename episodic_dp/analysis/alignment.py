"""How well the gradients of single tasks agree: the signal that noise meets.

Every task's gradient g_i is taken at the same parameters, and u_i = g_i / |g_i|
is its direction. The squared alignment s^2 is the mean of u_i . u_j over pairs
of different tasks,

    s^2 = (n |mean u|^2 - 1) / (n - 1),

without bias: |E u|^2. The tasks are public, so that nothing here is private.
"""

from collections.abc import Callable
import dataclasses
import functools
from typing import Any

import jax
from jax import flatten_util
from jax import lax
import jax.numpy as jnp
import numpy as np

from episodic_dp import backends
from episodic_dp import learners
from episodic_dp import sampling
from episodic_dp.private import programs
from episodic_dp.private import sharding
from episodic_dp.private import task_sum
from episodic_dp.training import evaluation

_GROUPS = 8  # Of tasks, each left out once for the error of s^2.


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Alignment:
  """What tasks' gradients at some parameters have in common.

  Attributes:
    squared: s^2, never below 0.
    error: its standard error, by leaving out an eighth of the tasks at a time.
    norms: float64[tasks] of the gradients, in rising order; those of tasks
      without a finite gradient are left out.
    parameters: d, entries of a gradient.
  """

  squared: float
  error: float
  norms: np.ndarray
  parameters: int

  def clipped(self, clip_norm: float) -> "Clipped":
    """What is left of the signal where gradients are clipped to a norm.

    A task whose norm is below C brings less than C, and the noise stays: of a
    gradient in units of C the length is a = min(1, |g| / C). That a task's norm
    tells nothing of its direction is assumed.
    """
    length = np.minimum(1.0, self.norms / clip_norm)
    signal = self.squared * float(length.mean()) ** 2
    return Clipped(
        signal=signal,
        spread=max(float(np.square(length).mean()) - signal, 0.0),
        parameters=self.parameters,
    )

  def quantile(self, share: float) -> float:
    """The norm that this share of the tasks stays within."""
    return float(np.quantile(self.norms, share))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Clipped:
  """A task's clipped gradient, in units of the clip norm.

  Attributes:
    signal: squared length of its mean.
    spread: of what is left: its mean squared distance from there.
    parameters: d, entries of a gradient.
  """

  signal: float
  spread: float
  parameters: int

  def share(self, tasks: float, noise_multiplier: float) -> float:
    """The part of a noised mean gradient's squared length that is signal.

    Args:
      tasks: L, the expected tasks of a step.
      noise_multiplier: z, of the gradients.
    """
    noise = self.parameters * (noise_multiplier / tasks) ** 2
    total = self.signal + self.spread / tasks + noise
    return self.signal / total if total else 0.0

  def noise_for(self, share: float, tasks: float) -> float:
    """The most z with which a step of so many tasks has a `share` (or 0)."""
    left = self.signal * (1 / share - 1) - self.spread / tasks
    return tasks * np.sqrt(max(left, 0.0) / self.parameters)


class Gradients:
  """Sums of tasks' gradients and of their directions, compiled once.

  All devices of this process share the tasks out, as they do in a step.

  Args:
    learner: whose tasks' gradients are taken, as a step takes them.
    tasks: public ones; a call takes some of them.
  """

  def __init__(self, learner: learners.Learner, tasks: evaluation.Tasks):
    self._tasks = tasks
    self._mesh = sharding.make_mesh(jax.local_devices())
    share, whole = (
        jax.sharding.PartitionSpec(*axes) for axes in ((sharding.AXIS,), ())
    )
    # What a learner anneals is at its beginning.
    first = learner.at_step(jnp.zeros((), jnp.int32))
    of_task = functools.partial(_of_task, first, tasks)
    of_device = _one_by_one
    if backends.choices().microbatch_size > 1:
      of_device = _at_once

    @programs.jit
    def sums(params, keys, images):
      return jax.shard_map(
          functools.partial(of_device, of_task),
          mesh=self._mesh,
          in_specs=(whole, share, share),
          out_specs=share,
          check_vma=False,
      )(params, keys, images)

    self._sums = sums

  def __call__(
      self, params: Any, first: int, count: int
  ) -> tuple[np.ndarray, np.ndarray]:
    """Of the tasks `first`, `first + 1`, ... at some parameters.

    Args:
      params: the meta-parameters.
      first: the first task.
      count: how many; always the same, rounded down to whole devices.

    Returns:
      float32[devices, 2, d], the sums of directions and of gradients on each
      device, and the norms float32[tasks], 0 where a gradient is 0 or not
      finite: such a task adds nothing.
    """
    part = slice(first, first + count // self._mesh.size * self._mesh.size)
    images = self._tasks.images[self._tasks.rows[part]]
    total, norms = self._sums(
        sharding.replicate(self._mesh, params),
        self._tasks.keys[part],
        jnp.asarray(images),
    )
    return np.asarray(total), np.asarray(norms)

  def alignment(self, params: Any, count: int, *, at_once: int) -> Alignment:
    """What the first tasks have in common.

    Args:
      params: the meta-parameters.
      count: how many tasks.
      at_once: of one call.
    """
    size = sum(leaf.size for leaf in jax.tree.leaves(params))
    sums, counts = np.zeros((_GROUPS, size)), np.zeros(_GROUPS)
    norms, group = [], 0
    for first in range(0, count - at_once + 1, at_once):
      found, lengths = self(params, first, at_once)
      for part, own in zip(found[:, 0], np.split(lengths, len(found))):
        sums[group] += part
        counts[group] += np.count_nonzero(own)
        group = (group + 1) % _GROUPS
      norms.append(lengths)
    return of_sums(sums, counts, np.concatenate(norms))


def _of_task(
    learner: learners.Learner,
    tasks: evaluation.Tasks,
    params: Any,
    key: jax.Array,
    images: jax.Array,
) -> tuple[jax.Array, jax.Array]:
  """A task's direction and gradient, float32[2, d], and norm; or zeros."""
  batch = sampling.make_episode(
      key, images, tasks.episode, targets=tasks.targets
  )
  draws = learner.model.random is not None
  inputs = task_sum.StepInputs(params, key, layer_key=key if draws else None)
  _, gradient = task_sum.task_gradient(learner, inputs, jnp.int32(0), batch)
  flat, _ = flatten_util.ravel_pytree(gradient)
  flat = flat.astype(jnp.float32)
  norm = jnp.linalg.norm(flat)
  real = jnp.isfinite(norm) & (norm > 0)
  flat, norm = jnp.where(real, flat, 0), jnp.where(real, norm, 0)
  return jnp.stack([flat / jnp.where(real, norm, 1), flat]), norm


_OfTask = Callable[..., tuple[jax.Array, jax.Array]]


def _one_by_one(
    of_task: _OfTask, params: Any, keys: jax.Array, images: jax.Array
) -> tuple[jax.Array, jax.Array]:
  """The sums [1, 2, d] of some tasks and their norms, in the memory of one."""

  def add(total: jax.Array, task: Any) -> tuple[jax.Array, jax.Array]:
    found, norm = of_task(params, *task)
    return total + found, norm

  size = sum(leaf.size for leaf in jax.tree.leaves(params))
  total, norms = lax.scan(add, jnp.zeros((2, size)), (keys, images))
  return total[None], norms


def _at_once(
    of_task: _OfTask, params: Any, keys: jax.Array, images: jax.Array
) -> tuple[jax.Array, jax.Array]:
  """The same, batched."""
  found, norms = jax.vmap(functools.partial(of_task, params))(keys, images)
  return found.sum(0, keepdims=True), norms


def of_sums(
    sums: np.ndarray, counts: np.ndarray, norms: np.ndarray
) -> Alignment:
  """The alignment, of sums of directions.

  Args:
    sums: float64[groups, d], of groups of tasks.
    counts: [groups], how many directions each is the sum of.
    norms: of all tasks' gradients, 0 for one without a direction.
  """

  def squared(total: np.ndarray, count: float) -> float:
    return float((total @ total - count) / max(count * (count - 1), 1))

  whole, number = sums.sum(0), counts.sum()
  without = [squared(whole - s, number - c) for s, c in zip(sums, counts)]
  return Alignment(
      squared=max(squared(whole, number), 0.0),
      error=float(np.sqrt((len(sums) - 1) * np.var(without))),
      norms=np.sort(norms[norms > 0].astype(np.float64)),
      parameters=sums.shape[1],
  )
