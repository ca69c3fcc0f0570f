r"""Run benchmarks, and write their numbers beside their targets.

  python -m experiments.benchmarks --list
  python -m experiments.benchmarks --run=all --out=DIR
  python -m experiments.benchmarks --run=overhead,sampling --smoke --out=DIR
  python -m experiments.benchmarks --write

Each writes DIR/NAME.json, in its own process where there are several. --write
fills the table of README.md from the JSON files in this folder (--out of the
runs that count).
"""

from collections.abc import Sequence
import dataclasses
import importlib
import os
import pathlib
import subprocess
import sys
import time
from typing import Any

from absl import flags
from absl import logging

from episodic_dp.cli import app
from episodic_dp.output import files
from experiments.benchmarks import harness
from experiments.benchmarks import registry
from experiments.benchmarks import table

_RUN = flags.DEFINE_list("run", [], "Names of benchmarks, or all.")
_LIST = flags.DEFINE_bool("list", False, "Name the benchmarks.")
_SMOKE = flags.DEFINE_bool("smoke", False, "Tiny sizes: do they work?")
_OUT = flags.DEFINE_string("out", "", "Folder of the JSON files.")
_WRITE = flags.DEFINE_bool("write", False, "Fill the table of README.md.")


def measure(name: str, *, smoke: bool) -> dict[str, Any]:
  """Run a benchmark in this process; the result is JSON-able."""
  benchmark = registry.BENCHMARKS[name]
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
  # Afterwards: to describe devices is to take them, and some benchmarks
  # measure in other processes.
  described = harness.describe(with_jax=benchmark.with_jax) | {
      "load": round(load, 2),
      "load_after": round(os.getloadavg()[0], 2),
      "took_seconds": round(time.perf_counter() - began, 1),
  }
  return {
      "machine": described,
      "options": dataclasses.asdict(options),
      **dataclasses.asdict(found),
  }


def run_all(names: Sequence[str], out: pathlib.Path, *, smoke: bool) -> None:
  """Run benchmarks in a process each, whichever of them fail."""
  failed = []
  command = [sys.executable, "-m", "experiments.benchmarks", f"--out={out}"]
  for name in names:
    logging.info("benchmark %s", name)
    flags_of_run = [f"--run={name}", *(["--smoke"] if smoke else [])]
    done = subprocess.run([*command, *flags_of_run], check=False)
    if done.returncode:
      failed.append(name)
  print(table.render(out))
  if failed:
    app.fail(f"{', '.join(failed)} failed: see above")


def main(_: Sequence[str]) -> None:
  """List, run or write, as the flags say."""
  names = _RUN.value
  if names == ["all"]:
    names = list(registry.BENCHMARKS)
  if unknown := set(names) - set(registry.BENCHMARKS):
    raise ValueError(
        f"--run={','.join(sorted(unknown))}: expected all, or of"
        f" {', '.join(registry.BENCHMARKS)}"
    )
  if _LIST.value:
    for name, benchmark in registry.BENCHMARKS.items():
      print(f"{name:16}{benchmark.about}")
  if names:
    out = pathlib.Path(_OUT.value)
    if not _OUT.value or (_SMOKE.value and out.resolve() == table.FOLDER):
      raise ValueError(f"--out={_OUT.value}: expected a folder for the results")
    if len(names) == 1:
      found = measure(names[0], smoke=_SMOKE.value)
      files.write_json(out / f"{names[0]}.json", found)
      print(table.render(out, names))
    else:
      run_all(names, out, smoke=_SMOKE.value)
  if _WRITE.value:
    text = table.README.read_text(encoding="utf-8")
    files.write_text(table.README, table.replaced(text, table.render()))


if __name__ == "__main__":
  app.run(main)
