"""What a step costs, moves and keeps for very many participants.

No pod is needed: the step is traced as an accelerator gets it, and compiled for
as many devices as XLA's CPU pretends to have, in a process that asked for them.
Of what has that size only draws are run.
"""

import dataclasses
import itertools
import json
import math
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import tracemalloc
from typing import Any, NamedTuple

import jax
from jax.extend import core
import numpy as np

from episodic_dp import accounting
from episodic_dp import backends
from episodic_dp import plan as plan_lib
from episodic_dp import private
from episodic_dp import sampling
from episodic_dp import training
from episodic_dp.plan import hierarchy as hierarchy_lib
from episodic_dp.plan import sampler_error
from episodic_dp.private import sharding
from episodic_dp.training import data_digest
from experiments.benchmarks import harness
from experiments.benchmarks import machine
from experiments.benchmarks import sampling as drawing
from experiments.benchmarks import settings
from experiments.evidence import pages

_ROOT = pathlib.Path(__file__).resolve().parents[2]
FILE = _ROOT / "docs" / "scale.md"
CHIPS, MANY = 256, 10**8
WIDTH, STEPS, DELTA = 64, 1000, 1e-9
_IMAGES = 2  # Of each class of a participant.
_IMAGE = 28 * 28  # Bytes.
# Bytes of a device: Google, "TPU v5e"; NVIDIA, "H200 Tensor Core GPU".
MEMORY = {"TPU v5e": 16e9, "H200": 141e9}
_EXCHANGE = re.compile(
    r"= (.*?) (?:all-reduce|all-gather|all-to-all|reduce-scatter"
    r"|collective-permute)(?:-start)?\("
)
_ARRAY = re.compile(r"[a-z]+(\d+)\[([\d,]*)\]")


class Case(NamedTuple):
  """A run: its size, on how many devices, and where its images lie."""

  participants: int
  tasks: int
  devices: int
  resident: bool = True


FEW, LARGE = Case(MANY, 25_600, CHIPS), Case(MANY, 10**6, CHIPS)
CASES = (
    FEW._replace(participants=10**6, devices=8), FEW._replace(devices=8),
    FEW, FEW._replace(resident=False), LARGE, LARGE._replace(resident=False),
)  # fmt: skip


class Cost(NamedTuple):
  """What the programs of a step need of each device, in bytes.

  The most of several programs, and all their exchanges; slots are tasks.
  """

  slots: int
  arguments: int
  temporaries: int
  exchanges: list[int]


def run_of(case: Case, *, smoke: bool = False) -> settings.Run:
  """5-way 1-shot tasks of participants that are drawn independently."""
  run = settings.omniglot(
      inner_steps=1, query=1, width=WIDTH, participants=case.participants,
      stage=plan_lib.Poisson(case.tasks / case.participants), smoke=smoke,
  )
  dataset = dataclasses.replace(run.dataset, resident=case.resident)
  return dataclasses.replace(run, dataset=dataset)


def cost(case: Case, *, smoke: bool = False) -> Cost:
  """Compiles a step for the devices of a case, and reads the programs."""
  run = run_of(case, smoke=smoke)
  mesh = sharding.make_mesh(jax.devices()[: case.devices])
  with backends.assumed("gpu"):
    programs = run.step(mesh=mesh).running(run.init())
  # Of a step that is several programs, what they say themselves.
  placed = sharding.replicated(mesh) if case.resident else None
  compiled = [
      jax.jit(core.jaxpr_as_fun(program)).lower(*(
          jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=placed)
          for a in program.in_avals
      )).compile()
      for program in programs
  ]  # fmt: skip
  memory: list[Any] = [c.memory_analysis() for c in compiled]
  return Cost(
      sampler_error.capacities(run.dataset.hierarchy, run.plan)[0],
      max(m.argument_size_in_bytes for m in memory),
      max(m.temp_size_in_bytes for m in memory),
      [size for c in compiled for size in exchanges(c.as_text() or "")],
  )


def exchanges(program: str) -> list[int]:
  """Bytes of the result of every exchange in a program, XLA's text."""
  def size(bits: str, shape: str) -> int:
    return int(bits) // 8 * math.prod(int(n) for n in shape.split(",") if n)

  return [
      sum(size(*array) for array in _ARRAY.findall(result))
      for result in _EXCHANGE.findall(program)
  ]


