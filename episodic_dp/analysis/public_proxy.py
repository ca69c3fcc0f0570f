"""What public tasks tell of a config's gradients, and what one costs here.

Nothing private is computed with: the tasks are of the built-in glyphs, or of
the validation split, which a config declares public.
"""

import dataclasses
import os
import time

import jax
from jax import flatten_util
import jax.numpy as jnp
import optax

from episodic_dp import backends
from episodic_dp import data
from episodic_dp import plan as plan_lib
from episodic_dp import training
from episodic_dp.analysis import alignment
from episodic_dp.config import build
from episodic_dp.config import learners as learners_lib
from episodic_dp.config import RunConfig
from episodic_dp.data.cifar_fs import source as cifar_fs
from episodic_dp.data.mini_imagenet import source as mini_imagenet
from episodic_dp.data.mnist_writers import source as mnist_writers
from episodic_dp.data.omniglot import source as omniglot

PROXIES = ("glyphs", "validation")
# Pixels and channels of the data sets that glyphs are drawn like.
_SHAPES = {
    "cifar_fs": (cifar_fs.SIZE, 3),
    "glyphs": (28, 1),
    "mini_imagenet": (mini_imagenet.SIZE, 3),
    "mnist_writers": (mnist_writers.SIZE, 1),
    "omniglot": (omniglot.SIZE, 1),
}
_WRITERS = 512  # Of the glyphs.
_TASKS = 256  # Whose gradients are compared.
_STEPS = 10  # Of the warm start.
_AT_ONCE = 64  # Tasks whose gradients are added up; also those of its steps.


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Measured:
  """What the public tasks told.

  Attributes:
    proxy: one of `PROXIES`.
    tasks: how many tasks' gradients were compared.
    start: at the initial parameters.
    warm: after the first steps, taken without noise on public tasks.
    warm_steps: how many there were.
    seconds_per_task: of clipped gradients on the devices that are here; what a
      step does once, and what validation takes, is not in it.
  """

  proxy: str
  tasks: int
  start: alignment.Alignment
  warm: alignment.Alignment
  warm_steps: int
  seconds_per_task: float

  def clipped(self, clip_norm: float) -> alignment.Clipped:
    """A clipped gradient on the way; see `halfway`."""
    return halfway(self.start.clipped(clip_norm), self.warm.clipped(clip_norm))


def halfway(
    start: alignment.Clipped, warm: alignment.Clipped
) -> alignment.Clipped:
  """The mean of two places on the way.

  The alignment changes while a network learns; either place alone would be
  taken for the whole way.
  """
  return dataclasses.replace(
      warm,
      signal=(start.signal + warm.signal) / 2,
      spread=(start.spread + warm.spread) / 2,
  )


def check(config: RunConfig, proxy: str) -> None:
  """PlanError where the proxy cannot stand in for the config's data."""
  if proxy == "glyphs" and (config.data.name not in _SHAPES or config.way < 2):
    raise plan_lib.PlanError(
        f"glyphs are drawings in classes, and the tasks of"
        f" '{config.data.name}' need not be: give --proxy=validation"
    )


def measure(
    config: RunConfig,
    proxy: str,
    *,
    data_dir: str | os.PathLike[str] | None = None,
    download: bool = False,
    tasks: int = _TASKS,
) -> Measured:
  """Takes gradients of public tasks, before and after a short warm start.

  Args:
    config: whose learner, network, optimiser and size of task are taken.
    proxy: one of `PROXIES`.
    data_dir: of "validation", as for `build.load_data`.
    download: likewise.
    tasks: whose gradients are compared, a multiple of 64.

  Raises:
    PlanError: the proxy cannot stand in for the data.
    ValueError, FileNotFoundError: the data cannot be read.
  """
  check(config, proxy)
  backends.use_all_cores()
  if proxy == "glyphs":
    public = _glyphs(config)
  else:
    public = build.load_data(
        config, data_dir=data_dir, download=download
    ).validation
  learner = learners_lib.make_learner(config, public.image_shape)
  episode = config.release.plan.episode
  assert episode is not None  # `planning.check`.
  drawn = training.draw(
      public, way=episode.way, shot=episode.shot, query=episode.query,
      count=tasks + _STEPS * _AT_ONCE, seed=0,
  )  # fmt: skip
  gradients = alignment.Gradients(learner, drawn)
  params = learner.init(jax.random.key(config.seed))
  start = gradients.alignment(params, tasks, at_once=_AT_ONCE)
  flat, unravel = flatten_util.ravel_pytree(params)
  at_once = config.with_changes({"optimizer.warm_up": 0})
  optimizer = learners_lib.make_optimizer(at_once, _STEPS)
  state, seconds = optimizer.init(params), []
  for step in range(_STEPS):
    began = time.perf_counter()
    sums, norms = gradients(params, tasks + step * _AT_ONCE, _AT_ONCE)
    seconds.append((time.perf_counter() - began) / len(norms))
    mean = unravel(jnp.asarray(sums[:, 1].sum(0) / len(norms), flat.dtype))
    updates, state = optimizer.update(mean, state, params)
    params = optax.apply_updates(params, updates)
  return Measured(
      proxy=proxy,
      tasks=tasks,
      start=start,
      warm=gradients.alignment(params, tasks, at_once=_AT_ONCE),
      warm_steps=_STEPS,
      seconds_per_task=sorted(seconds)[_STEPS // 2],
  )


def _glyphs(config: RunConfig) -> data.ArrayDataset:
  """Writers whose script is one task, drawn like the config's images."""
  size, channels = _SHAPES[config.data.name]
  if config.data.name == "glyphs":
    size = config.data.options.get("size") or size
  episode = config.release.plan.episode
  assert episode is not None  # `planning.check`.
  made = data.load(
      "glyphs",
      participants=1,
      validation_participants=_WRITERS,
      test_participants=1,
      glyphs=episode.way,
      drawings=episode.shot + episode.query,
      size=size,
      seed=1,  # Not the seed of anyone's training data.
  ).validation
  return dataclasses.replace(made, images=made.images.repeat(channels, -1))
