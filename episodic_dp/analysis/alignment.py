"""Measure on public tasks how well the gradients of single tasks agree.

The agreement is the signal that the noise of a private step meets. Every task's
gradient g_i is taken at the same parameters, and u_i = g_i / |g_i| is its
direction. The squared alignment s^2 is the mean of u_i . u_j over pairs of
different tasks,

    s^2 = (n |mean u|^2 - 1) / (n - 1),

an unbiased estimate of |E u|^2. The tasks are of the validation split, which a
config declares public.
"""

import dataclasses
import functools
import math
import os
from typing import Any

import jax
from jax import flatten_util
from jax import lax
import jax.numpy as jnp
import numpy as np
import optax

from episodic_dp import backends
from episodic_dp import learners
from episodic_dp import sampling
from episodic_dp import training
from episodic_dp.config import build
from episodic_dp.config import learners as learners_lib
from episodic_dp.config import RunConfig
from episodic_dp.private import step as step_lib

_TASKS = 256  # Tasks whose gradients are compared.
_STEPS = 10  # Of the warm start.
_AT_ONCE = 64  # Tasks of one call, and of a step of the warm start.


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Alignment:
  """The agreement of tasks' gradients at some parameters.

  Attributes:
    squared: s^2, never below 0.
    norms: float64[tasks] of the finite gradients, in rising order.
    parameters: d, entries of a gradient.
  """

  squared: float
  norms: np.ndarray
  parameters: int

  def clipped(self, clip_norm: float) -> "Clipped":
    """Return the signal that is left where gradients are clipped to a norm.

    A gradient in units of C has the length a = min(1, |g| / C). The norm and
    the direction of a task's gradient are assumed to be independent.
    """
    length = np.minimum(1.0, self.norms / clip_norm)
    signal = self.squared * float(length.mean()) ** 2
    return Clipped(
        signal=signal,
        spread=max(float(np.square(length).mean()) - signal, 0.0),
        parameters=self.parameters,
    )

  def quantile(self, share: float) -> float:
    """Return the norm that this share of the tasks stays within."""
    return float(np.quantile(self.norms, share))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Clipped:
  """A task's clipped gradient, in units of the clip norm.

  Attributes:
    signal: squared length of its mean.
    spread: mean squared distance from the mean.
    parameters: d, entries of a gradient.
  """

  signal: float
  spread: float
  parameters: int

  def share(self, tasks: float, noise_multiplier: float) -> float:
    """Return the share of a noised mean's squared length that is signal.

    Args:
      tasks: L, the expected tasks of a step.
      noise_multiplier: z, of the gradients.
    """
    noise = self.parameters * (noise_multiplier / tasks) ** 2
    total = self.signal + self.spread / tasks + noise
    return self.signal / total if total else 0.0


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Measured:
  """Gradients of public tasks, before and after a short warm start.

  Attributes:
    tasks: number of tasks whose gradients were compared.
    start: at the initial parameters.
    warm: after `warm_steps` steps without noise on public tasks.
    warm_steps: of the warm start.
  """

  tasks: int
  start: Alignment
  warm: Alignment
  warm_steps: int

  def clipped(self, clip_norm: float) -> Clipped:
    """Return a clipped gradient halfway; see `halfway`."""
    return halfway(self.start.clipped(clip_norm), self.warm.clipped(clip_norm))


def halfway(start: Clipped, warm: Clipped) -> Clipped:
  """Average two places, since alignment changes while a network learns."""
  return dataclasses.replace(
      warm,
      signal=(start.signal + warm.signal) / 2,
      spread=(start.spread + warm.spread) / 2,
  )


