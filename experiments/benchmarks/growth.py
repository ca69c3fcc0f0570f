"""Measure how cost grows: time and memory of what reads data, by its size.

Every measurement has a process of its own, which makes its input first. The
exponent is that of the processor time from the smallest size to the largest: 1
for a cost in proportion to what is read, 0 for one that does not grow.
"""

from collections.abc import Callable
import functools
import json
import math
import os
import pathlib
import resource
import subprocess
import sys
import tempfile
from typing import Any, NamedTuple

from experiments.benchmarks import harness

# Lazy imports below: a case imports only what it needs.
_DATA_MB = 293  # Of images, in the case "devices".
_Action = Callable[[], Any]


class Case(NamedTuple):
  """A cost that is measured at several sizes.

  Attributes:
    what: the quantity, and the unit of its sizes.
    sizes: from small to large.
    exponent: the largest acceptable one; None if there is one size only.
    seconds: the largest acceptable processor time at the largest size.
    megabytes: the same for the memory that the action adds at its peak.
  """

  what: str
  sizes: tuple[int, ...]
  exponent: float | None = None
  seconds: float | None = None
  megabytes: float | None = None


CASES = {
    "leaves": Case(
        "a guarantee for 10 000 ragged people, by images",
        (3_000_000, 30_000_000, 300_000_000), 1.1, 2,
    ),
    "families": Case(
        "Poisson below people, by distinct numbers of images",
        (1_000, 3_000, 10_000), None, 4, 300,
    ),
    "listing": Case(
        "listing a folder, by people with two files", (1_000, 3_000, 9_000),
        1.1, 1.5,
    ),
    "ledger": Case(
        "a ledger, by runs of 1 000 ragged people", (20, 60, 200), 1.1, 5
    ),
    "json": Case(
        "a ragged tree as JSON, written and read, by classes",
        (30_000, 300_000, 3_000_000), 1.1, 5,
    ),
    "npz": Case(
        "preparing an NPZ, by images of 28 x 28", (10_000, 30_000, 100_000),
        1.1, 1.5,
    ),
    "devices": Case(
        "memory of the data in a step over their size (293 MB), by CPU devices",
        (1, 2, 4, 8), None, None,
    ),
    "queries": Case(
        "the accountant, by different plans in one process",
        (10, 30, 100), None, None, 200,
    ),
    "import": Case("import episodic_dp.training", (1,), None, 2),
    "account": Case("account --config=glyphs", (1,), None, 0.7),
    "plan": Case("plan --config=glyphs --epsilon=1.5", (1,), None, 30),
}
SMOKE = ("leaves", "listing", "json")


def measure(options: harness.Options) -> harness.Found:
  """Measure every case at every size."""
  names = SMOKE if options.smoke else tuple(CASES)
  functions = {}
  for name in names:
    sizes = CASES[name].sizes
    for size in sizes[:1] if options.smoke else sizes:
      functions[f"{name} {size}"] = functools.partial(
          harness.in_a_process, "growth.measure_case", name, size
      )
  turns = harness.interleaved(functions, options, warm_up=0)
  cases = harness.summaries(turns)
  for key, found in turns.items():
    cases[key]["megabytes"] = found[-1].value
  rows = []
  for name in names:
    rows += _rows(name, cases)
  return harness.Found(
      settings={name: CASES[name]._asdict() for name in names},
      cases=cases, rows=rows,
  )


