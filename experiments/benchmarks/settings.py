"""The runs that benchmarks measure: few-shot tasks of Omniglot's size.

Images are random, since what a step costs does not depend on what they show.
Five ways, one shot, 28 x 28 in one channel, Conv4 with pooling; or, where a
run only has to work, 4 x 4 and a linear model, whose programs compile sooner.
"""

from collections.abc import Callable
import dataclasses
import functools
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import optax

from episodic_dp import data
from episodic_dp import learners
from episodic_dp import models
from episodic_dp import plan as plan_lib
from episodic_dp import private
from episodic_dp import sampling
from experiments.benchmarks import harness

WAY, SHOT = 5, 1
_SMALL = (4, 4, 1)
_OWNERS = 200  # Participants with images of their own; others share these.
Kind = Literal["protonet", "ridge", "supervised"]
LEVELS = ("participant", "class", "image")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Run:
  """The parts of a private run.

  Attributes:
    learner: adapts to a task.
    dataset: images and hierarchy.
    plan: how tasks are drawn.
    mechanism: what is released.
    optimizer: an Optax transformation.
  """

  learner: learners.Learner
  dataset: data.ArrayDataset
  plan: plan_lib.SamplingPlan
  mechanism: plan_lib.Mechanism
  optimizer: optax.GradientTransformation = optax.adam(0.01)

  def step(
      self, *, mesh: jax.sharding.Mesh | None = None, **compute: Any
  ) -> Any:
    """The compiled step, on one device unless a mesh is given.

    Args:
      mesh: see `private.Compute`.
      **compute: its other fields.
    """
    return private.make_meta_step(
        self.learner,
        self.optimizer,
        self.dataset,
        plan_lib.Release(self.dataset.hierarchy, self.plan, self.mechanism),
        compute=private.Compute(mesh=mesh, **compute),
    )

  def advance(self, count: int = 1, **compute: Any) -> Callable[[], Any]:
    """A case that makes so many steps, from where it ended before."""
    return harness.steps(self.step(**compute), self.init(), count)

  def init(self) -> private.State:
    """The state before the first step."""
    return private.init(
        jax.random.key(0), self.learner, self.optimizer, self.mechanism
    )

  def drawn_tasks(self) -> sampling.EpisodeBatch:
    """The tasks of the first step, as `private.make_meta_step` draws them.

    Sums that differ show it where that changes.
    """
    sampled, augmented = (
        jax.random.fold_in(self.init().key, i) for i in (0, 1)
    )
    drawn = sampling.sample(sampled, self.dataset.hierarchy, self.plan, 0)
    images = jnp.asarray(self.dataset.images)
    episode = self.plan.episode
    if episode is None:
      rows = self.dataset.rows(drawn[0].reshape(-1))
      labels = jnp.asarray(self.dataset.labels)
      made = jax.vmap(sampling.single_example)(images[rows], labels[rows])
    else:
      rows, _ = sampling.task_indices(
          *drawn, self.dataset.hierarchy, self.plan
      )
      keys = jax.vmap(
          lambda i: jax.random.fold_in(jax.random.fold_in(augmented, 0), i)
      )(jnp.arange(len(rows)))
      make = functools.partial(sampling.make_episode, episode=episode)
      made = jax.vmap(make)(keys, images[self.dataset.rows(rows)])
    return jax.device_get(made)

  def first_sum(
      self, tasks: int, **compute: Any
  ) -> tuple[Callable[[], Any], Any]:
    """Steps as a case, and the first one's sum of clipped gradients.

    For a run without noise whose optimizer descends by the mean itself.

    Args:
      tasks: of a step.
      **compute: fields of `private.Compute`.
    """
    state = self.init()
    before = jax.device_get(state.params)
    step = self.step(**compute)
    state, _ = step(state)
    total = jax.tree.map(
        lambda a, b: tasks * (a - np.asarray(b)), before, state.params
    )
    return harness.steps(step, state), total


