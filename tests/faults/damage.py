"""Files of a run that were cut short, changed or deleted.

Of a tiny run in this process, which goes on from such a folder. It may end with
the same bits, or be refused in one sentence; never go on otherwise.
"""

import functools
import pathlib
import shutil
import threading

import numpy as np

from episodic_dp import training
from episodic_dp.cli import app
from tests.faults import bench as bench_lib
from tests.faults.outcomes import fault
from tests.faults.outcomes import Outcome
from tests.training import tiny_run

STOPPED, _STEPS = 9, 14  # Of the folder that is damaged, and of all.
_KINDS = ("empty", "cut short", "a bit flipped", "deleted")


# Tiny runs in this process: one at a time, since they patch what draws.
_one = threading.RLock()


def train(a_spec: training.TrainingSpec, folder: pathlib.Path) -> None:
  """A tiny run, in any thread."""
  with _one:
    tiny_run.train(a_spec, folder)


def folders(root: pathlib.Path) -> tuple[pathlib.Path, bench_lib.Contents]:
  """(a run that stopped, what it comes to undamaged)."""
  with _one:
    return _folders(root)


@functools.cache
def _folders(root: pathlib.Path) -> tuple[pathlib.Path, bench_lib.Contents]:
  stopped, whole = root / "stopped", root / "tiny"
  tiny_run.train(spec(), stopped, limit=_AfterSteps(1e9))
  shutil.copytree(stopped, whole)
  tiny_run.train(spec(), whole)
  return stopped, bench_lib.contents(whole)


def spec() -> training.TrainingSpec:
  """Of the whole run, under a secret key."""
  return tiny_run.spec(_STEPS, seed=None)


class _AfterSteps(training.TimeLimit):
  """Stops a run after so many steps."""

  _seen = 0

  def saw(self, **unused: float) -> None:
    self._seen += 1

  @property
  def reached(self) -> bool:
    return self._seen == STOPPED


def damage(
    path: pathlib.Path, kind: str, rng: np.random.Generator
) -> None:
  """Damages a file."""
  content = path.read_bytes()
  if kind == "deleted":
    path.unlink()
  elif kind == "empty" or not content:
    path.write_bytes(b"")
  elif kind == "cut short":
    path.write_bytes(content[: int(rng.integers(0, len(content)))])
  else:
    changed = bytearray(content)
    changed[int(rng.integers(0, len(content)))] ^= 1 << int(rng.integers(0, 8))
    path.write_bytes(bytes(changed))


def damaged(
    bench: bench_lib.Bench,
    pattern: str,
    count: int,
    *,
    told: bool = False,
    lost: tuple[str, ...] = (),
) -> Outcome:
  """Many damaged versions of the files that a pattern names.

  Args:
    bench: where.
    pattern: of paths in a work directory.
    count: of the versions.
    told: whether each of them has to be refused.
    lost: what may differ in the end.
  """
  stopped, whole = folders(bench.folder)
  names = sorted(
      p.relative_to(stopped)
      for p in stopped.glob(pattern)
      if p.is_file() and p.name != "d"
  )
  problems, same, sentences = [], 0, {}
  for number in range(count):
    name = names[int(bench.rng.integers(0, len(names)))]
    kind = _KINDS[number % len(_KINDS)]
    folder = bench_lib.copy(stopped, bench.new())
    damage(folder / name, kind, bench.rng)
    try:
      train(spec(), folder)
    except Exception as e:  # Whatever a user would see.
      text = app.sentence(e)
      if text is None or "\n" in text or len(text) > 600:
        problems.append(f"{kind} {name}: {type(e).__name__}: {e}"[:400])
      else:
        sentences[text.replace(str(folder), "WORKDIR")] = None
    else:
      same += 1
      different = bench_lib.contents(folder).differences(whole)
      if set(different) - set(lost):
        problems.append(f"{kind} {name}: went on with other {different}")
      if told:
        problems.append(f"{kind} {name}: nobody noticed")
    shutil.rmtree(folder.parent)
  refused = count - same
  return Outcome(
      tried=f"{count}: {', '.join(_KINDS)}",
      ended=f"{same} went on, {refused} refused",
      says="error: " + max(sentences, key=len) if sentences else "",
      after="the same bits" if same else "-",
      problems=tuple(problems),
  )


@fault("damaged checkpoint", seconds=60)
def checkpoint(bench: bench_lib.Bench) -> Outcome:
  """Any of its files."""
  return damaged(bench, f"checkpoints/{STOPPED}/**/*", 60)


@fault("damaged ledger", seconds=15)
def ledger(bench: bench_lib.Bench) -> Outcome:
  """In the checkpoint."""
  return damaged(bench, f"checkpoints/{STOPPED}/ledger/metadata", 20)


@fault("damaged key", seconds=20)
def key(bench: bench_lib.Bench) -> Outcome:
  """Every one has to be noticed."""
  return damaged(bench, "private/key", 40, told=True)


@fault("damaged config.json", seconds=20)
def config(bench: bench_lib.Bench) -> Outcome:
  """Deleted too: the key knows what the run is."""
  return damaged(bench, "config.json", 20)


@fault("damaged metrics.jsonl", seconds=10)
def metrics(bench: bench_lib.Bench) -> Outcome:
  """What is lost stays lost; no step depends on it."""
  return damaged(bench, "metrics.jsonl", 12, lost=("metrics",))


@fault("damaged guarantee.json", seconds=5)
def statement(bench: bench_lib.Bench) -> Outcome:
  """It is written anew."""
  return damaged(bench, "guarantee.json", 4)