def measure_case(name: str, size: int) -> harness.Turn:
  """Measure a case at a size; the value is the memory added, in MB.

  Args:
    name: one of `CASES`.
    size: one of its sizes.
  """
  case = CASES[name]
  with tempfile.TemporaryDirectory() as folder:
    first, second = (pathlib.Path(folder, part) for part in "ab")
    first.mkdir()
    second.mkdir()
    if case.exponent is not None:  # Imports do not count.
      _ACTIONS[name](case.sizes[0] // 10, first)()
    action = _ACTIONS[name](size, second)
    before, others = _peak(), _children()
    turn = harness.timed(action, lambda _: _children() - others)
  return turn._replace(value=_peak() - before)


def _rows(name: str, cases: dict[str, Any]) -> list[dict[str, Any]]:
  """Return the rows of a case: of its exponent, time and memory."""
  what, sizes, exponent, seconds, megabytes = CASES[name]
  found = [cases[key] for s in sizes if (key := f"{name} {s}") in cases]
  times = [one["cpu_seconds"] for one in found]
  memory = [one["megabytes"] for one in found]
  note = "; ".join(
      f"{size:,}: {t:.2g} s, {m:.0f} MB"
      for size, t, m in zip(sizes, times, memory)
  )
  rows = []
  if exponent is not None and len(found) > 1:
    grown = math.log(times[-1] / times[0]) / math.log(sizes[-1] / sizes[0])
    rows.append(harness.row(
        f"{what}: exponent", grown, at_most=exponent, note=note
    ))
    note = ""
  if seconds is not None:
    rows.append(
        harness.row(what, times[-1], at_most=seconds, unit="s", note=note)
    )
    note = ""
  if megabytes is not None:
    rows.append(harness.row(
        f"{what}: memory", memory[-1], at_most=megabytes, unit="MB", note=note
    ))
  if name == "devices":
    over = max(memory) / _DATA_MB
    rows.append(harness.row(what, over, at_most=2.5, unit="×", note=note))
  return rows


def _peak() -> float:
  return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _children() -> float:
  """Return the processor time of other processes that have ended."""
  used = resource.getrusage(resource.RUSAGE_CHILDREN)
  return used.ru_utime + used.ru_stime


# Actions: each makes its input, and returns what is measured ------------------


def _people(people: int, leaves: int, seed: int = 0) -> Any:
  """Return people with 1 to 5 classes each and so many images in all."""
  import numpy as np

  from episodic_dp import plan

  rng = np.random.default_rng(seed)
  classes = np.cumsum([0, *rng.integers(1, 6, people)])
  images = rng.multinomial(leaves, rng.dirichlet(np.ones(classes[-1])))
  return plan.Hierarchy(
      levels=("person", "class", "image"),
      offsets=(np.array([0, people]), classes, np.cumsum([0, *images])),
  )


def _release(hierarchy: Any, noise: float = 1.0, *stages: Any) -> Any:
  from episodic_dp import plan

  stages = stages or (plan.Poisson(0.01), plan.FixedSize(1), plan.FixedSize(2))
  return plan.Release(
      hierarchy,
      plan.SamplingPlan(stages, allow_short_units=True),
      plan.Mechanism(clip_unit="person", noise_multiplier=noise),
  )


def _leaves(size: int, _: pathlib.Path) -> _Action:
  from episodic_dp import accounting

  release = _release(_people(10_000, size))
  return lambda: accounting.guarantees(release, steps=100, delta=1e-5)


def _families(size: int, _: pathlib.Path) -> _Action:
  import numpy as np

  from episodic_dp import accounting
  from episodic_dp import plan

  tree = plan.Hierarchy(
      levels=("person", "image"),
      offsets=(np.array([0, size]), np.cumsum([0, *range(1, size + 1)])),
  )
  release = _release(tree, 1.0, plan.Poisson(0.01), plan.Poisson(0.01))
  return lambda: accounting.guarantees(release, steps=100, delta=1e-6)


def _listing(size: int, folder: pathlib.Path) -> _Action:
  from episodic_dp.data.own_data import trees

  for person in range(size):
    place = folder / f"person_{person}" / "class"
    place.mkdir(parents=True)
    for image in range(2):
      (place / f"{image}.png").touch()
  return lambda: trees.folder_listing(folder, ("person", "class", "image"))


def _ledger(size: int, _: pathlib.Path) -> _Action:
  from episodic_dp import accounting

  runs = [_release(_people(1_000, 20_000, k), 1 + k / 100) for k in range(size)]

  def action() -> float:
    ledger = accounting.Ledger()
    for run in runs:
      ledger = ledger.add(run, 10, continued=False)
    return ledger.guarantee("person", delta=1e-5).epsilon

  return action


def _json(size: int, folder: pathlib.Path) -> _Action:
  import numpy as np

  from episodic_dp import plan

  classes = np.cumsum([0, *([3] * (size // 3))])
  images = np.cumsum([0, *np.random.default_rng(0).integers(1, 9, size)])
  tree = plan.Hierarchy(
      levels=("person", "class", "image"),
      offsets=(np.array([0, size // 3]), classes, images),
  )
  release, file = _release(tree), folder / "tree.json"

  def action() -> Any:
    file.write_text(json.dumps(plan.to_dict(release)))
    return plan.from_dict(json.loads(file.read_text()))

  return action


def _npz(size: int, folder: pathlib.Path) -> _Action:
  import numpy as np

  from episodic_dp import data

  rng = np.random.default_rng(0)
  file = folder / "own.npz"
  arrays: dict[str, Any] = {
      "images": rng.integers(0, 256, (size, 28, 28), np.uint8),
      "person": np.arange(size) // 100,
      "class": np.arange(size) % 10,
  }
  np.savez(file, **arrays)
  levels = ("person", "class", "image")
  return lambda: data.load(
      "own_data", data_dir=file, cache_dir=folder, levels=levels
  )


def _devices(size: int, folder: pathlib.Path) -> _Action:
  os.environ["JAX_NUM_CPU_DEVICES"] = str(size)
  import numpy as np

  from episodic_dp import estimator

  count = _DATA_MB * 2**20 // 28**2
  images = np.random.default_rng(0).integers(0, 256, (count, 28, 28), np.uint8)
  people = np.arange(count) // 1_000
  labels = np.arange(count) // 50 % 20
  few_shot = estimator.FewShotClassifier(steps=2, rate=0.05, verbose=0)
  return lambda: few_shot.fit(images, labels, people)


def _queries(size: int, _: pathlib.Path) -> _Action:
  from episodic_dp import accounting

  tree = _people(1_000, 20_000)
  runs = [_release(tree, 0.5 + k / 100) for k in range(size)]
  return lambda: [
      accounting.guarantees(run, steps=100, delta=1e-6) for run in runs
  ]


def _command(*arguments: str) -> Callable[[int, pathlib.Path], _Action]:
  """Return the case of a command in a process of its own."""
  command = [sys.executable, *arguments]
  return lambda size, folder: lambda: subprocess.run(
      command, check=True, stdout=subprocess.DEVNULL, cwd=folder
  ).returncode


_ACTIONS: dict[str, Callable[[int, pathlib.Path], _Action]] = {
    "leaves": _leaves,
    "families": _families,
    "listing": _listing,
    "ledger": _ledger,
    "json": _json,
    "npz": _npz,
    "devices": _devices,
    "queries": _queries,
    "import": _command("-c", "import episodic_dp.training"),
    "account": _command("-m", "episodic_dp", "account", "--config=glyphs"),
    "plan": _command(
        "-m", "episodic_dp", "plan", "--config=glyphs", "--epsilon=1.5"
    ),
}
