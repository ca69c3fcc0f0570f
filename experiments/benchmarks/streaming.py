"""Steps of data that stay on the host beside data on the device; prints JSON.

  python -m experiments.benchmarks.streaming --out=streaming.json
  python -m experiments.benchmarks.streaming --repeats=2 --workloads=data

Three cases take the same steps from the same key, in turns, so that a busy
machine slows all of them:

  resident  all images on the device
  streamed  images in memory, the drawn ones gathered ahead of each step
  mapped    the same from a mapped file (read before: its pages are in memory)

and two workloads, between which other ones lie: `compute`, a network whose
steps take long beside the gathering of their images (Conv4, second order), and
`data`, the opposite (a linear model on large images). A case reports the
median, fastest and slowest seconds per step over its repeats, its share of a
CPU (processor time / wall time, over all threads: far below what the cases
have on an idle machine means that the time is not worth much), and the median
over the repeats of its time divided by that of `resident` in the same turn. All
cases must end with the same bits.
"""

import dataclasses
import functools
import pathlib
import tempfile
from typing import Any

from absl import flags
import jax
import jax.numpy as jnp
import numpy as np
import optax

from episodic_dp import data
from episodic_dp import learners
from episodic_dp import models
from episodic_dp import plan as plan_lib
from episodic_dp import private
from experiments.benchmarks import harness

_WAY, _EXAMPLES = 5, 2  # Of a task: one image to adapt on, one to judge.
_PER_CLASS = 10

CASES = ("resident", "streamed", "mapped")


class Linear:
  """Logits straight from the pixels: hardly any work beside moving them."""

  def __init__(self, shape: tuple[int, int, int]):
    self._pixels = int(np.prod(shape))

  def init(self, key: jax.Array) -> jax.Array:
    return 0.01 * jax.random.normal(key, (self._pixels, _WAY))

  def predict(self, params, support, query_images):
    del support
    return query_images.reshape(query_images.shape[0], -1) @ params

  def loss(self, params, episode):
    logits = self.predict(params, episode.support, episode.query.images)
    return optax.softmax_cross_entropy_with_integer_labels(
        logits, episode.query.labels
    ).mean()


def _network(shape: tuple[int, int, int]) -> learners.MAML:
  model = models.conv4(_WAY, width=8, input_shape=shape)
  return learners.MAML(model, inner_steps=1)


# name -> shape of an image, learner.
WORKLOADS: dict[str, tuple[tuple[int, int, int], Any]] = {
    "compute": ((28, 28, 1), _network),
    "data": ((84, 84, 3), Linear),
}

