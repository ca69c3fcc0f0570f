r"""Run benchmarks, and write their numbers next to their targets.

  python -m experiments.benchmarks --list
  python -m experiments.benchmarks --run=all --out=DIR
  python -m experiments.benchmarks --run=overhead,sampling --smoke --out=DIR
  python -m experiments.benchmarks --write

Each writes DIR/NAME.json; several run in separate processes. --write fills the
table of README.md from the JSON files in this folder. Copy those that count to
it when all have ended: each names the commit, "-dirty" if a file has changed.
"""

from collections.abc import Sequence
import dataclasses
import importlib
import os
import pathlib
import subprocess
import sys
import time
from typing import Any, NamedTuple

from absl import flags
from absl import logging

from episodic_dp import errors
from episodic_dp.cli import app
from episodic_dp.output import files
from experiments.benchmarks import harness
from experiments.benchmarks import table


class Benchmark(NamedTuple):
  """A benchmark of the folder.

  Attributes:
    function: "MODULE.FUNCTION" of this folder, options -> `harness.Found`.
    about: the measured quantity, in a few words.
    repeats: turns of every case; 1 for a trial.
    cores: whether every core of a CPU is a device, as in training; otherwise
      one device uses all cores.
  """

  function: str
  about: str
  repeats: int
  cores: bool = False


BENCHMARKS = {
    "accelerator": Benchmark(
        "steps.accelerator",
        "the time of a task on one device, by learner, image and batch",
        repeats=3,
    ),
    "accounting": Benchmark(
        "accountant_queries.measure",
        "the accountant's time and tightness, compared with dp_accounting's",
        repeats=5,
    ),
    "compiling": Benchmark(
        "steps.compiling", "compiling a step on one core", repeats=3
    ),
    "growth": Benchmark(
        "growth.measure",
        "how time and memory grow with what is read",
        repeats=1,
    ),
    "meta_step": Benchmark(
        "steps.meta_step",
        "the meta-step, compared with PyTorch loops",
        repeats=5,
        cores=True,
    ),
    "overhead": Benchmark(
        "steps.overhead", "the time of clipping and noise in a step", repeats=9
    ),
    "peers": Benchmark(
        "steps.jax_privacy",
        "the private step compared with one built on jax_privacy",
        repeats=9,
        cores=True,
    ),
    "sample_level": Benchmark(
        "steps.sample_level",
        "clipping every example compared with clipping every task",
        repeats=9,
    ),
    "shared_weights": Benchmark(
        "steps.shared_weights",
        "learners whose tasks share weights, compared with PyTorch's best way",
        repeats=3,
        cores=True,
    ),
    "sampling": Benchmark(
        "steps.sampling",
        "the sampler's share of a step, and its cost by population size",
        repeats=9,
    ),
}


def measure(name: str, *, smoke: bool) -> dict[str, Any]:
  """Run a benchmark in this process; the result is JSON-able."""
  benchmark = BENCHMARKS[name]
  options = harness.Options(
      smoke=smoke, repeats=1 if smoke else benchmark.repeats
  )
  if benchmark.cores:
    # Lazy import: other benchmarks run without JAX.
    from episodic_dp import backends

    backends.use_all_cores()
  module, _, function = benchmark.function.partition(".")
  loaded = importlib.import_module(f"experiments.benchmarks.{module}")
  began, load = time.perf_counter(), os.getloadavg()[0]
  found = getattr(loaded, function)(options)
  # Last, because describing devices claims them, and some benchmarks measure in
  # other processes.
  described = harness.describe() | {
      "load": round(load, 2),
      "load_after": round(os.getloadavg()[0], 2),
      "took_seconds": round(time.perf_counter() - began, 1),
  }
  # Lazy import, after the description: runs need JAX, not every benchmark does.
  from experiments import runs

  return {
      "machine": described | {"code": runs.code()},
      "options": dataclasses.asdict(options),
      **dataclasses.asdict(found),
  }


def run_all(names: Sequence[str], out: pathlib.Path, *, smoke: bool) -> None:
  """Run benchmarks in separate processes, even if some fail."""
  failed = []
  for name in names:
    logging.info("benchmark %s", name)
    command = [
        sys.executable, "-m", "experiments.benchmarks", f"--run={name}",
        f"--out={out}", f"--smoke={smoke}",
    ]
    if subprocess.run(command, check=False).returncode:
      failed.append(name)
  print(table.render(out))
  if failed:
    app.fail(f"{', '.join(failed)} failed: see above")


def define_flags() -> None:
  """Define the flags of the command, not of its importers."""
  flags.DEFINE_list("run", [], "Names of benchmarks, or all.")
  flags.DEFINE_bool("list", False, "List the benchmarks.")
  flags.DEFINE_bool("smoke", False, "Tiny sizes, to test that they work.")
  flags.DEFINE_string("out", "", "Folder of the JSON files.")
  flags.DEFINE_bool("write", False, "Fill the table of README.md.")


def main(_: Sequence[str]) -> None:
  """List, run or write, as the flags say."""
  values = flags.FLAGS
  names = values.run
  if names == ["all"]:
    names = list(BENCHMARKS)
  if unknown := set(names) - set(BENCHMARKS):
    raise errors.RunError(
        f"--run={','.join(sorted(unknown))}: expected all, or of"
        f" {', '.join(BENCHMARKS)}"
    )
  if values.list:
    for name, benchmark in BENCHMARKS.items():
      print(f"{name:16}{benchmark.about}")
  if names:
    out = pathlib.Path(values.out)
    if not values.out or (values.smoke and out.resolve() == table.FOLDER):
      raise errors.RunError(
          f"--out={values.out}: expected a folder for the results"
      )
    if len(names) == 1:
      found = measure(names[0], smoke=values.smoke)
      files.write_json(out / f"{names[0]}.json", found)
      print(table.render(out, names))
    else:
      run_all(names, out, smoke=values.smoke)
  if values.write:
    text = table.README.read_text(encoding="utf-8")
    files.write_text(table.README, table.replaced(text, table.render()))


if __name__ == "__main__":
  define_flags()
  app.run(main)
