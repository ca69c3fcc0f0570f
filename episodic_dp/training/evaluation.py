"""Accuracy, or squared error, over fixed test tasks, with a 95 % interval.

The tasks are drawn once from a public key, so that runs are compared on the
same tasks: one model, or an ensemble whose members adapt on their own and
whose softmax outputs are averaged (DP-MAML takes the five checkpoints best on
validation tasks). In regression the numbers that they predict are averaged.
"""

import base64
from collections.abc import Callable, Sequence
import dataclasses
import functools
import math
from typing import Any, ClassVar
import zlib

import jax
from jax import lax
import jax.numpy as jnp
import numpy as np

from episodic_dp import backends
from episodic_dp import learners
from episodic_dp import plan as plan_lib
from episodic_dp import sampling
from episodic_dp.data import dataset as dataset_lib
from episodic_dp.plan import validation
from episodic_dp.private import sharding

_AT_ONCE = 8  # Tasks whose images a device holds.


@dataclasses.dataclass(frozen=True, kw_only=True)
class Score:
  """A mean over tasks with its interval.

  Attributes:
    mean: mean over tasks.
    low: mean - 1.96 s / sqrt(tasks), s the standard deviation over tasks.
    high: mean + 1.96 s / sqrt(tasks).
    tasks: how many tasks.
    per_task: the scores of the tasks in their order, packed (`unpack`); "" for
      a score that was not measured here.
  """

  mean: float
  low: float
  high: float
  tasks: int
  per_task: str = dataclasses.field(default="", repr=False)

  name: ClassVar[str]
  sign: ClassVar[int]  # 1 where more is better, -1 where less is.


class Accuracy(Score):
  """The share of a task's query images named rightly, as fractions of 1.

  The attributes are those of `Score`.
  """

  name = "accuracy"
  sign = 1

  def __str__(self) -> str:
    half = 100 * (self.high - self.low) / 2
    return f"{100 * self.mean:.1f} % ± {half:.1f}"


class SquaredError(Score):
  """The mean squared error of a task's predicted query targets.

  The attributes are those of `Score`.
  """

  name = "squared_error"
  sign = -1

  def __str__(self) -> str:
    return f"{self.mean:.3f} ± {(self.high - self.low) / 2:.3f}"


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Tasks:
  """Fixed evaluation tasks.

  Attributes:
    images: uint8[rows, H, W, C] of the data set; or points, float32.
    rows: int32[tasks, way, shot + query].
    keys: typed keys [tasks], for the order of labels.
    episode: way, shot and query.
    targets: 0, or for regression the numbers of a point to be predicted.
  """

  images: np.ndarray
  rows: np.ndarray
  keys: jax.Array
  episode: plan_lib.Episode
  targets: int = 0

  @property
  def chance(self) -> float | None:
    """Accuracy of a blind guess; None in regression."""
    return None if self.targets else 1 / self.episode.way

  @property
  def score(self) -> type[Score]:
    """Kind of score that is measured on these tasks."""
    return SquaredError if self.targets else Accuracy


def draw(
    dataset: dataset_lib.Dataset,
    *,
    way: int,
    shot: int,
    query: int,
    count: int,
    seed: int,
    classes: str | None = None,
) -> Tasks:
  """Draw `count` tasks of `plan.validation.task_plan` from a public seed.

  Raises:
    PlanError: the data set has too few classes or examples for such a task.
  """
  plan, hierarchy = validation.task_plan(
      dataset.hierarchy, way=way, shot=shot, query=query, classes=classes
  )
  episode = plan.episode
  assert episode is not None
  backends.ask_for_cores()
  sample_key, label_key = jax.random.split(jax.random.key(seed))

  @jax.jit
  def rows(keys: jax.Array) -> jax.Array:
    def one(key: jax.Array) -> jax.Array:
      indices, mask = sampling.sample(key, hierarchy, plan, step=0)
      tasks, _ = sampling.task_indices(indices, mask, hierarchy, plan)
      return dataset.rows(tasks[0])

    return jax.vmap(one)(keys)

  return Tasks(
      images=dataset.images,
      rows=np.asarray(rows(jax.random.split(sample_key, count))),
      keys=jax.random.split(label_key, count),
      episode=episode,
      targets=dataset.targets,
  )


