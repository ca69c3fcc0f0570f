"""Accuracy, or squared error, over fixed test tasks, with a 95 % interval.

The tasks are sampled once from a public key, so that runs are compared on the
same tasks. An image that is in many tasks is embedded once, if its features are
the same in all. An ensemble's members adapt separately, and their softmax
outputs are averaged (DP-MAML takes the five checkpoints that are best on
validation tasks). In regression the predicted numbers are averaged.
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

from episodic_dp import _validate
from episodic_dp import backends
from episodic_dp import learners
from episodic_dp import plan as plan_lib
from episodic_dp import sampling
from episodic_dp.data import dataset as dataset_lib
from episodic_dp.models import model as model_lib
from episodic_dp.plan import validation
from episodic_dp.private import sharding
from episodic_dp.sampling import episodes

_Z = 1.96  # Of a 95 % interval.
_AT_ONCE = 8  # Tasks whose images a device holds at once.
_BLOCK, _VALUES = 256, 2**21  # Images that a device embeds at once, and pixels.


@dataclasses.dataclass(frozen=True, kw_only=True)
class Score:
  """A mean over tasks with its 95 % interval.

  Attributes:
    mean: mean over tasks.
    low: lower end of the interval, see `interval`.
    high: upper end of the interval.
    tasks: number of tasks.
    per_task: the scores of the tasks in order, encoded (`decode_scores`); "" if
      the score was not measured here.
  """

  mean: float
  low: float
  high: float
  tasks: int
  per_task: str = dataclasses.field(default="", repr=False)

  name: ClassVar[str]
  sign: ClassVar[int]  # 1 if higher is better, -1 if lower is.


class Accuracy(Score):
  """The share of correctly classified queries of a task, from 0 to 1.

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
    targets: 0; in regression, the number of targets of a point.
  """

  images: np.ndarray
  rows: np.ndarray
  keys: jax.Array
  episode: plan_lib.Episode
  targets: int = 0

  @property
  def chance(self) -> float | None:
    """Return the accuracy of a blind guess; None in regression."""
    if self.targets:
      return None
    return 1 / self.episode.way

  @property
  def score(self) -> type[Score]:
    """Return the type of score for these tasks."""
    if self.targets:
      return SquaredError
    return Accuracy


def sample_tasks(
    dataset: dataset_lib.Dataset,
    *,
    way: int,
    shot: int,
    query: int,
    count: int,
    seed: int,
    classes: str | None = None,
) -> Tasks:
  """Sample `count` tasks of `plan.validation.task_plan` from a public seed.

  Args:
    dataset: public data, such as a validation split.
    way: classes of a task.
    shot: support examples of a class.
    query: query examples of a class.
    count: number of tasks.
    seed: public seed; equal seeds give equal tasks.
    classes: level of the classes; None for the level above the examples.

  Returns:
    The tasks, on the host: rows int32[count, way, shot + query].

  Raises:
    PlanError: the data set has too few classes or examples for such a task.
  """
  plan, hierarchy = validation.task_plan(
      dataset.hierarchy, way=way, shot=shot, query=query, classes=classes
  )
  backends.ask_for_cores()
  sample_key, label_key = jax.random.split(jax.random.key(seed))

  # Compiled once for each tree, plan and count.
  sample = backends.jit(_sample_leaves, static_argnames=("hierarchy", "plan"))
  leaves = sample(
      jax.random.split(sample_key, count), hierarchy=hierarchy, plan=plan
  )
  return Tasks(
      images=dataset.images,
      rows=np.asarray(dataset.rows(leaves)),
      keys=jax.random.split(label_key, count),
      episode=plan.task_form,
      targets=dataset.targets,
  )


def _sample_leaves(
    keys: jax.Array,
    *,
    hierarchy: plan_lib.Hierarchy,
    plan: plan_lib.SamplingPlan,
) -> jax.Array:
  """Return int32[keys, way, shot + query], the leaves of a task a key."""

  def one(key: jax.Array) -> jax.Array:
    indices, mask = sampling.sample(key, hierarchy, plan, step=0)
    tasks, _ = sampling.task_indices(indices, mask, hierarchy, plan)
    return tasks[0]

  return jax.vmap(one)(keys)


class Evaluator:
  """Measures parameters on tasks; compiled once for each shape of a task.

  All devices of this process share the tasks.

  Args:
    learner: the learner that predicts the queries.
  """

  def __init__(self, learner: learners.Learner):
    one_at_a_time = backends.choices().microbatch_size == 1
    self._mesh = sharding.make_mesh(jax.local_devices())

    def chunk(learner, params, given, keys, images, episode, targets, together):
      def of_device(params, given, keys, images):
        def one(key, images):
          batch = sampling.make_episode(key, images, episode, targets=targets)
          if together:
            adapted = learner.adapt(params, batch.support)
            result = learner.logits(adapted, batch.query.images)
          else:
            fixed = learner.normalised(given)
            result = fixed.predict(params, batch.support, batch.query.images)
          return result, batch.query.labels

        if one_at_a_time:
          return lax.map(lambda task: one(*task), (keys, images))
        return jax.vmap(one)(keys, images)

      return jax.shard_map(
          of_device,
          mesh=self._mesh,
          in_specs=(*2 * [sharding.REPLICATED], *2 * [sharding.PARTS]),
          out_specs=sharding.PARTS,
          check_vma=False,
      )(params, given, keys, images)

    def compiled(learner: learners.Learner) -> Callable[..., Any]:
      return backends.jit(
          functools.partial(chunk, learner), static_argnums=(4, 5, 6)
      )

    def embed(params, given, images):
      network = learner.normalised(given).model
      floats = episodes.as_floats(images)
      return network.apply(learner.network_params(params), floats)

    self._learner = learner
    self._chunk = compiled(learner)
    self._moments = backends.jit(learner.public_moments)
    self._embed = backends.jit(jax.shard_map(
        embed,
        mesh=self._mesh,
        in_specs=(*2 * [sharding.REPLICATED], sharding.PARTS),
        out_specs=sharding.PARTS,
        check_vma=False,
    ))
    on_features = learner.on_features()
    self._of_features = None
    if on_features is not None:
      self._of_features = compiled(on_features)

  def _embedded(
      self, params: model_lib.Params, given: Any, tasks: Tasks
  ) -> Tasks:
    """Return the tasks with the features of their images."""
    rows, places = np.unique(tasks.rows, return_inverse=True)
    size = min(_BLOCK, 1 + _VALUES // tasks.images[0].size) * self._mesh.size
    features = []
    for start in range(0, len(rows), size):
      # The last block is filled with its last image.
      part = np.minimum(np.arange(start, start + size), len(rows) - 1)
      images = jnp.asarray(tasks.images[rows[part]])
      features.append(np.asarray(self._embed(params, given, images)))
    return dataclasses.replace(
        tasks,
        images=np.concatenate(features),
        rows=places.reshape(tasks.rows.shape),
    )

  def outputs(
      self, params: model_lib.Params, tasks: Tasks, *, together: bool = False
  ) -> tuple[np.ndarray, np.ndarray]:
    """Return the model's outputs for the queries, and the correct labels.

    Args:
      params: the learner's parameters.
      tasks: the tasks.
      together: whether the queries of a task share their statistics; see the
        module's text.

    Returns:
      softmax outputs float32[tasks, way * query, way] and labels int32[tasks,
      way * query]; in regression predictions and targets, both
      float32[tasks, query, targets].

    Raises:
      PlanError: the learner is for tasks of another number of classes.
    """
    params = sharding.replicate(self._mesh, params)
    given = self._moments(params)
    chunk, heads = self._chunk, self._of_features
    alone = given is not None or not self._learner.model.mixes_examples
    if heads is not None and alone and not together:
      tasks, given = self._embedded(params, given, tasks), None
      chunk = heads
    count = len(tasks.rows)
    devices = self._mesh.size
    size = devices * min(-(-count // devices), _AT_ONCE)
    outputs, labels = [], []
    for start in range(0, count, size):
      # The last chunk is filled with its last task: one compilation.
      part = np.minimum(np.arange(start, start + size), count - 1)
      images = jnp.asarray(tasks.images[tasks.rows[part]])
      output, label = chunk(
          params, given, tasks.keys[part], images, tasks.episode,
          tasks.targets, together,
      )
      if not tasks.targets:
        if output.shape[-1] != tasks.episode.way:
          raise _validate.refusal(
              "way", tasks.episode.way, "the number of classes of the learner"
          )
        # Apart, as in `export.Predictor.probabilities`.
        output = jax.nn.softmax(output, axis=-1)
      outputs.append(np.asarray(output)[: count - start])
      labels.append(np.asarray(label)[: count - start])
    return np.concatenate(outputs), np.concatenate(labels)

  def score(
      self,
      members: Sequence[model_lib.Params],
      tasks: Tasks,
      *,
      together: bool = False,
  ) -> Score:
    """Score the mean of the members' outputs on the tasks.

    Args:
      members: parameter trees, one for a single model.
      tasks: the tasks to score.
      together: see `outputs`.

    Returns:
      The mean and its 95 % interval, `Score`: accuracy from 0 to 1, or in
      regression the squared error.
    """
    total: np.ndarray | float = 0.0
    labels = np.zeros(0)
    for params in members:
      outputs, labels = self.outputs(params, tasks, together=together)
      total = total + outputs
    if tasks.targets:
      errors = np.square(total / len(members) - labels)
      return interval(errors.mean(axis=(1, 2)), SquaredError)
    # The largest of numbers that are not finite names no class.
    right = np.argmax(total, axis=-1) == labels
    right &= np.isfinite(total).all(axis=-1)
    return interval(right.mean(axis=1))


def interval(per_task: np.ndarray, kind: type[Score] = Accuracy) -> Score:
  """Return the mean and 95 % interval of per-task scores [tasks].

  An accuracy has Wilson's interval (1927), which stays within 0 and 1, for the
  number of independent answers with the variance of these tasks. It is close to
  mean -+ 1.96 s / sqrt(tasks) for many tasks, s their standard deviation; this
  is the interval of a squared error.
  """
  per_task = np.asarray(per_task, np.float64)
  data = zlib.compress(per_task.astype("<f4").tobytes(), 9)
  packed = f"<f4/1:{base64.b64encode(data).decode()}"
  n = per_task.size
  mean = float(per_task.mean())
  # One task has no spread: the interval of a squared error is unbounded.
  spread = math.inf
  if n > 1:
    spread = float(per_task.std(ddof=1))
  half = _Z * spread / math.sqrt(n)
  low, high = mean - half, mean + half
  if kind is Accuracy:
    # Equal tasks count as one answer each.
    answers = float(n)
    if 0 < spread < math.inf:
      answers = max(n * mean * (1 - mean) / spread**2, answers)
    z = _Z**2 / answers
    centre = (mean + z / 2) / (1 + z)
    half = math.sqrt(z * mean * (1 - mean) + z**2 / 4) / (1 + z)
    # At 0 and 1 rounding may leave the mean outside.
    low = max(0.0, min(centre - half, mean))
    high = min(1.0, max(centre + half, mean))
  return kind(mean=mean, low=low, high=high, tasks=n, per_task=packed)


def decode_scores(text: str) -> np.ndarray:
  """Decode `Score.per_task`: float64[tasks].

  The text is "TYPE/OF:" and base64 of zlib: numbers of a NumPy type, to be
  divided by OF, which is more than 1 in results of earlier versions.
  """
  kind, _, rest = text.partition("/")
  of, _, data = rest.partition(":")
  values = np.frombuffer(zlib.decompress(base64.b64decode(data)), kind)
  return values.astype(np.float64) / int(of)
