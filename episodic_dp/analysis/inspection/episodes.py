"""Tasks as a step of training sees them, drawn with a public seed.

The seed has nothing to do with the key of a run, which is secret. What is drawn
from the public validation split may be shown to anyone; what is drawn from the
training split are private images.
"""

from collections.abc import Iterator
import dataclasses
import functools
import math

import jax
import jax.numpy as jnp
import numpy as np

from episodic_dp import data
from episodic_dp import plan as plan_lib
from episodic_dp import sampling
from episodic_dp.analysis.inspection import tasks as tasks_lib
from episodic_dp.analysis.inspection import wording

_SAMPLING, _AUGMENTATION = range(2)
_TURNED = " Whole classes are turned by multiples of 90 degrees."


def training_tasks(
    dataset: data.ArrayDataset,
    plan: plan_lib.SamplingPlan,
    *,
    tasks: int,
    seed: int,
) -> tasks_lib.TaskSheet:
  """The first tasks of step 0: PRIVATE images, exactly as training draws them.

  Args:
    dataset: the training split.
    plan: with an episode.
    tasks: show at most so many.
    seed: public.
  """
  shown, number = _draw(dataset, plan, tasks, seed, dataset.rotate)
  return tasks_lib.TaskSheet(
      tasks=shown,
      source=f"{dataset.name}: {dataset.description}",
      how=(
          "Step 0 of the plan itself, with a public key:"
          f" {wording.plural(number, 'task')} drawn, the first"
          f" {len(shown)} shown." + (_TURNED if dataset.rotate else "")
      ),
      private=True,
  )


def public_tasks(
    dataset: data.ArrayDataset,
    plan: plan_lib.SamplingPlan,
    *,
    tasks: int,
    seed: int,
    rotate: bool,
) -> tasks_lib.TaskSheet:
  """Tasks of the same form and size from public classes.

  Args:
    dataset: the validation split.
    plan: of training, with an episode.
    tasks: how many to draw.
    seed: public.
    rotate: whether training rotates whole classes.

  Raises:
    PlanError: the split is too small for such a task.
  """
  error = None
  occupied = dataset.hierarchy.occupied()
  for hierarchy, public, how in _public_plans(occupied, plan, tasks):
    try:
      plan_lib.validate(hierarchy, public)
    except plan_lib.PlanError as e:
      error = e
      continue
    small = dataclasses.replace(dataset, hierarchy=hierarchy)
    shown, _ = _draw(small, public, tasks, seed, rotate)
    return tasks_lib.TaskSheet(
        tasks=shown,
        source=f"{dataset.name}: {dataset.description}",
        how=how + (_TURNED if rotate else ""),
        private=False,
    )
  assert error is not None
  raise error


def _public_plans(
    hierarchy: plan_lib.Hierarchy, plan: plan_lib.SamplingPlan, tasks: int
) -> Iterator[tuple[plan_lib.Hierarchy, plan_lib.SamplingPlan, str]]:
  """Plans for public data, the most faithful first."""
  episode = plan.episode
  assert episode is not None
  if hierarchy.depth == len(plan.stages):
    if episode.form == "unit":
      first = plan_lib.FixedSize(min(tasks, hierarchy.num_units(0)))
      public = dataclasses.replace(plan, stages=(first, *plan.stages[1:]))
    elif episode.form == "independent":
      public = dataclasses.replace(
          plan, episode=dataclasses.replace(episode, tasks=tasks)
      )
    else:
      public = plan
    yield hierarchy, public, (
        "Drawn by the class and example stages of the plan, applied to the"
        " public validation split, which training never sees."
    )
  level = hierarchy.depth - 2
  if episode.classes in hierarchy.levels:
    level = hierarchy.level_index(episode.classes)
  yield _classes(hierarchy, level), plan_lib.SamplingPlan(
      (
          plan_lib.FixedSize(episode.way),
          plan_lib.FixedSize(episode.shot + episode.query),
      ),
      episode=dataclasses.replace(
          episode, form="independent", tasks=tasks, classes=None
      ),
  ), (
      "Tasks of the plan's way, shot and query; each takes its classes from the"
      " whole public split, which training never sees and whose hierarchy does"
      " not fit the stages above the classes."
  )


def _classes(
    hierarchy: plan_lib.Hierarchy, level: int
) -> plan_lib.Hierarchy:
  """Two levels: the classes, and all examples below each."""
  units, offsets = hierarchy.num_units(level), hierarchy.offsets
  levels = (hierarchy.levels[level], hierarchy.levels[-1])
  if hierarchy.sizes is not None:
    examples = math.prod(hierarchy.sizes[level + 1 :])
    return plan_lib.Hierarchy(
        levels=levels, sizes=(units, examples), leaf_rows=hierarchy.leaf_rows
    )
  assert offsets is not None
  ends = offsets[level + 1]  # Of each class, where its units below end.
  for below in offsets[level + 2 :]:
    ends = below[ends]
  return plan_lib.Hierarchy(
      levels=levels,
      offsets=(np.asarray([0, units], np.int64), ends),
      leaf_rows=hierarchy.leaf_rows,
  )


def _draw(
    dataset: data.ArrayDataset,
    plan: plan_lib.SamplingPlan,
    tasks: int,
    seed: int,
    rotate: bool,
) -> tuple[tuple[tasks_lib.TaskImages, ...], int]:
  """The first tasks of step 0, and how many were drawn in all."""
  episode = plan.episode
  assert episode is not None
  key = jax.random.key(seed, impl="threefry2x32")
  leaves, mask = sampling.task_indices(
      *sampling.sample(
          jax.random.fold_in(key, _SAMPLING), dataset.hierarchy, plan, step=0
      ),
      dataset.hierarchy,
      plan,
  )
  slots = np.flatnonzero(np.asarray(mask))
  first = slots[:tasks]
  rows = np.asarray(dataset.rows(leaves[first]))
  if not first.size:
    return (), 0
  batch = _make(
      jax.random.fold_in(key, _AUGMENTATION),
      jnp.asarray(first),
      jnp.asarray(dataset.images[rows]),
      episode,
      rotate,
  )
  return tuple(
      tasks_lib.TaskImages(
          support=_by_label(batch.support, i, episode.way),
          query=_by_label(batch.query, i, episode.way),
      )
      for i in range(len(first))
  ), len(slots)


@functools.partial(jax.jit, static_argnums=(3, 4))
def _make(key, slots, images, episode, rotate):
  """The episodes of all slots, each with a key of its own."""

  def one(slot, images):
    return sampling.make_episode(
        jax.random.fold_in(key, slot), images, episode, rotate=rotate
    )

  return jax.vmap(one)(slots, images)


def _by_label(examples: sampling.Examples, task: int, way: int) -> np.ndarray:
  """uint8[way, n, H, W, C] of one task; row i has the label i."""
  images = np.asarray(examples.images[task])
  labels = np.asarray(examples.labels[task]).reshape(way, -1)[:, 0]
  # Images of more than 8 bits may have been scaled beyond 0 to 1.
  images = np.rint(255 * np.clip(images, 0, 1)).astype(np.uint8)
  return images.reshape(way, -1, *images.shape[1:])[np.argsort(labels)]
