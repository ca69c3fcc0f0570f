"""Disks that are full, that take no large files, no files, or go away."""

from collections.abc import Iterator
import contextlib
import os
import pathlib
import shutil
import subprocess

from tests.faults import bench as bench_lib
from tests.faults import outcomes
from tests.faults.outcomes import fault
from tests.faults.outcomes import Judge
from tests.faults.outcomes import Outcome

_FILLER = "filler"

# What a run does -> the function before whose call the disk fails.
_PHASES = {
    "key": ("episodic_dp.training.keys:write", 1),
    "config": ("episodic_dp.output.files:write_json", 1),
    "first statement": ("episodic_dp.output.files:write_json", 2),
    "metrics": ("episodic_dp.training.metrics:Lines.add", 17),
    "first checkpoint": ("episodic_dp.training.checkpoint:Checkpoints.save", 1),
    "checkpoint": ("episodic_dp.training.checkpoint:Checkpoints.save", 6),
    "end of a checkpoint": (
        "episodic_dp.training.checkpoint:_remove_times", 4,
    ),
    "last statement": ("episodic_dp.training.spending:Spending.finish", 1),
    "pictures": ("episodic_dp.training.plots:learning_curve", 1),
}  # fmt: skip


@contextlib.contextmanager
def tmpfs(bench: bench_lib.Bench, size: str = "100m") -> Iterator[pathlib.Path]:
  """A disk of its own.

  Raises:
    CannotTryError: mounting is not allowed here.
  """
  disk = bench.new("disk")
  disk.mkdir()
  done = subprocess.run(
      ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(disk)],
      capture_output=True,
      text=True,
  )
  if done.returncode:
    raise outcomes.CannotTryError(
        f"mounting a disk needs more rights: {done.stderr.strip()}"
    )
  try:
    yield disk
  finally:
    subprocess.run(["umount", "-l", str(disk)], check=False)


def _fill(disk: pathlib.Path, left: int = 0) -> str:
  """A shell command that leaves so many KiB of a disk."""
  filler = disk / _FILLER
  return (
      f"dd if=/dev/zero of={filler} bs=64k 2> /dev/null;"
      f" truncate -s -{left}K {filler}"
  )


def _then(
    judge: Judge, bench: bench_lib.Bench, workdir: pathlib.Path
) -> str:
  """The same command once more, which goes on."""
  judge.end(bench.run(workdir), 0, "done: ")
  return judge.same(bench_lib.contents(workdir), bench.whole)


def _check_what_came_back(
    judge: Judge, bench: bench_lib.Bench, workdir: pathlib.Path
) -> None:
  """A checkpoint that was being written when its folder went has no key."""
  if list(workdir.glob("checkpoints/*")):
    judge.end(bench.run(workdir), 1, "is missing")


def full(
    bench: bench_lib.Bench, phase: str, lefts: tuple[int, ...] = (0,)
) -> Outcome:
  """A disk that is full before something is written.

  Args:
    bench: where.
    phase: what is written; one of `_PHASES`.
    lefts: KiB that are left, one run for each.
  """
  judge, says, after = Judge(), "", "-"
  for left in lefts:
    with tmpfs(bench) as disk:
      workdir = disk / "run"
      ended = bench.run(workdir, moment=(*_PHASES[phase], _fill(disk, left)))
      # What is left may do for what is yet to be written.
      if ended.status or not left:
        judge.end(ended, 1, "error: ")
        says = says or ended.sentence
      (disk / _FILLER).unlink()
      after = _then(judge, bench, workdir)
  return Outcome(
      tried=f"{len(lefts)}: {', '.join(map(str, lefts))} KiB left",
      ended="1",
      says=says,
      after=after,
      problems=tuple(judge.problems),
  )


def _register() -> None:
  """A row for every phase."""
  for phase in _PHASES:

    # What is left may do for a part of a checkpoint.
    lefts = (0, 4, 12, 24) if phase == "checkpoint" else (0,)

    def make(
        bench: bench_lib.Bench,
        phase: str = phase,
        lefts: tuple[int, ...] = lefts,
    ) -> Outcome:
      return full(bench, phase, lefts)

    make.__module__ = __name__
    fault(f"full disk: {phase}", seconds=12 * len(lefts))(make)


@fault("full disk: at the start", seconds=12)
def full_at_start(bench: bench_lib.Bench) -> Outcome:
  """Before the data are read."""
  judge = Judge()
  with tmpfs(bench) as disk:
    subprocess.run(["sh", "-c", _fill(disk)], check=True)
    workdir = disk / "run"
    ended = bench.run(workdir)
    judge.end(ended, 1, "error: ")
    judge.expect("reading the data" not in ended.error, "data were read")
    (disk / _FILLER).unlink()
    after = _then(judge, bench, workdir)
  return Outcome(
      tried="1",
      ended="1",
      says=ended.sentence,
      after=after,
      problems=tuple(judge.problems),
  )


@fault("full disk: evaluation.json", seconds=20)
def full_at_evaluation(bench: bench_lib.Bench) -> Outcome:
  """Of `evaluate`."""
  judge = Judge()
  with tmpfs(bench) as disk:
    workdir = bench_lib.copy(bench.whole_folder, disk / "run")
    fill = ("episodic_dp.output.files:write_json", 1, _fill(disk))
    ended = bench.run(workdir, command="evaluate", moment=fill)
    judge.end(ended, 1, "make room on its disk")
    (disk / _FILLER).unlink()
    again = bench.run(workdir, command="evaluate")
    judge.expect(again.status == 0, again.error[-300:])
  return Outcome(
      tried="1",
      ended="1",
      says=ended.sentence,
      after="evaluates",
      problems=tuple(judge.problems),
  )


