"""Accuracy over fixed test tasks, with a 95 % interval.

The tasks are drawn once from a public key, so that runs are compared on the
same tasks: one model, or an ensemble whose members adapt on their own and
whose softmax outputs are averaged (DP-MAML takes the five checkpoints best on
validation tasks).
"""

from collections.abc import Callable, Sequence
import dataclasses
import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from episodic_dp import plan as plan_lib
from episodic_dp import sampling
from episodic_dp.data import dataset as dataset_lib

_SUPPORT_BYTES = 2**24  # float32 bytes of images that one call holds


@dataclasses.dataclass(frozen=True, kw_only=True)
class Accuracy:
  """A mean over tasks with its interval, as fractions of 1.

  Attributes:
    mean: mean over tasks of the share of query images named rightly.
    low: mean - 1.96 s / sqrt(tasks), s the standard deviation over tasks.
    high: mean + 1.96 s / sqrt(tasks).
    tasks: how many tasks.
  """

  mean: float
  low: float
  high: float
  tasks: int

  def __str__(self) -> str:
    half = 100 * (self.high - self.low) / 2
    return f"{100 * self.mean:.1f} % ± {half:.1f}"


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Tasks:
  """Fixed evaluation tasks.

  Attributes:
    images: uint8[rows, H, W, C] of the data set.
    rows: int32[tasks, way, shot + query].
    keys: typed keys [tasks], for the order of labels.
    episode: way, shot and query.
  """

  images: np.ndarray
  rows: np.ndarray
  keys: jax.Array
  episode: plan_lib.Episode

  @property
  def chance(self) -> float:
    """Accuracy of a blind guess."""
    return 1 / self.episode.way


def task_plan(
    hierarchy: plan_lib.Hierarchy, *, way: int, shot: int, query: int
) -> plan_lib.SamplingPlan:
  """One task: a unit of each upper level, `way` classes, shot + query of each.

  Classes are the level above the examples; in a hierarchy of two levels they
  come from the whole set, in a deeper one from one unit (one writer's script).

  Raises:
    PlanError: the hierarchy is too small for such a task.
  """
  upper = max(hierarchy.depth - 2, 0)
  plan = plan_lib.SamplingPlan(
      (
          *[plan_lib.FixedSize(1)] * upper,
          plan_lib.FixedSize(way),
          plan_lib.FixedSize(shot + query),
      ),
      episode=plan_lib.Episode(
          way=way,
          shot=shot,
          query=query,
          form="unit" if upper else "disjoint",
      ),
  )
  plan_lib.validate(hierarchy, plan)
  return plan


def draw(
    dataset: dataset_lib.Dataset,
    *,
    way: int,
    shot: int,
    query: int,
    count: int,
    seed: int,
) -> Tasks:
  """Draws `count` tasks from a public seed.

  Raises:
    PlanError: the data set has too few classes or examples for such a task.
  """
  plan = task_plan(dataset.hierarchy, way=way, shot=shot, query=query)
  episode = plan.episode
  assert episode is not None
  sample_key, label_key = jax.random.split(jax.random.key(seed))

  @jax.jit
  def rows(keys):
    def one(key):
      indices, mask = sampling.sample(key, dataset.hierarchy, plan, step=0)
      tasks, _ = sampling.task_indices(indices, mask, plan)
      return dataset.rows(tasks[0])

    return jax.vmap(one)(keys)

  return Tasks(
      images=dataset.images,
      rows=np.asarray(rows(jax.random.split(sample_key, count))),
      keys=jax.random.split(label_key, count),
      episode=episode,
  )


class Evaluator:
  """Measures parameters on tasks; compiled once per shape of task.

  Args:
    learner: has `predict(params, support, query_images) -> logits`.
  """

  def __init__(self, learner: Any):
    def probabilities(params, key, images, episode):
      batch = sampling.make_episode(key, images, episode)
      logits = learner.predict(params, batch.support, batch.query.images)
      return jax.nn.softmax(logits, axis=-1), batch.query.labels

    def chunk(params, keys, images, episode):
      one = functools.partial(probabilities, params, episode=episode)
      return jax.vmap(one)(keys, images)

    self._chunk: Callable[..., Any] = jax.jit(chunk, static_argnums=3)

  def probabilities(
      self, params: Any, tasks: Tasks
  ) -> tuple[np.ndarray, np.ndarray]:
    """Softmax outputs float32[tasks, way * query, way] and labels int32."""
    count = len(tasks.rows)
    per_task = 4 * math.prod(tasks.rows.shape[1:]) * math.prod(
        tasks.images.shape[1:]
    )
    size = max(1, min(count, 8, _SUPPORT_BYTES // per_task))
    outputs, labels = [], []
    for start in range(0, count, size):
      # The last chunk starts earlier instead of being shorter: one compilation.
      first = min(start, count - size)
      part = slice(first, first + size)
      images = jnp.asarray(tasks.images[tasks.rows[part]])
      output, label = self._chunk(
          params, tasks.keys[part], images, tasks.episode
      )
      outputs.append(np.asarray(output)[start - first :])
      labels.append(np.asarray(label)[start - first :])
    return np.concatenate(outputs), np.concatenate(labels)

  def accuracy(self, members: Sequence[Any], tasks: Tasks) -> Accuracy:
    """The accuracy of the mean of the members' softmax outputs.

    Args:
      members: parameters, one set for a single model.
      tasks: what to measure on.
    """
    total: np.ndarray | float = 0.0
    labels = np.zeros(0)
    for params in members:
      outputs, labels = self.probabilities(params, tasks)
      total = total + outputs
    right = np.argmax(total, axis=-1) == labels
    return interval(right.mean(axis=1))


def interval(per_task: np.ndarray) -> Accuracy:
  """Mean and 95 % interval of accuracies float[tasks] in [0, 1]."""
  per_task = np.asarray(per_task, np.float64)
  n = per_task.size
  mean = float(per_task.mean())
  # One task has no spread: its interval is everything.
  spread = float(per_task.std(ddof=1)) if n > 1 else math.inf
  half = min(1.96 * spread / math.sqrt(n), 1.0)
  return Accuracy(mean=mean, low=mean - half, high=mean + half, tasks=n)
