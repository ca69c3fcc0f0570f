"""Tries every fault on real runs and writes the table: docs/faults.md.

  python -m tests.faults [--only=FAMILY] [--seed=N] [--write=FILE]

FAMILY is kills, stops, disks, damage, changes or memory, or the beginning of a
fault's name. Ends with status 1 where a row is not safe or not clear. Some need
the right to mount (root in a container with CAP_SYS_ADMIN); without it their
rows say so.
"""

import argparse
from collections.abc import Sequence
import importlib
import os
import pathlib
import platform
import sys
import tempfile
import time

import jax
import numpy as np

from episodic_dp import backends
from episodic_dp.output import tables
from tests.faults import bench as bench_lib
from tests.faults import outcomes

_FAMILIES = {
    "kills": "Killed, or lost",
    "stops": "Asked to stop",
    "disks": "Disks",
    "damage": "Damaged files",
    "changes": "Changed between two starts",
    "memory": "Memory",
}
_HEAD = """# Faults, tried

Written by `make faults`, which sets each fault up on real runs (`python -m
tests.faults`) and compares what they come to with a run that nothing befell:
parameters, the optimiser's state, the ledger and every line of metrics, bit for
bit. A run is safe where it ends, and the same command comes to the same bits or
is refused; clear where its user reads one sentence and no trace. What to do
about each: [work directories](work_directories.md).

Status 0 is finished; 75 asks a launcher to queue the same command again; 130 is
Ctrl-C; 1 is an error; negative numbers are signals that nobody can handle.
"""


def main(argv: Sequence[str]) -> int:
  """The status: 0 where all rows are safe and clear."""
  parser = argparse.ArgumentParser(prog="python -m tests.faults")
  parser.add_argument("--only", default="", help="a family or fault")
  parser.add_argument("--seed", type=int, default=0)
  parser.add_argument("--write", help="the page to write")
  flags = parser.parse_args(argv)
  for family in _FAMILIES:
    importlib.import_module(f"tests.faults.{family}")
  chosen = [
      fault
      for fault in outcomes.FAULTS
      if flags.only == fault.family or fault.name.startswith(flags.only)
  ]
  if not chosen:
    parser.error(f"--only={flags.only} is no family and no fault")
  began = time.monotonic()
  rows, bad = _try(chosen, flags.seed)
  minutes = (time.monotonic() - began) / 60
  page = _page(rows, flags.seed, minutes)
  if flags.write:
    pathlib.Path(flags.write).write_text(page, encoding="utf-8")
  else:
    print(page)
  for problem in bad:
    print(problem, file=sys.stderr)
  return 1 if bad else 0


def _try(
    chosen: Sequence[outcomes.Fault], seed: int
) -> tuple[dict[str, list[list[str]]], list[str]]:
  """(family -> rows of its table, what is not safe or not clear)."""
  rows: dict[str, list[list[str]]] = {}
  bad = []
  with tempfile.TemporaryDirectory(prefix="faults") as folder:
    _keep_programs(folder)
    bench = bench_lib.Bench(pathlib.Path(folder))
    left = sum(fault.seconds for fault in chosen)
    for number, fault in enumerate(chosen):
      # So that a fault by itself is what it is among all.
      bench.rng = np.random.default_rng([seed, *fault.name.encode()])
      began = time.monotonic()
      try:
        outcome = fault.make(bench)
      except outcomes.CannotTryError as e:
        cells = ["-", "-", "not tried", str(e), "-"]
      else:
        bad += [f"{fault.name}: {p}" for p in outcome.problems]
        cells = [
            outcome.tried,
            outcome.ended,
            "**no**" if outcome.problems else "yes",
            outcome.says.replace("|", "\\|"),
            outcome.after,
        ]
      rows.setdefault(fault.family, []).append([fault.name, *cells])
      left -= fault.seconds
      print(
          f"[{number + 1}/{len(chosen)}] {fault.name}: {cells[2]}"
          f" ({time.monotonic() - began:.0f} s of {fault.seconds});"
          f" about {left / 60:.0f} min left",
          file=sys.stderr,
          flush=True,
      )
  return rows, bad


def _keep_programs(folder: str) -> None:
  """What this process compiles for its tiny runs, once for all of them."""
  backends.use_all_cores()
  jax.config.update("jax_compilation_cache_dir", f"{folder}/programs")
  jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
  jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


def _page(
    rows: dict[str, list[list[str]]], seed: int, minutes: float
) -> str:
  """The page, as Markdown."""
  header = ["fault", "tried", "status", "safe and clear", "what it says",
            "the same command then"]  # fmt: skip
  parts = [_HEAD]
  for family, found in rows.items():
    parts.append(
        f"## {_FAMILIES[family]}\n\n{tables.markdown(header, found)}\n"
    )
  cores = len(os.sched_getaffinity(0))
  parts.append(
      f"Seed {seed}; {minutes:.0f} minutes on {cores} cores"
      f" ({platform.machine()}), jax {jax.__version__}.\n"
  )
  return "\n".join(parts)


if __name__ == "__main__":
  sys.exit(main(sys.argv[1:]))
