"""Steps of data that stay on the host beside data on the device; prints JSON.

  python -m experiments.benchmarks.streaming > streaming.json
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

from collections.abc import Sequence
import dataclasses
import importlib.metadata
import json
import os
import pathlib
import platform
import statistics
import tempfile
import time
from typing import Any

from absl import flags
from absl import logging
import jax
import jax.numpy as jnp
import numpy as np
import optax

from episodic_dp import data
from episodic_dp import learners
from episodic_dp import models
from episodic_dp import plan as plan_lib
from episodic_dp import private
from experiments import cli

_WAY, _EXAMPLES = 5, 2  # Of a task: one image to adapt on, one to judge.
_PER_CLASS = 10

_REPEATS = flags.DEFINE_integer("repeats", 7, "Turns of each case.", 1)
_STEPS = flags.DEFINE_integer("steps", 5, "Steps of a turn.", 1)
_PARTICIPANTS = flags.DEFINE_integer(
    "participants", 200, "Units of 50 images each.", 1
)
_TASKS = flags.DEFINE_integer("tasks", 40, "Expected tasks of a step.", 1)
_BLOCK = flags.DEFINE_integer(
    "block_bytes",
    private.Compute().block_bytes,
    "Bytes of images that reach the device at once.",
    1,
)
_WORKLOADS = flags.DEFINE_list("workloads", [], "All of them if empty.")

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
  steps, states = {}, {}
  for case in CASES:
    steps[case] = private.make_meta_step(
        learner,
        optimizer,
        datasets[case],
        plan,
        mechanism,
        compute=private.Compute(block_bytes=settings.block_bytes),
    )
    state = private.init(jax.random.key(0), learner, optimizer, mechanism)
    states[case], _ = steps[case](state)  # Compiles.
  times: dict[str, list[dict[str, float]]] = {case: [] for case in CASES}
  for turn in range(settings.repeats):
    # Another first in every turn: what precedes a case may cost it something.
    for k in range(len(CASES)):
      case = CASES[(turn + k) % len(CASES)]
      jax.block_until_ready(states[case])
      wall, cpu = time.perf_counter(), time.process_time()
      for _ in range(settings.steps):
        states[case], _ = steps[case](states[case])
      jax.block_until_ready(states[case])
      wall = time.perf_counter() - wall
      times[case].append({
          "seconds": wall / settings.steps,
          "cpu_share": (time.process_time() - cpu) / wall,
      })
    logging.info("%s: turn %d of %d", name, turn + 1, settings.repeats)
  _check_same({case: state.params for case, state in states.items()})
  per_task = _WAY * _EXAMPLES * int(np.prod(shape))
  return {
      "image": shape,
      "images_bytes": resident.images.nbytes,
      "expected_bytes_per_step": settings.tasks * per_task,
      "cases": {case: _summary(times[case], times) for case in CASES},
  }


def _dataset(participants: int, shape: tuple[int, int, int]) -> data.Dataset:
  hierarchy = plan_lib.Hierarchy.regular(
      (participants, _WAY, _PER_CLASS), levels=("participant", "class", "image")
  )
  rng = np.random.default_rng(0)
  return data.Dataset(
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
    turns: Sequence[dict[str, float]],
    times: dict[str, list[dict[str, float]]],
) -> dict[str, float]:
  seconds = [turn["seconds"] for turn in turns]
  ratios = [
      own["seconds"] / resident["seconds"]
      for own, resident in zip(turns, times["resident"])
  ]
  return {
      "seconds_per_step": statistics.median(seconds),
      "fastest": min(seconds),
      "slowest": max(seconds),
      "cpu_share": statistics.median(turn["cpu_share"] for turn in turns),
      "beside_resident": statistics.median(ratios),
      "beside_resident_least": min(ratios),
      "beside_resident_most": max(ratios),
  }


def machine() -> dict[str, Any]:
  """What the numbers were measured on."""
  processor = platform.processor() or platform.machine()
  try:
    with open("/proc/cpuinfo", encoding="utf-8") as f:
      names = [line for line in f if line.startswith("model name")]
    processor = names[0].split(":", 1)[1].strip() if names else processor
  except OSError:  # Not Linux: the name above has to do.
    pass
  return {
      "device": str(jax.devices()[0].device_kind),
      "platform": jax.devices()[0].platform,
      "processor": processor,
      "cpus": len(os.sched_getaffinity(0)),
      "load": os.getloadavg()[0],
      "python": platform.python_version(),
      **{
          package: importlib.metadata.version(package)
          for package in ("jax", "jaxlib", "numpy", "optax")
      },
  }


def main(argv: Sequence[str]) -> None:
  del argv
  names = _WORKLOADS.value or list(WORKLOADS)
  for name in names:
    if name not in WORKLOADS:
      raise ValueError(
          f"unknown workload '{name}': choose among {', '.join(WORKLOADS)}"
      )
  settings = Settings(
      repeats=_REPEATS.value,
      steps=_STEPS.value,
      participants=_PARTICIPANTS.value,
      tasks=_TASKS.value,
      block_bytes=_BLOCK.value,
  )
  before = machine()
  with tempfile.TemporaryDirectory() as folder:
    found = {
        name: measure(name, settings, pathlib.Path(folder)) for name in names
    }
  print(json.dumps(
      {
          "machine": before | {"load_after": os.getloadavg()[0]},
          "settings": dataclasses.asdict(settings),
          "workloads": found,
      },
      indent=2,
  ))


if __name__ == "__main__":
  cli.run(main)