def steps(costs: dict[Case, Cost]) -> pages.Table:
  """A row a case."""
  columns = ("participants", "tasks expected", "devices", "images on the",
             "slots", "of a device", "MB in", "MB of temporaries", "exchanges",
             "MB exchanged")  # fmt: skip
  return pages.Table(columns, tuple(
      (f"{case.participants:.0e}", case.tasks, case.devices,
       "device" if case.resident else "host", found.slots,
       -(-found.slots // case.devices), round(found.arguments / 1e6, 2),
       round(found.temporaries / 1e6, 1), len(found.exchanges),
       round(sum(found.exchanges) / 1e6, 2))
      for case, found in costs.items()
  ))  # fmt: skip


def ragged(people: int) -> tuple[int, int]:
  """Bytes of a ragged tree: of what a draw looks up, and on the host."""
  units = (1, people, people * settings.WAY, people * settings.WAY * _IMAGES)
  offsets = tuple(np.linspace(0, below, above + 1).astype(np.int64)
                  for above, below in itertools.pairwise(units))
  rows = np.arange(units[-1], dtype=np.int32)
  tree = plan_lib.Hierarchy(
      levels=settings.LEVELS, offsets=offsets, leaf_rows=rows
  )
  plan = plan_lib.SamplingPlan(tuple(map(plan_lib.FixedSize, (8, 5, 2))))
  program = jax.make_jaxpr(lambda key: sampling.sample(key, tree, plan, 0))(
      jax.random.key(0)
  )
  device = sum(np.asarray(c).nbytes for c in program.consts)
  return device, sum(a.nbytes for a in offsets) + rows.nbytes


def limits(costs: dict[Case, Cost], image: dict[str, float]) -> pages.Table:
  """Where the memory ends; what `CASES` cost, and `start` found."""
  images = settings.WAY * _IMAGES
  draw = costs[LARGE._replace(resident=False)]  # The most of its programs.
  # Twice as many people: what is the same for any number falls out.
  (device, host), (more, larger) = (ragged(n) for n in (2000, 4000))
  each = [
      ("own images, resident: on every device", images * _IMAGE),
      ("own images, streamed: on the host", images * _IMAGE),
      ("labels, made a tree of: on the host", images * image["bytes"]),
      ("a ragged tree: on the host", (larger - host) / 2000),
      ("a ragged tree: on every device", (more - device) / 2000),
      ("a regular tree", 0),
      ("a draw of so many tasks: on every device",
       draw.temporaries / draw.slots),
  ]  # fmt: skip
  filled = (f"fill a {n} ({size / 1e9:.0f} GB)" for n, size in MEMORY.items())
  columns = ("what, and where", "bytes of each", f"GB of {MANY:.0e}", *filled)
  return pages.Table(columns, tuple(
      (what, round(size), round(MANY * size / 1e9, 1),
       *(f"{m / size:.1e}" if size and "host" not in what else None
         for m in MEMORY.values()))
      for what, size in each
  ))  # fmt: skip


def draws(tasks: int = 1600, largest: int = MANY) -> pages.Table:
  """Milliseconds of a draw, the best of those that compile nothing."""
  rows: list[tuple[pages.Cell, ...]] = []
  for size in (largest // 10**4, largest // 100, largest):
    stages = (plan_lib.FixedSize(tasks), plan_lib.Poisson(tasks / size),
              plan_lib.RandomAllocation(size // tasks))  # fmt: skip
    cases = [drawing.draw(*drawing.regular(size, stage)) for stage in stages]
    best = [min(harness.timed(c).seconds for _ in range(4)) for c in cases]
    rows.append((f"{size:.0e}", *(round(1e3 * seconds, 1) for seconds in best)))
  columns = ("participants", "FixedSize", "Poisson", "RandomAllocation")
  return pages.Table(columns, tuple(rows))


def accountants(tasks: int = FEW.tasks) -> pages.Table:
  """Epsilon, how long it takes, and what the sampler's error adds to delta."""
  rows: list[tuple[pages.Cell, ...]] = []
  for size in (MANY // 100, MANY):
    run = run_of(Case(size, tasks, 1), smoke=True)
    release = plan_lib.Release(run.dataset.hierarchy, run.plan, run.mechanism)
    error = plan_lib.sampling_error(release.hierarchy, run.plan).times(STEPS)
    ledger = accounting.Ledger().add(release, STEPS, continued=False)
    first = harness.timed(ledger.spent, "participant", DELTA)
    ledger = ledger.add(release, continued=True)
    again = harness.timed(ledger.spent, "participant", DELTA)
    rows.append((f"{size:.0e}", tasks, STEPS, DELTA, first.value,
                 error.variation, first.seconds, again.seconds))  # fmt: skip
  columns = ("participants", "tasks expected", "steps", "δ",
             "ε of a participant, z = 1", "distance from the ideal sampler",
             "s for the first ε", "s for that of the next step")  # fmt: skip
  return pages.Table(columns, tuple(rows))


def start(rows: int = 10**6) -> dict[str, float]:
  """What an image takes at every start, on the host, by measurement.

  "seconds" and "bytes" of a tree (labels included), seconds of the "digest".
  """
  classes = np.arange(rows) // _IMAGES
  labels = {"participant": classes // settings.WAY, "class": classes}
  tree = harness.timed(plan_lib.Hierarchy.from_labels, labels)
  tracemalloc.start()
  plan_lib.Hierarchy.from_labels(labels)
  _, peak = tracemalloc.get_traced_memory()
  tracemalloc.stop()
  images = np.zeros((rows // 4, _IMAGE), np.uint8)
  digest = harness.timed(data_digest.array_digest, images)
  return {
      "seconds": tree.seconds / rows,
      "bytes": (peak + sum(a.nbytes for a in labels.values())) / rows,
      "digest": digest.seconds / len(images),
  }


def checkpoint(state: private.State) -> int:
  """Bytes of a checkpoint, whose arrays hold no zeros that could be packed."""
  random = np.random.default_rng(0)
  params, moments = jax.tree.map(
      lambda a: random.normal(size=a.shape).astype(a.dtype),
      (state.params, state.opt_state),
  )
  with tempfile.TemporaryDirectory() as folder:
    saved = training.Checkpoints(folder)
    saved.save(1, params, moments)
    saved.close()
    files = [p for p in pathlib.Path(folder).rglob("*") if p.is_file()]
    return sum(p.stat().st_size for p in files)


def rest(image: dict[str, float]) -> pages.Table:
  """What else there is to know; `image` of `start`."""
  images, state = settings.WAY * _IMAGES, run_of(FEW).init()
  about = machine.describe()
  return pages.Table(("what", "how much"), (
      ("minutes at every start, to digest all images of one's own",
       MANY * images * image["digest"] / 60),
      ("minutes at every start, to make a tree of all labels",
       MANY * images * image["seconds"] / 60),
      ("bytes of the parameters",
       sum(p.nbytes for p in jax.tree.leaves(state.params))),
      ("bytes of a checkpoint, with Adam's moments", checkpoint(state)),
      (f"participants of {images} images, at most",
       hierarchy_lib.MAX_LEAVES // images),
      ("measured with", f"{about['cpus']} cores of {about['processor']},"
       f" Python {about['python']}, jax {about['jax']}"),
  ))  # fmt: skip


def document() -> str:
  """The page with its tables as a process computes them that has devices."""
  asked = {"JAX_NUM_CPU_DEVICES": str(CHIPS), "JAX_PLATFORMS": "cpu"}
  done = subprocess.run(
      [sys.executable, "-m", __name__], env=os.environ | asked, cwd=_ROOT,
      stdout=subprocess.PIPE, text=True, check=True,
  )
  found = {
      name: pages.Table(tuple(columns), tuple(map(tuple, rows)))
      for name, (columns, rows) in json.loads(done.stdout).items()
  }
  return pages.filled(FILE.read_text(encoding="utf-8"), "scale", found)


if __name__ == "__main__":
  _costs, _image = {case: cost(case) for case in CASES}, start()
  _tables = {
      "step": steps(_costs), "limits": limits(_costs, _image), "draws": draws(),
      "accountants": accountants(), "rest": rest(_image),
  }  # fmt: skip
  print(json.dumps({n: (t.columns, t.rows) for n, t in _tables.items()}))