class Evaluator:
  """Measures parameters on tasks; compiled once per shape of task.

  All devices of this process share the tasks out.

  Args:
    learner: predicts the labels of queries.
  """

  def __init__(self, learner: learners.Learner):
    def outputs(params, key, images, episode, targets):
      batch = sampling.make_episode(key, images, episode, targets=targets)
      result = learner.predict(params, batch.support, batch.query.images)
      if not targets:
        result = jax.nn.softmax(result, axis=-1)
      return result, batch.query.labels

    one_at_a_time = backends.choices().microbatch_size == 1
    self._mesh = sharding.make_mesh(jax.local_devices())

    def chunk(params, keys, images, episode, targets):
      def of_device(params, keys, images):
        one = functools.partial(
            outputs, params, episode=episode, targets=targets
        )
        if one_at_a_time:
          return lax.map(lambda task: one(*task), (keys, images))
        return jax.vmap(one)(keys, images)

      return jax.shard_map(
          of_device,
          mesh=self._mesh,
          in_specs=(sharding.REPLICATED, sharding.PARTS, sharding.PARTS),
          out_specs=sharding.PARTS,
          check_vma=False,
      )(params, keys, images)

    self._chunk: Callable[..., Any] = backends.jit(
        chunk, static_argnums=(3, 4)
    )

  def outputs(
      self, params: Any, tasks: Tasks
  ) -> tuple[np.ndarray, np.ndarray]:
    """Return the model's outputs for the queries, and the right answers.

    Returns:
      softmax outputs float32[tasks, way * query, way] and labels int32[tasks,
      way * query]; in regression predictions and targets, float32[tasks,
      query, targets] both.
    """
    params = sharding.replicate(self._mesh, params)
    count = len(tasks.rows)
    devices = self._mesh.size
    size = devices * min(-(-count // devices), _AT_ONCE)
    outputs, labels = [], []
    for start in range(0, count, size):
      # The last task again, where a chunk is not full: one compilation.
      part = np.minimum(np.arange(start, start + size), count - 1)
      images = jnp.asarray(tasks.images[tasks.rows[part]])
      output, label = self._chunk(
          params, tasks.keys[part], images, tasks.episode, tasks.targets
      )
      outputs.append(np.asarray(output)[: count - start])
      labels.append(np.asarray(label)[: count - start])
    return np.concatenate(outputs), np.concatenate(labels)

  def score(self, members: Sequence[Any], tasks: Tasks) -> Score:
    """Score the mean of the members' outputs on the tasks.

    Args:
      members: parameters, one set for a single model.
      tasks: the tasks that are scored.
    """
    total: np.ndarray | float = 0.0
    labels = np.zeros(0)
    for params in members:
      outputs, labels = self.outputs(params, tasks)
      total = total + outputs
    if tasks.targets:
      errors = np.square(total / len(members) - labels)
      return interval(errors.mean(axis=(1, 2)), SquaredError)
    right = np.argmax(total, axis=-1) == labels
    return interval(right.mean(axis=1))


def interval(per_task: np.ndarray, kind: type[Score] = Accuracy) -> Score:
  """Return the mean and 95 % interval of the scores [tasks] of a kind."""
  per_task = np.asarray(per_task, np.float64)
  data = zlib.compress(per_task.astype("<f4").tobytes(), 9)
  packed = f"<f4/1:{base64.b64encode(data).decode()}"
  n = per_task.size
  mean = float(per_task.mean())
  # One task has no spread: its interval is everything.
  spread = float(per_task.std(ddof=1)) if n > 1 else math.inf
  half = 1.96 * spread / math.sqrt(n)
  if kind is Accuracy:
    half = min(half, 1.0)
  return kind(
      mean=mean, low=mean - half, high=mean + half, tasks=n, per_task=packed
  )


def unpack(text: str) -> np.ndarray:
  """Return the scores float64[tasks] of a `Score.per_task`.

  The text is "TYPE/OF:" and base64 of zlib: numbers of a type of NumPy, to be
  divided by OF, which is more than 1 in results of earlier versions.
  """
  kind, _, rest = text.partition("/")
  of, _, data = rest.partition(":")
  values = np.frombuffer(zlib.decompress(base64.b64decode(data)), kind)
  return values.astype(np.float64) / int(of)