WHAT = {
    "compute": "Conv4-8, second order, 28 × 28",
    "data": "linear model, 84 × 84 × 3",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
  """Sizes of a measurement; see the flags."""

  repeats: int
  steps: int
  participants: int
  tasks: int
  block_bytes: int


def measure(name: str, settings: Settings, folder: pathlib.Path):
  """One workload: case -> its times, and what was moved.

  Raises:
    RuntimeError: the cases do not end with the same bits.
  """
  shape, make_learner = WORKLOADS[name]
  learner, optimizer = make_learner(shape), optax.adam(0.01)
  resident = _dataset(settings.participants, shape)
  np.save(folder / f"{name}.npy", resident.images)
  host = dataclasses.replace(resident, resident=False)
  datasets = {
      "resident": resident,
      "streamed": host,
      "mapped": dataclasses.replace(
          host, images=np.load(folder / f"{name}.npy", mmap_mode="r")
      ),
  }
  plan = plan_lib.SamplingPlan(
      (
          plan_lib.Poisson(min(1.0, settings.tasks / settings.participants)),
          plan_lib.FixedSize(_WAY),
          plan_lib.FixedSize(_EXAMPLES),
      ),
      episode=plan_lib.Episode(way=_WAY, shot=1, query=1),
  )
  mechanism = plan_lib.Mechanism(
      clip_unit="participant", clip_norm=1.0, noise_multiplier=1.0
  )
  cases = {}
  for case in CASES:
    step = private.make_meta_step(
        learner,
        optimizer,
        datasets[case],
        plan,
        mechanism,
        compute=private.Compute(block_bytes=settings.block_bytes),
    )
    state = private.init(jax.random.key(0), learner, optimizer, mechanism)
    cases[case] = functools.partial(
        harness.timed, harness.steps(step, state, settings.steps)
    )
  turns = harness.interleaved(cases, settings.repeats)
  _check_same({case: found[-1].value.params for case, found in turns.items()})
  per_task = _WAY * _EXAMPLES * int(np.prod(shape))
  return {
      "image": shape,
      "images_bytes": resident.images.nbytes,
      "expected_bytes_per_step": settings.tasks * per_task,
      "cases": {case: _summary(turns, case, settings.steps) for case in CASES},
  }


def _dataset(
    participants: int, shape: tuple[int, int, int]
) -> data.ArrayDataset:
  hierarchy = plan_lib.Hierarchy.regular(
      (participants, _WAY, _PER_CLASS), levels=("participant", "class", "image")
  )
  rng = np.random.default_rng(0)
  return data.ArrayDataset(
      name="random",
      images=rng.integers(0, 256, (hierarchy.num_leaves, *shape), np.uint8),
      hierarchy=hierarchy,
  )


def _check_same(params: dict[str, Any]) -> None:
  first, *others = map(jax.tree.leaves, params.values())
  for other in others:
    if not all(bool(jnp.array_equal(a, b)) for a, b in zip(first, other)):
      raise RuntimeError("the cases do not end with the same bits")


def _summary(
    turns: dict[str, list[harness.Turn]], case: str, steps: int
) -> dict[str, Any]:
  summary = harness.summary(turns[case], per=steps)
  seconds = summary.pop("seconds")
  beside = harness.ratio(turns[case], turns["resident"])
  return {
      "seconds_per_step": seconds,
      **summary,
      "beside_resident": beside["median"],
      "beside_resident_least": beside["least"],
      "beside_resident_most": beside["most"],
  }


def _measure(options: harness.Options) -> dict[str, Any]:
  names = flags.FLAGS.workloads or list(WORKLOADS)
  for name in names:
    if name not in WORKLOADS:
      raise ValueError(
          f"unknown workload '{name}': choose among {', '.join(WORKLOADS)}"
      )
  settings = Settings(
      repeats=options.repeats,
      steps=flags.FLAGS.steps,
      participants=flags.FLAGS.participants,
      tasks=flags.FLAGS.tasks,
      block_bytes=flags.FLAGS.block_bytes,
  )
  if options.smoke:
    names = ["data"]
    settings = dataclasses.replace(settings, steps=1, participants=4, tasks=2)
  with tempfile.TemporaryDirectory() as folder:
    found = {
        name: measure(name, settings, pathlib.Path(folder)) for name in names
    }
  return {
      "settings": dataclasses.asdict(settings),
      "workloads": found,
      "rows": rows(found),
  }


def rows(workloads: dict[str, Any]) -> list[dict[str, Any]]:
  """The lines of the table: the time of a step beside resident data's."""
  found = []
  for name, workload in workloads.items():
    for case, where in (
        ("streamed", "in memory"),
        ("mapped", "in a mapped file"),
    ):
      measured = workload["cases"][case]
      beside = {
          "median": measured["beside_resident"],
          "least": measured["beside_resident_least"],
          "most": measured["beside_resident_most"],
      }
      milliseconds = 1e3 * measured["seconds_per_step"]
      found.append(
          harness.row(
              f"step with data {where} / on the device, {WHAT[name]}",
              beside,
              unit="×",
              note=f"{milliseconds:.3g} ms a step",
          )
      )
  return found


if __name__ == "__main__":
  flags.DEFINE_integer("steps", 5, "Steps of a turn.", 1)
  flags.DEFINE_integer("participants", 200, "Units of 50 images each.", 1)
  flags.DEFINE_integer("tasks", 40, "Expected tasks of a step.", 1)
  flags.DEFINE_integer(
      "block_bytes",
      private.Compute().block_bytes,
      "Bytes of images that reach the device at once.",
      1,
  )
  flags.DEFINE_list("workloads", [], "All of them if empty.")
  harness.main(_measure, repeats=7)
