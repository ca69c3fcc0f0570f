"""The sum of the clipped gradients of a step's tasks, chunk by chunk."""

from typing import Any, NamedTuple

import jax
from jax import lax
import jax.numpy as jnp

from episodic_dp import learners
from episodic_dp import plan as plan_lib
from episodic_dp import sampling
from episodic_dp.private import adaptive
from episodic_dp.private import clipping
from episodic_dp.private import sample_level

Facts = dict[str, jax.Array]


class Totals(NamedTuple):
  """What a step adds up.

  Attributes:
    gradient: tree like the parameters, float32.
    lost: likewise, what rounding took off `gradient` so far.
    facts: sums over tasks, or none; private.
    norms: what the clip norm adapts to (`adaptive.begin`); private.
  """

  gradient: Any
  lost: Any
  facts: Facts
  norms: Any

  @property
  def sum(self) -> Any:
    """The sum of the clipped gradients, see `clipping`."""
    return jax.tree.map(jnp.add, self.gradient, self.lost)


_FACTS = ("loss", "accuracy", "clipped", "norm", "non_finite")


class Tasks(NamedTuple):
  """The tasks of one step.

  Attributes:
    images: uint8 or float32 [images, H, W, C], the whole data set.
    rows: int32[slots, way, shot + query], rows of `images`.
    mask: bool[slots], false for slots without a task; these come last.
    labels: int32[images], the class of every image, where there are no
      episodes: a slot is one example, way and shot + query are 1. None with
      episodes.
  """

  images: jax.Array
  rows: jax.Array
  mask: jax.Array
  labels: jax.Array | None = None


def task_sum(
    learner: learners.Learner,
    mechanism: plan_lib.Mechanism,
    params: Any,
    tasks: Tasks,
    key: jax.Array,
    *,
    episode: plan_lib.Episode | None,
    rotate: bool = False,
    targets: int = 0,
    microbatch_size: int = 4,
    diagnostics: bool = False,
    inner_key: jax.Array | None = None,
) -> tuple[Any, Facts]:
  """Sums the clipped gradients of the tasks that the mask holds.

  With noisy inner steps the clip units are the query examples of the tasks, see
  `sample_level`.

  Memory grows with `microbatch_size`, not with the number of slots, and only
  the chunks that hold tasks are computed. Each task is clipped by itself, so
  that one task added, removed or replaced moves the sum by no more than
  `clipping.sensitivity`.

  Args:
    learner: see `make_meta_step`.
    mechanism: the clip norm, and what it bounds.
    params: what the gradients are taken at.
    tasks: see `Tasks`.
    key: of the label permutations and rotations; slot i folds i into it.
    episode: way, shot and query; None where every task is one example.
    rotate: whether classes are rotated.
    targets: 0, or the channels to be predicted, for regression.
    microbatch_size: tasks computed at once.
    diagnostics: also return facts about single tasks, which are private.
    inner_key: of the noise of inner steps, where they are noisy; slot i folds i
      into it.

  Returns:
    (tree like params, float32, not noised; facts "private/..." or none).
  """
  totals = add_tasks(
      learner,
      mechanism,
      params,
      zeros(params, diagnostics=diagnostics, targets=targets),
      tasks,
      key,
      episode=episode,
      rotate=rotate,
      targets=targets,
      microbatch_size=microbatch_size,
      inner_key=inner_key,
  )
  return totals.sum, summarise(totals.facts, tasks.mask)


def zeros(
    params: Any,
    clip: adaptive.Clip = (),
    *,
    diagnostics: bool,
    targets: int = 0,
    slots: int | None = None,
) -> Totals:
  """What a step adds its tasks to; regression knows no accuracy.

  Args:
    params: what the gradients will be like.
    clip: the clip norms of this step, where they adapt.
    diagnostics: whether facts about single tasks are added up.
    targets: 0, or the channels to be predicted, for regression.
    slots: of one device, where several share the tasks out; a multiple of the
      tasks of a chunk.
  """
  total, lost = (
      jax.tree.map(lambda p: jnp.zeros(p.shape, jnp.float32), params)
      for _ in range(2)
  )
  names = [n for n in _FACTS if n != "accuracy" or not targets]
  facts = {name: jnp.zeros(()) for name in names if diagnostics}
  norms = adaptive.begin(clip)
  if slots is not None:
    norms = adaptive.begin_on_device(clip, slots)
  return Totals(total, lost, facts, norms)


