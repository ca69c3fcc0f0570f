"""Tries every fault on real runs and writes the table: docs/faults.md.

  python -m tests.faults [--only=FAMILY] [--seed=N] [--jobs=N] \\
      [--kept=FILE] [--write=FILE]

With --kept a table is made in parts: what the file holds is not tried again.
FAMILY is kills, stops, disks, damage, changes or memory, or the beginning of a
fault's name. A page is written only with all faults. Ends with status 1 where a
row is not safe or not clear. Some need the right to mount (root in a container
with CAP_SYS_ADMIN); without it their rows say so.
"""

import argparse
from collections.abc import Mapping, Sequence
from concurrent import futures
import dataclasses
import importlib
import json
import os
import pathlib
import platform
import signal
import sys
import tempfile
import time

import jax

from episodic_dp import backends
from episodic_dp.output import files
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

For whoever asks what becomes of a run when something goes wrong.

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
  parser.add_argument("--jobs", type=int, default=2, help="faults at once")
  parser.add_argument("--kept", help="rows that were tried, and are not again")
  parser.add_argument("--write", help="the page to write")
  flags = parser.parse_args(argv)
  # A shell's job in the background ignores Ctrl-C; the runs it starts must not.
  signal.signal(signal.SIGINT, signal.default_int_handler)
  for family in _FAMILIES:
    importlib.import_module(f"tests.faults.{family}")
  rows = _Rows(flags.kept)
  named = [
      fault
      for fault in outcomes.FAULTS
      if flags.only == fault.family or fault.name.startswith(flags.only)
  ]
  if not named:
    parser.error(
        f"--only={flags.only} is no family, and no fault's name begins so: the"
        f" families are {', '.join(_FAMILIES)}"
    )
  there = {*rows.found, *(fault.name for fault in named)}
  left_out = sum(fault.name not in there for fault in outcomes.FAULTS)
  if flags.write and left_out:
    parser.error(
        f"--write={flags.write} would be a page without {left_out} faults:"
        " leave out --only, or leave out --write and keep rows by --kept=FILE"
    )
  chosen = [fault for fault in named if fault.name not in rows.found]
  _try(chosen, rows, flags.seed, flags.jobs)
  page = _page(rows.found, flags.seed)
  if flags.write:
    pathlib.Path(flags.write).write_text(page, encoding="utf-8")
  else:
    print(page)
  return 1 if any(o.problems for o in rows.found.values()) else 0


class _Rows:
  """What was tried, kept in a file so that it is not tried twice.

  Args:
    path: of the file; None for none.

  Attributes:
    found: the name of a fault -> what it came to.
  """

  def __init__(self, path: str | None):
    self._path = pathlib.Path(path) if path else None
    self.found: dict[str, outcomes.Outcome] = {}
    if self._path is not None and self._path.exists():
      for name, fields in json.loads(self._path.read_text()).items():
        self.found[name] = outcomes.Outcome(**fields)

  def add(self, name: str, outcome: outcomes.Outcome) -> None:
    """Keeps one more."""
    self.found[name] = outcome
    if self._path is not None:
      files.write_json(
          self._path,
          {n: dataclasses.asdict(o) for n, o in self.found.items()},
      )


def _try(
    chosen: Sequence[outcomes.Fault], rows: _Rows, seed: int, jobs: int
) -> None:
  """Tries faults, some at a time, and keeps what they come to."""
  began, weights = time.monotonic(), [fault.seconds for fault in chosen]
  with (
      tempfile.TemporaryDirectory(prefix="faults") as folder,
      futures.ThreadPoolExecutor(jobs) as pool,
  ):
    _keep_programs(folder)
    bench = bench_lib.Bench(pathlib.Path(folder))
    # Seeded by its name, so that a fault by itself is what it is among all.
    started = {
        pool.submit(
            fault.outcome, bench.seeded(seed, *fault.name.encode())
        ): fault
        for fault in chosen
    }
    done = 0
    for number, ended in enumerate(futures.as_completed(started)):
      fault, outcome = started[ended], ended.result()
      rows.add(fault.name, outcome)
      done += fault.seconds
      pace = (time.monotonic() - began) / done
      print(
          f"[{number + 1}/{len(chosen)}] {fault.name}: {outcome.verdict};"
          f" about {pace * (sum(weights) - done) / 60:.0f} min left",
          *outcome.problems,
          sep="\n  ",
          file=sys.stderr,
          flush=True,
      )


def _keep_programs(folder: str) -> None:
  """What this process compiles for its tiny runs, once for all of them."""
  backends.use_all_cores()
  jax.config.update("jax_compilation_cache_dir", f"{folder}/programs")
  jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
  jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


def _page(found: Mapping[str, outcomes.Outcome], seed: int) -> str:
  """The page, as Markdown."""
  header = ["fault", "tried", "status", "safe and clear", "what it says",
            "the same command then"]  # fmt: skip
  parts = [_HEAD]
  for family, title in _FAMILIES.items():
    rows = [
        [fault.name, *found[fault.name].cells()]
        for fault in outcomes.FAULTS
        if fault.family == family and fault.name in found
    ]
    if rows:
      parts.append(f"## {title}\n\n{tables.markdown(header, rows)}\n")
  cores = len(os.sched_getaffinity(0))
  parts.append(
      f"Moments and damage are those of seed {seed}; tried on {cores} cores"
      f" ({platform.machine()}) with jax {jax.__version__}.\n"
  )
  return "\n".join(parts)


if __name__ == "__main__":
  sys.exit(main(sys.argv[1:]))
