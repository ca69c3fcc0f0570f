"""Steps of data that stay on the host beside data on the device.

These cases take the same steps from the same key, in turns, so that a busy
machine slows all of them:

  resident  all images on the device
  streamed  images in memory, the drawn ones gathered ahead of each step
  mapped    the same from a mapped file (read before: its pages are in memory)

on one device and, where there are several, on all of them (every core of a CPU
is one). Of the two workloads, between which other ones lie, "compute" is a
network whose steps take long beside the gathering of their images (Conv4,
second order), and "data" the opposite (a linear model on large images). All
cases must make the same first step, up to rounding.
"""

import dataclasses
import math
import pathlib
import tempfile
from typing import Any

import jax
import numpy as np

from episodic_dp import learners
from episodic_dp import models
from episodic_dp import plan as plan_lib
from episodic_dp import training
from experiments.benchmarks import harness
from experiments.benchmarks import settings
from experiments.benchmarks import sums

_ROUNDING = 1e-5
_WHERE = {"streamed": "in memory", "mapped": "in a mapped file"}


def linear(shape: tuple[int, int, int]) -> learners.Supervised:
  """Logits straight from the pixels: hardly any work beside moving them."""
  pixels = math.prod(shape)
  model = models.Model(
      lambda key: 0.01 * jax.random.normal(key, (pixels, settings.WAY)),
      lambda params, images: images.reshape(-1, pixels) @ params,
      mixes_examples=False,
  )
  return learners.Supervised(model)


# name -> what it is, shape of an image.
_WORKLOADS: dict[str, tuple[str, tuple[int, int, int]]] = {
    "compute": ("Conv4-8, second order, 28 × 28", (28, 28, 1)),
    "data": ("linear model, 84 × 84 × 3", (84, 84, 3)),
}


def measure(options: harness.Options) -> harness.Found:
  """Both workloads; the smaller one where it only has to work."""
  steps, participants, tasks = (1, 4, 2) if options.smoke else (5, 200, 40)
  cases: dict[str, Any] = {}
  rows, more = [], {}
  for name in ("data",) if options.smoke else tuple(_WORKLOADS):
    what, shape = _WORKLOADS[name]
    run = settings.omniglot(
        inner_steps=1,
        query=1,
        width=8,
        participants=participants,
        stage=plan_lib.Poisson(tasks / participants),
        shape=shape,
        per_class=10,
    )
    if name == "data":
      run = dataclasses.replace(run, learner=linear(shape))
    with tempfile.TemporaryDirectory() as folder:
      runs = _in_three_places(run, pathlib.Path(folder))
      turns = harness.interleaved(
          {
              case + on: one.advance(steps, mesh=mesh)
              for on, mesh in _meshes().items()
              for case, one in runs.items()
          },
          options,
      )
      apart = _apart(runs)
    found = harness.summaries(turns, steps)
    cases |= {f"{name}, {case}": one for case, one in found.items()}
    for on in _meshes():
      rows += [
          harness.row(
              f"step with data {where} / on the device{on}, {what}",
              harness.ratio(turns[case + on], turns["resident" + on]),
              unit="×",
              note=f"{1e3 * found[case + on]['seconds']:.3g} ms a step",
          )
          for case, where in _WHERE.items()
      ]
      if on:
        rows.append(harness.row(
            f"step with data in memory, one device /{on[1:]}, {what}",
            harness.ratio(turns["streamed"], turns["streamed" + on]),
            unit="×",
        ))
    of_a_task = settings.WAY * 2 * int(np.prod(shape))
    more[name] = {
        "images_bytes": run.dataset.images.nbytes,
        "expected_bytes_per_step": tasks * of_a_task,
        "relative_difference_of_a_step": apart,
    }
  return harness.Found(
      settings={"steps": steps, "participants": participants, "tasks": tasks},
      cases=cases,
      rows=rows,
      more=more,
  )


def _in_three_places(
    run: settings.Run, folder: pathlib.Path
) -> dict[str, settings.Run]:
  """The same run with its data on the device, in memory and in a file."""
  np.save(folder / "images.npy", run.dataset.images)
  host = dataclasses.replace(run.dataset, resident=False)
  mapped = np.load(folder / "images.npy", mmap_mode="r")
  return {
      "resident": run,
      "streamed": dataclasses.replace(run, dataset=host),
      "mapped": dataclasses.replace(
          run, dataset=dataclasses.replace(host, images=mapped)
      ),
  }


def _meshes() -> dict[str, jax.sharding.Mesh | None]:
  """What is written behind a case -> its devices."""
  mesh = training.make_mesh()
  return {"": None} | ({", all cores": mesh} if mesh.size > 1 else {})


def _apart(runs: dict[str, settings.Run]) -> float:
  """How far first steps are from that of resident data, at most.

  Raises:
    RuntimeError: by more than rounding explains.
  """
  found = []
  for mesh in _meshes().values():
    first, *others = (run.advance(mesh=mesh)().params for run in runs.values())
    found += [sums.difference(other, first) for other in others]
  if not max(found) < _ROUNDING:
    raise RuntimeError(f"the first steps differ by {max(found):.3g}")
  return max(found)