@fault("file-size limit (ulimit -f)", seconds=48)
def file_size_limit(bench: bench_lib.Bench) -> Outcome:
  """From one that takes no file to one that takes all but the largest."""
  judge, says, after = Judge(), "", "-"
  limits = (100, 1_000, 4_000, 12_000)
  for limit in limits:
    workdir = bench.new()
    ended = bench.run(workdir, prefix=("prlimit", f"--fsize={limit}"))
    if ended.status or limit < 10_000:
      judge.end(ended, 1, "error: ")
      says = ended.sentence
    after = _then(judge, bench, workdir)
  return Outcome(
      tried=f"{len(limits)}: {', '.join(map(str, limits))} bytes",
      ended="1",
      says=says,
      after=after,
      problems=tuple(judge.problems),
  )


@fault("read-only at the start", seconds=15)
def read_only_at_start(bench: bench_lib.Bench) -> Outcome:
  """Before the data are read."""
  judge = Judge()
  with tmpfs(bench) as disk:
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    workdir = disk / "run"
    ended = bench.run(workdir)
    judge.end(ended, 1, "error: the work directory WORKDIR cannot be written")
    judge.expect("reading the data" not in ended.error, "data were read")
    subprocess.run(["mount", "-o", "remount,rw", str(disk)], check=True)
    after = _then(judge, bench, workdir)
  return Outcome(
      tried="1",
      ended="1",
      says=ended.sentence,
      after=after,
      problems=tuple(judge.problems),
  )


@fault("read-only later", seconds=36)
def read_only_later(bench: bench_lib.Bench) -> Outcome:
  """By a mount over the folder: open files can be written, and no new ones."""
  judge, says, after = Judge(), "", "-"
  phases = ("key", "checkpoint", "pictures")
  for phase in phases:
    with tmpfs(bench) as disk:
      workdir = disk / "run"
      shell = (
          f"mount --bind {workdir} {workdir} &&"
          f" mount -o remount,bind,ro {workdir}"
      )
      ended = bench.run(workdir, moment=(*_PHASES[phase], shell))
      judge.end(ended, 1, "error: ")
      says = ended.sentence
      subprocess.run(["umount", "-l", str(workdir)], check=True)
      after = _then(judge, bench, workdir)
  return Outcome(
      tried=f"{len(phases)}: at the {', '.join(phases)}",
      ended="1",
      says=says,
      after=after,
      problems=tuple(judge.problems),
  )


@fault("the folder is deleted (rm -rf)", seconds=48)
def deleted(bench: bench_lib.Bench) -> Outcome:
  """At moments of every kind."""
  judge, says, after = Judge(), "", "-"
  phases = ("config", "checkpoint", "end of a checkpoint", "pictures")
  for phase in phases:
    workdir = bench.new()
    ended = bench.run(workdir, moment=(*_PHASES[phase], f"rm -rf {workdir}"))
    judge.end(ended, 1, "is gone")
    says = ended.sentence
    _check_what_came_back(judge, bench, workdir)
    shutil.rmtree(workdir, ignore_errors=True)
    # Of a run with a secret key nothing would be left.
    after = f"{_then(judge, bench, workdir)} from the start (private_seed)"
  return Outcome(
      tried=f"{len(phases)}: at the {', '.join(phases)}",
      ended="1",
      says=says,
      after=after,
      problems=tuple(judge.problems),
  )


@fault("the folder is moved away, and back", seconds=36)
def vanished(bench: bench_lib.Bench) -> Outcome:
  """As a mount that is lost."""
  judge, says, after = Judge(), "", "-"
  phases = ("first statement", "metrics", "checkpoint")
  for phase in phases:
    workdir = bench.new()
    aside = workdir.with_name("aside")
    moment = (*_PHASES[phase], f"mv {workdir} {aside}")
    ended = bench.run(workdir, moment=moment)
    judge.end(ended, 1, "is gone")
    says = ended.sentence
    shutil.rmtree(workdir, ignore_errors=True)
    os.rename(aside, workdir)
    after = _then(judge, bench, workdir)
  return Outcome(
      tried=f"{len(phases)}: at the {', '.join(phases)}",
      ended="1",
      says=says,
      after=after,
      problems=tuple(judge.problems),
  )


@fault("the disk is unmounted", seconds=24)
def unmounted(bench: bench_lib.Bench) -> Outcome:
  """Where it was mounted an empty folder shows; then it is mounted again."""
  judge, says, after = Judge(), "", "-"
  phases = ("config", "checkpoint")
  for phase in phases:
    with tmpfs(bench) as disk:
      workdir = bench.new()
      (disk / "kept").mkdir()
      workdir.mkdir()
      subprocess.run(
          ["mount", "--bind", str(disk / "kept"), str(workdir)], check=True
      )
      moment = (*_PHASES[phase], f"umount -l {workdir}")
      ended = bench.run(workdir, moment=moment)
      judge.end(ended, 1, "is gone")
      says = ended.sentence
      _check_what_came_back(judge, bench, workdir)
      after = _then(judge, bench, disk / "kept")
  return Outcome(
      tried=f"{len(phases)}: at the {', '.join(phases)}",
      ended="1",
      says=says,
      after=after,
      problems=tuple(judge.problems),
  )


_register()