class Gradients:
  """Sums of tasks' gradients and of their directions, compiled once.

  Args:
    learner: takes the gradients, as in a private step.
    tasks: public ones; a call takes some of them.
  """

  def __init__(self, learner: learners.Learner, tasks: training.Tasks):
    self._tasks = tasks
    # Annealed numbers of a learner are at their beginning.
    first = learner.at_step(jnp.zeros((), jnp.int32))
    one = functools.partial(_direction_and_gradient, first, tasks)
    chunk = math.gcd(backends.choices().microbatch_size, _AT_ONCE)

    @jax.jit
    def sums(params, keys, images):
      def add(total, some):
        found, norms = jax.vmap(functools.partial(one, params))(*some)
        return total + found.sum(0), norms

      size = sum(leaf.size for leaf in jax.tree.leaves(params))
      some = jax.tree.map(
          lambda x: x.reshape(-1, chunk, *x.shape[1:]), (keys, images)
      )
      total, norms = lax.scan(add, jnp.zeros((2, size)), some)
      return total, norms.ravel()

    self._sums = sums

  def __call__(
      self, params: Any, first: int, count: int
  ) -> tuple[np.ndarray, np.ndarray]:
    """Sum over the tasks `first`, `first + 1`, ... at some parameters.

    Returns:
      float32[2, d], the sums of directions and of gradients, and the norms
      float32[count], 0 for a gradient that is 0 or not finite: such a task adds
      nothing.
    """
    part = slice(first, first + count)
    images = self._tasks.images[self._tasks.rows[part]]
    total, norms = self._sums(
        params, self._tasks.keys[part], jnp.asarray(images)
    )
    return np.asarray(total), np.asarray(norms)

  def alignment(self, params: Any, count: int) -> Alignment:
    """Return the alignment of the first tasks, a multiple of 64."""
    parts = [
        self(params, first, _AT_ONCE) for first in range(0, count, _AT_ONCE)
    ]
    total = np.stack([sums[0] for sums, _ in parts]).astype(np.float64).sum(0)
    norms = np.concatenate([norms for _, norms in parts])
    return of_sum(total, norms)


def _direction_and_gradient(
    learner: learners.Learner,
    tasks: training.Tasks,
    params: Any,
    key: jax.Array,
    images: jax.Array,
) -> tuple[jax.Array, jax.Array]:
  """Return a task's float32[2, d] and its norm; zeros if it is not finite."""
  batch = sampling.make_episode(
      key, images, tasks.episode, targets=tasks.targets
  )
  _, gradient = step_lib.task_gradient(
      learner, params, batch, jax.random.fold_in(key, 0)
  )
  flat, _ = flatten_util.ravel_pytree(gradient)
  flat = flat.astype(jnp.float32)
  norm = jnp.linalg.norm(flat)
  real = jnp.isfinite(norm) & (norm > 0)
  flat, norm = jnp.where(real, flat, 0), jnp.where(real, norm, 0)
  return jnp.stack([flat / jnp.where(real, norm, 1), flat]), norm


def of_sum(total: np.ndarray, norms: np.ndarray) -> Alignment:
  """Return the alignment of a sum of directions.

  Args:
    total: float64[d].
    norms: of all tasks' gradients, 0 for one without a direction.
  """
  real = norms[norms > 0].astype(np.float64)
  n = len(real)
  squared = float((total @ total - n) / max(n * (n - 1), 1))
  return Alignment(
      squared=max(squared, 0.0), norms=np.sort(real), parameters=len(total)
  )


def measure(
    config: RunConfig,
    *,
    data_dir: str | os.PathLike[str] | None = None,
    download: bool = False,
    tasks: int = _TASKS,
) -> Measured:
  """Take gradients of public tasks, before and after a short warm start.

  Args:
    config: whose learner, network, optimiser and size of task are taken.
    data_dir: folder of the data sets that are not built in, or own data.
    download: fetch the files that data_dir does not have.
    tasks: number of tasks whose gradients are compared, a multiple of 64.

  Raises:
    ValueError, FileNotFoundError: the data cannot be read.
  """
  backends.use_all_cores()
  public = build.load_data(
      config, data_dir=data_dir, download=download
  ).validation
  learner = learners_lib.make_learner(config, public.image_shape)
  episode = config.release.plan.episode
  assert episode is not None  # `propose.check`.
  drawn = training.draw(
      public, way=episode.way, shot=episode.shot, query=episode.query,
      count=tasks + _STEPS * _AT_ONCE, seed=0,
  )
  gradients = Gradients(learner, drawn)
  params = learner.init(jax.random.key(config.seed))
  start = gradients.alignment(params, tasks)
  flat, unravel = flatten_util.ravel_pytree(params)
  optimizer = learners_lib.make_optimizer(
      config.with_changes({"optimizer.warm_up": 0}), _STEPS
  )
  state = optimizer.init(params)
  for step in range(_STEPS):
    sums, norms = gradients(params, tasks + step * _AT_ONCE, _AT_ONCE)
    mean = unravel(jnp.asarray(sums[1] / len(norms), flat.dtype))
    updates, state = optimizer.update(mean, state, params)
    params = optax.apply_updates(params, updates)
  return Measured(
      tasks=tasks, start=start,
      warm=gradients.alignment(params, tasks), warm_steps=_STEPS,
  )
