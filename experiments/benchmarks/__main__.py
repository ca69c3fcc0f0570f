r"""Runs benchmarks, and writes what they found beside their targets.

  python -m experiments.benchmarks --list
  python -m experiments.benchmarks --run=all --out=DIR
  python -m experiments.benchmarks --run=overhead,sampling --smoke --out=DIR
  python -m experiments.benchmarks --run=shared_weights --out=DIR \
      --only=ridge,width=32,query=1,size=28
  python -m experiments.benchmarks --write

Each writes DIR/NAME.json, in a process of its own where there are several.
--write fills the table of README.md from the JSON files in this folder (--out
of the runs that count).
"""

from collections.abc import Sequence
import dataclasses
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
from experiments.benchmarks import machine
from experiments.benchmarks import registry
from experiments.benchmarks import table

_RUN = flags.DEFINE_list("run", [], "Names of benchmarks, or all.")
_LIST = flags.DEFINE_bool("list", False, "Say what there is.")
_SMOKE = flags.DEFINE_bool("smoke", False, "Tiny sizes: do they work?")
_REPEATS = flags.DEFINE_integer(
    "repeats", None, "Turns of every case, other than the benchmark's own.", 1
)
_ONLY = flags.DEFINE_list(
    "only", [], "Cases of shared_weights, by parts: ridge,width=32,size=28."
)
_OUT = flags.DEFINE_string("out", "", "Folder of the JSON files.")
_WRITE = flags.DEFINE_bool("write", False, "Fill the table of README.md.")


def measure(
    name: str, *, smoke: bool, repeats: int | None, only: Sequence[str] = ()
) -> dict[str, Any]:
  """Runs a benchmark in this process; JSON-able."""
  benchmark = registry.BENCHMARKS[name]
  repeats = repeats or (2 if smoke else benchmark.repeats)
  options = harness.Options(smoke=smoke, repeats=repeats, only=only)
  if benchmark.cores:
    # Lazy import: other benchmarks run without JAX.
    from episodic_dp import backends

    backends.use_all_cores()
  began, load = time.perf_counter(), machine.load()
  found = benchmark.load()(options)
  # Afterwards: devices are taken by whoever looks at them, and some benchmarks
  # measure in processes of their own.
  described = machine.describe(with_jax=benchmark.with_jax) | {
      "load": load,
      "load_after": machine.load(),
      "took_seconds": round(time.perf_counter() - began, 1),
  }
  return {
      "machine": described,
      "options": dataclasses.asdict(options),
      **dataclasses.asdict(found),
  }


def run_all(
    names: Sequence[str], out: pathlib.Path, *flags: str
) -> list[str]:
  """Runs benchmarks in a process each; the names of those that failed."""
  failed = []
  for i, name in enumerate(names):
    logging.info("%d/%d %s", i + 1, len(names), name)
    began = time.monotonic()
    command = [sys.executable, "-m", "experiments.benchmarks"]
    done = subprocess.run([*command, f"--run={name}", f"--out={out}", *flags])
    took = time.monotonic() - began
    if done.returncode:
      failed.append(name)
    logging.info(
        "%d/%d %s: %s after %.0f s",
        i + 1, len(names), name, "failed" if done.returncode else "done", took,
    )  # fmt: skip
  return failed


def run(names: Sequence[str], out: pathlib.Path) -> None:
  """What --run asks for.

  Raises:
    ValueError: a name is unknown.
  """
  if list(names) == ["all"]:
    names = list(registry.BENCHMARKS)
  for name in names:
    if name not in registry.BENCHMARKS:
      raise ValueError(
          f"unknown benchmark '{name}': choose all, or among"
          f" {', '.join(registry.BENCHMARKS)}"
      )
  if len(names) == 1:
    found = measure(
        names[0],
        smoke=_SMOKE.value,
        repeats=_REPEATS.value,
        only=_ONLY.value,
    )
    files.write_json(out / f"{names[0]}.json", found)
    print(table.render(out, names))
    return
  given = ["--smoke"] * _SMOKE.value
  given += [f"--repeats={_REPEATS.value}"] * (_REPEATS.value is not None)
  given += [f"--only={','.join(_ONLY.value)}"] * bool(_ONLY.value)
  failed = run_all(names, out, *given)
  print(table.render(out))
  if failed:
    app.fail(f"{', '.join(failed)} failed: see above")


def main(argv: Sequence[str]) -> None:
  """Lists, runs or writes, as the flags say."""
  del argv
  if not (_RUN.value or _LIST.value or _WRITE.value):
    raise ValueError("nothing to do: give --list, --run=all or --write")
  if _LIST.value:
    for name, benchmark in registry.BENCHMARKS.items():
      print(f"{name:16}{benchmark.about}")
  if _RUN.value:
    if not _OUT.value:
      raise ValueError(
          "the flag --out is missing: give a folder for the results"
      )
    out = pathlib.Path(_OUT.value)
    if _SMOKE.value and out.resolve() == table.FOLDER:
      raise ValueError(
          f"--smoke would put tiny sizes in the place of the results in {out}:"
          " give --out=runs/benchmarks"
      )
    run(_RUN.value, out)
  if _WRITE.value:
    text = table.README.read_text(encoding="utf-8")
    files.write_text(table.README, table.replaced(text, table.render()))


if __name__ == "__main__":
  app.run(main)