def add_tasks(
    learner: learners.Learner,
    mechanism: plan_lib.Mechanism,
    params: Any,
    totals: Totals,
    tasks: Tasks,
    key: jax.Array,
    clip: adaptive.Clip = (),
    *,
    first: jax.Array | int = 0,
    stride: int = 1,
    episode: plan_lib.Episode | None,
    rotate: bool = False,
    targets: int = 0,
    microbatch_size: int = 4,
    inner_key: jax.Array | None = None,
) -> Totals:
  """Adds tasks to what `zeros` began; all of a step's, or a part of them.

  Parts give the bits of the whole when each but the last is a multiple of
  `microbatch_size`: chunks are added one by one, in the same order.

  Args:
    learner: as for `task_sum`, and so are the others.
    mechanism: the clip norm, and what it bounds.
    params: what the gradients are taken at.
    totals: from `zeros`, or from the part before.
    tasks: the part; `rows` point into its own `images`.
    key: of the whole step.
    clip: the clip norms of this step, where they adapt.
    first: the slot, of the whole step, of the part's first task.
    stride: how far the slot of a task is from that of the one before.
    episode: way, shot and query; None where every task is one example.
    rotate: whether classes are rotated.
    targets: 0, or the channels to be predicted, for regression.
    microbatch_size: tasks computed at once.
    inner_key: of the whole step.

  Returns:
    The new totals; the facts are sums yet, for `summarise`.
  """
  chunk, diagnostics = microbatch_size, bool(totals.facts)
  padding = -tasks.mask.shape[0] % chunk
  rows = jnp.pad(tasks.rows, ((0, padding), (0, 0), (0, 0)))
  mask = jnp.pad(tasks.mask, (0, padding))

  def one_task(slot, images, label):
    if episode is None:
      task = sampling.single_example(images[0, 0], label)
    else:
      task = sampling.make_episode(
          jax.random.fold_in(key, slot),
          images,
          episode,
          rotate=rotate,
          targets=targets,
      )
    if mechanism.noisy_inner_steps:
      loss, clipped = sample_level.query_sum(
          learner, mechanism, params, task, jax.random.fold_in(inner_key, slot)
      )
    else:
      loss, gradient = learner.meta_gradient(params, task)
      clipped = clipping.clip(
          gradient, adaptive.bounds(mechanism, clip), mechanism.clip_by
      )
    if not diagnostics:
      return clipped, {}
    facts = {
        "loss": jnp.where(jnp.isfinite(loss), loss, 0),
        # Of the task, or of its query examples where these are clip units.
        "clipped": clipped.clipped.mean(),
        "norm": clipped.norm.mean(),
        "non_finite": jnp.sum(1.0 - clipped.finite),
    }
    if not targets:
      logits = learner.predict(params, task.support, task.query.images)
      right = jnp.argmax(logits, -1) == task.query.labels
      facts["accuracy"] = right.mean()
    return clipped, facts

  def every_task(*chunk_of):
    if chunk > 1:
      return jax.vmap(one_task)(*chunk_of)
    # A batch of one is slower than none: batched products take other ways.
    alone = one_task(*jax.tree.map(lambda a: a[0], chunk_of))
    return jax.tree.map(lambda a: a[None], alone)

  def add_chunk(i, totals):
    start = i * chunk
    chosen = lax.dynamic_slice_in_dim(rows, start, chunk)
    real = lax.dynamic_slice_in_dim(mask, start, chunk)
    slots = first + stride * (start + jnp.arange(chunk))
    labels = None
    if tasks.labels is not None:
      labels = tasks.labels[chosen[:, 0, 0]]
    clipped, facts = every_task(slots, tasks.images[chosen], labels)

    def part(values):
      shape = (chunk,) + (1,) * (values.ndim - 1)
      # Chosen, not multiplied: what fills an empty slot may be anything.
      return clipping.add_up(jnp.where(real.reshape(shape), values, 0))

    gradient, lost = clipping.accumulate(
        totals.gradient, totals.lost, jax.tree.map(part, clipped.gradient)
    )
    return Totals(
        gradient,
        lost,
        jax.tree.map(lambda a, b: a + part(b), totals.facts, facts),
        adaptive.see(totals.norms, clipped, real, start) if clip else (),
    )

  # Up to the last task; the empty chunks beyond are not computed.
  filled = jnp.max(jnp.where(mask, jnp.arange(mask.shape[0]) + 1, 0))
  return lax.fori_loop(0, (filled + chunk - 1) // chunk, add_chunk, totals)


def summarise(facts: Facts, mask: jax.Array) -> Facts:
  """Sums over the step's tasks to means, except the counts.

  Args:
    facts: of all tasks of the step.
    mask: bool[slots] of all of them.
  """
  if not facts:
    return {}
  count = mask.sum().astype(jnp.float32)
  means = {
      f"private/{name}": total / jnp.maximum(count, 1)
      for name, total in facts.items()
      if name != "non_finite"
  }
  return means | {
      "private/tasks": count,
      "private/non_finite": facts["non_finite"],
  }
