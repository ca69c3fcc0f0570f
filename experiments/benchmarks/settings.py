"""Runs that benchmarks measure: few-shot tasks of Omniglot's size.

Images are random, since they do not affect the time of a step. Five ways, one
shot, 28 x 28 in one channel, Conv4 with pooling; or, for a trial, 4 x 4 and a
linear model, whose programs compile faster.
"""

from collections.abc import Callable
import dataclasses
import functools
import math
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
from episodic_dp.sampling import episodes
from experiments.benchmarks import harness

WAY, SHOT = 5, 1
CLASSES = 64  # Of supervised learning.
LEVELS = ("participant", "class", "image")
# "turns" is a prototypical network whose images all take turns as the support.
Kind = Literal["maml", "protonet", "turns", "ridge", "supervised"]
_SMALL = (4, 4, 1)
_OWNERS = 200  # Participants with separate images; others share these.


@dataclasses.dataclass(frozen=True, kw_only=True)
class Run:
  """The parts of a private run.

  Attributes:
    learner: adapts to a task.
    dataset: images and hierarchy.
    plan: the sampler of tasks.
    mechanism: clipping and noise.
    optimizer: an Optax transformation.
  """

  learner: learners.Learner
  dataset: data.Dataset
  plan: plan_lib.SamplingPlan
  mechanism: plan_lib.Mechanism
  optimizer: optax.GradientTransformation = optax.adam(0.01)

  def step(
      self, *, mesh: jax.sharding.Mesh | None = None, **compute: Any
  ) -> Any:
    """Return the compiled step, on one device unless a mesh is given.

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

  def advance(self, **compute: Any) -> Callable[[], Any]:
    """Return a case that takes a step from its last state."""
    return harness.steps(self.step(**compute), self.init())

  def init(self) -> private.State:
    """Return the state before the first step."""
    return private.init(
        jax.random.key(0), self.learner, self.optimizer, self.mechanism
    )

  def drawn_tasks(self) -> sampling.EpisodeBatch:
    """Return the tasks of the first step, as `private.make_meta_step` does.

    A difference between sums shows it if that function changes.
    """
    sampled = jax.random.fold_in(self.init().key, 0)
    augmented = jax.random.fold_in(self.init().key, 1)
    drawn = sampling.sample(sampled, self.dataset.hierarchy, self.plan, 0)
    episode, every = self.plan.episode, jnp.asarray(self.dataset.images)
    if episode is None:
      rows = self.dataset.rows(drawn[0].reshape(-1))
      return jax.device_get(jax.vmap(episodes.single_example)(
          every[rows], jnp.asarray(self.dataset.labels)[rows]
      ))
    rows, _ = sampling.task_indices(*drawn, self.dataset.hierarchy, self.plan)
    keys = jax.vmap(
        lambda i: jax.random.fold_in(jax.random.fold_in(augmented, 0), i)
    )(jnp.arange(len(rows)))
    return jax.device_get(
        jax.vmap(functools.partial(sampling.make_episode, episode=episode))(
            keys, every[self.dataset.rows(rows)]
        )
    )


def omniglot(
    *,
    inner_steps: int = 1,
    inner_rate: float = 0.1,
    query: int,
    width: int = 64,
    tasks: int = 32,
    participants: int = _OWNERS,
    order: Literal["first", "second"] = "second",
    norm: Literal["batch", "group", "none"] = "batch",
    stage: Any = None,
    shape: tuple[int, int, int] = (28, 28, 1),
    learner: Kind = "maml",
    smoke: bool = False,
    **mechanism: Any,
) -> Run:
  """Return a run of 5-way 1-shot tasks.

  Args:
    inner_steps: of MAML.
    inner_rate: their learning rate.
    query: query images of a class.
    width: channels of every block of Conv4.
    tasks: tasks of a step, without replacement, unless `stage` is given.
    participants: units; beyond 200 they share the images of 200.
    order: of MAML's gradient.
    norm: of Conv4.
    stage: the sampler of participants, instead of `tasks`.
    shape: shape of an image.
    learner: "supervised" learns single examples of 64 classes: a task is one.
    smoke: whether to use small images and a linear model, without a width.
    **mechanism: fields of `plan.Mechanism` other than the defaults here.
  """
  if smoke:
    shape = _SMALL
  single = learner == "supervised"
  episode = None
  if single:
    norm, sizes = "group", (1, 1)
    mechanism = {"clip_unit": LEVELS[-1]} | mechanism
  else:
    sizes = (WAY, SHOT + query)  # All of them are drawn.
    episode = plan_lib.Episode(way=WAY, shot=SHOT, query=query)
  rows = min(participants, _OWNERS) * math.prod(sizes)
  random = np.random.default_rng(0)
  outputs = {"maml": WAY, "supervised": CLASSES}.get(learner)
  if smoke and outputs:
    model = models.mlp(outputs, widths=(), input_shape=shape)
  else:
    model = models.conv4(outputs, width=width, norm=norm, input_shape=shape)
  made: learners.Learner
  if learner == "maml":
    made = learners.MAML(
        model, inner_steps=inner_steps, inner_rate=inner_rate, order=order
    )
    mechanism = dict(order=order, inner_steps=inner_steps) | mechanism
  elif single:
    made = learners.Supervised(model)
  elif learner == "ridge":
    made = learners.RidgeHead(model, way=WAY)
  else:
    made = learners.ProtoNet(
        model, way=WAY, rotate_support=learner == "turns"
    )
  return Run(
      learner=made,
      dataset=data.ArrayDataset(
          name="random",
          images=random.integers(0, 256, (rows, *shape), np.uint8),
          hierarchy=plan_lib.Hierarchy.regular(
              (participants, *sizes), levels=LEVELS,
              copies=participants > _OWNERS,
          ),
          labels=random.integers(0, CLASSES, rows) if single else None,
          rows=lambda leaf: leaf % rows,
      ),
      plan=plan_lib.SamplingPlan(
          (
              stage or plan_lib.FixedSize(tasks),
              *map(plan_lib.FixedSize, sizes),
          ),
          episode=episode,
      ),
      mechanism=plan_lib.Mechanism(
          **{
              "clip_unit": LEVELS[0],
              "clip_norm": 1.0,
              "noise_multiplier": 1.0,
              **mechanism,
          }
      ),
  )