def omniglot(
    *,
    inner_steps: int,
    inner_rate: float = 0.1,
    query: int,
    width: int = 64,
    tasks: int = 32,
    participants: int = _OWNERS,
    order: Literal["first", "second"] = "second",
    norm: Literal["batch", "group", "none"] = "batch",
    stage: Any = None,
    shape: tuple[int, int, int] = (28, 28, 1),
    per_class: int | None = None,
    smoke: bool = False,
    **mechanism: Any,
) -> Run:
  """A run of 5-way 1-shot tasks; (a) is 1 step, 15 queries, (b) 5 and 1.

  Args:
    inner_steps: of MAML.
    inner_rate: their learning rate.
    query: query images of a class.
    width: channels of every block of Conv4.
    tasks: drawn in a step, without replacement, unless there is a `stage`.
    participants: units; beyond 200 they share the images of 200.
    order: of MAML's gradient.
    norm: of Conv4.
    stage: how participants are drawn, in place of `tasks`.
    shape: of an image.
    per_class: images of a class; None for as many as a task takes.
    smoke: small images and a linear model, of no width.
    **mechanism: fields of `plan.Mechanism` other than the defaults here.
  """
  held = per_class or SHOT + query
  hierarchy = plan_lib.Hierarchy.regular(
      (participants, WAY, held),
      levels=LEVELS,
      copies=participants > _OWNERS,
  )
  if smoke:
    shape = _SMALL
    model = models.mlp(WAY, widths=(), input_shape=shape)
  else:
    model = models.conv4(WAY, width=width, norm=norm, input_shape=shape)
  rows = min(participants, _OWNERS) * WAY * held
  images = np.random.default_rng(0).integers(
      0, 256, (rows, *shape), np.uint8
  )
  return Run(
      learner=learners.MAML(
          model,
          inner_steps=inner_steps,
          inner_rate=inner_rate,
          order=order,
      ),
      dataset=data.ArrayDataset(
          name="random",
          images=images,
          hierarchy=hierarchy,
          rows=lambda leaf: leaf % rows,
      ),
      plan=plan_lib.SamplingPlan(
          (
              stage or plan_lib.FixedSize(tasks),
              plan_lib.FixedSize(WAY),
              plan_lib.FixedSize(SHOT + query),
          ),
          episode=plan_lib.Episode(way=WAY, shot=SHOT, query=query),
      ),
      mechanism=plan_lib.Mechanism(
          **{
              "clip_unit": "participant",
              "clip_norm": 1.0,
              "noise_multiplier": 1.0,
              "order": order,
              "inner_steps": inner_steps,
              **mechanism,
          }
      ),
  )


def shared_weights(
    learner: Kind,
    *,
    query: int,
    width: int,
    shape: tuple[int, int, int],
    tasks: int,
    clip_norm: float,
) -> Run:
  """A run of a learner whose tasks share the weights, without noise.

  Its update is the mean of the clipped gradients. Conv4 normalises by task, and
  by group where single examples are learned, of 64 classes.

  Args:
    learner: 5-way 1-shot, or of single examples.
    query: query images of a class; not read for single examples.
    width: channels of every block of Conv4.
    shape: of an image.
    tasks: drawn in a step, or examples.
    clip_norm: of a task, or of an example.
  """
  held = SHOT + query
  single = learner == "supervised"
  sizes: tuple[int, ...]
  levels: tuple[str, ...]
  if single:
    sizes, levels = (2 * tasks,), ("image",)
    model = models.conv4(64, width=width, norm="group", input_shape=shape)
  else:
    sizes, levels = (tasks, WAY, held), LEVELS
    model = models.conv4(None, width=width, input_shape=shape)
  stages = (tasks,) if single else (tasks, WAY, held)
  rows = int(np.prod(sizes))
  random = np.random.default_rng(0)
  made: learners.Learner
  if learner == "protonet":
    made = learners.ProtoNet(model, way=WAY)
  elif learner == "ridge":
    made = learners.RidgeHead(model, way=WAY)
  else:
    made = learners.Supervised(model)
  return Run(
      learner=made,
      dataset=data.ArrayDataset(
          name="random",
          images=random.integers(0, 256, (rows, *shape), np.uint8),
          hierarchy=plan_lib.Hierarchy.regular(sizes, levels=levels),
          labels=random.integers(0, 64, rows) if single else None,
      ),
      plan=plan_lib.SamplingPlan(
          tuple(plan_lib.FixedSize(n) for n in stages),
          episode=None
          if single
          else plan_lib.Episode(way=WAY, shot=SHOT, query=query),
      ),
      mechanism=plan_lib.Mechanism(
          clip_unit=levels[0], clip_norm=clip_norm, noise_multiplier=0.0
      ),
      optimizer=optax.sgd(1.0),
  )
