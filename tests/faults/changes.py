"""What changes between two starts: the folder, the data, the machine."""

import dataclasses
import os
import pathlib
import signal

from episodic_dp import training
from tests.faults import bench as bench_lib
from tests.faults import damage
from tests.faults import outcomes
from tests.faults.outcomes import fault
from tests.faults.outcomes import Judge
from tests.faults.outcomes import Outcome


def _killed(bench: bench_lib.Bench, **options: object) -> pathlib.Path:
  """The folder of a run that was killed between two checkpoints."""
  workdir = bench.new()
  process = bench.start(workdir, **options)
  bench_lib.wait_for_lines(process, workdir, int(bench.rng.integers(21, 29)))
  process.kill()
  bench.end(process)
  return workdir


def _refused(
    bench: bench_lib.Bench, told: str, *flags: str, **options: object
) -> Outcome:
  """A run that was killed and is not to go on so, but as it was."""
  judge, workdir = Judge(), _killed(bench)
  ended = bench.run(workdir, *flags, **options)
  judge.end(ended, 1, told)
  judge.end(bench.run(workdir), 0, "done: ")
  return Outcome(
      tried="1",
      ended="1",
      says=ended.sentence,
      after="as it was begun, "
      + judge.same(bench_lib.contents(workdir), bench.whole),
      problems=tuple(judge.problems),
  )


@fault("a second process in the folder", seconds=15)
def second_process(bench: bench_lib.Bench) -> Outcome:
  """While the first trains."""
  judge, workdir = Judge(), bench.new()
  process = bench.start(workdir)
  bench_lib.wait_for_lines(process, workdir, 3)
  process.send_signal(signal.SIGSTOP)
  second = bench.run(workdir)
  process.send_signal(signal.SIGCONT)
  (first,) = bench.end(process)
  judge.end(second, 1, "another process is training in WORKDIR")
  judge.end(first, 0, "done: ")
  return Outcome(
      tried="1",
      ended="1, the first 0",
      says=second.sentence,
      after=judge.same(bench_lib.contents(workdir), bench.whole),
      problems=tuple(judge.problems),
  )


@fault("a copied folder, both continued alike", seconds=25)
def copied(bench: bench_lib.Bench) -> Outcome:
  """One release: the same bits; the lineages say that there were two."""
  judge, workdir = Judge(), _killed(bench)
  copy = bench_lib.copy(workdir, bench.new("copy"))
  found = []
  for folder in (workdir, copy):
    judge.end(bench.run(folder), 0, "done: ")
    found.append(bench_lib.contents(folder))
  after = judge.same(*found)
  one, other = (contents.lineage for contents in found)
  judge.expect(one[0] == other[0] and one[1] != other[1], "one lineage")
  return Outcome(
      tried="1",
      ended="0, both",
      says="",
      after=f"{after}; the lineages part after their first entry",
      problems=tuple(judge.problems),
  )


@fault("a copied folder, one continued otherwise", seconds=45)
def copied_and_changed(bench: bench_lib.Bench) -> Outcome:
  """Another learning rate: refused where a step would be taken twice."""
  judge, workdir = Judge(), bench.new()
  process = bench.start(workdir)
  bench_lib.wait_for_lines(process, workdir, 12)
  process.send_signal(signal.SIGTERM)
  bench.end(process)
  copy = bench_lib.copy(workdir, bench.new("copy"))
  judge.end(bench.run(workdir), 0, "done: ")
  ended = bench.run(copy, "--config.optimizer.rate=0.02")
  judge.end(ended, 1, "config.optimizer.rate")
  return Outcome(
      tried="1, another learning rate",
      ended="1, the other 0",
      says=ended.sentence,
      after=judge.same(bench_lib.contents(workdir), bench.whole),
      problems=tuple(judge.problems),
  )


def _tiny_refused(
    bench: bench_lib.Bench, told: str, spec: training.TrainingSpec
) -> Outcome:
  """Whether a tiny run in this process is refused, and goes on as it was."""
  judge = Judge()
  stopped, whole = damage.folders(bench.folder)
  folder, says = bench_lib.copy(stopped, bench.new()), ""
  try:
    damage.train(spec, folder)
    judge.expect(False, "it was accepted")
  except training.RunError as e:
    says = f"error: {e}".replace(str(folder), "WORKDIR")
    judge.expect(told in says, says)
  damage.train(damage.spec(), folder)
  return Outcome(
      tried="1",
      ended="1",
      says=says,
      after="as it was begun, "
      + judge.same(bench_lib.contents(folder), whole),
      problems=tuple(judge.problems),
  )


@fault("the data's content changed", seconds=5)
def data_changed(bench: bench_lib.Bench) -> Outcome:
  """One bit of one pixel, equal counts."""
  spec = damage.spec()
  images = spec.train.images.copy()
  images[17, 2, 3] ^= 1
  changed = dataclasses.replace(
      spec, train=dataclasses.replace(spec.train, images=images)
  )
  return _tiny_refused(bench, "has other data", changed)


@fault("the noise multiplier changed", seconds=25)
def noise_changed(bench: bench_lib.Bench) -> Outcome:
  """By a flag."""
  return _refused(
      bench,
      "config.mechanism.noise_multiplier=1.0",
      "--config.mechanism.noise_multiplier=0.5",
  )


@fault("config.json deleted and the noise multiplier changed", seconds=25)
def noise_changed_without_config(bench: bench_lib.Bench) -> Outcome:
  """The key and the ledger know what the run is."""
  judge, workdir = Judge(), _killed(bench)
  config = workdir / "config.json"
  config.rename(workdir.with_name("config.json"))
  ended = bench.run(workdir, "--config.mechanism.noise_multiplier=0.5")
  judge.end(ended, 1, "another --workdir")
  judge.expect(not config.exists(), "another config was written")
  judge.end(bench.run(workdir), 0, "done: ")
  return Outcome(
      tried="1",
      ended="1",
      says=ended.sentence,
      after="as it was begun, "
      + judge.same(bench_lib.contents(workdir), bench.whole),
      problems=tuple(judge.problems),
  )


@fault("JAX_THREEFRY_PARTITIONABLE changed", seconds=25)
def stream_changed(bench: bench_lib.Bench) -> Outcome:
  """Another random stream."""
  return _refused(
      bench,
      "would draw other numbers from its key",
      env={"JAX_THREEFRY_PARTITIONABLE": "0"},
  )


_CLOCK = """
import time, datetime
plain, plain_ns = time.time, time.time_ns
time.time = lambda: plain() + {years} * 31557600.0
time.time_ns = lambda: plain_ns() + {years} * 31557600 * 10**9
"""


@fault("the clock jumps by ten years", seconds=40)
def clock(bench: bench_lib.Bench) -> Outcome:
  """Back for one start and forward for another, as Python sees it."""
  judge, workdir = Judge(), _killed(bench)
  for years in (-10, 10):
    folder = bench.new("site")
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(_CLOCK.format(years=years))
    path = {"PYTHONPATH": f"{folder}{os.pathsep}{bench_lib.ROOT}"}
    process = bench.start(workdir, "--time_limit=1h", env=path)
    if years < 0:
      bench_lib.wait_for_lines(process, workdir, 40)
      process.kill()
      bench.end(process)
    else:
      judge.end(bench.end(process)[0], 0, "done: ")
  return Outcome(
      tried="2: -10 and +10 years, with --time_limit=1h",
      ended="0",
      says="",
      after=judge.same(bench_lib.contents(workdir), bench.whole),
      problems=tuple(judge.problems),
  )


def _on_cores(bench: bench_lib.Bench, fewer: bool) -> Outcome:
  """A run that is killed on one number of cores and goes on with another."""
  cores = sorted(os.sched_getaffinity(0))
  if len(cores) < 2:
    raise outcomes.CannotTryError("this machine has one core")
  one = ("taskset", "-c", str(cores[0]))
  judge = Judge()
  workdir = _killed(bench, prefix=() if fewer else one)
  ended = bench.run(workdir, prefix=one if fewer else ())
  judge.end(ended, 0, "done: ")
  warned = [line for line in ended.error.splitlines() if "elsewhere" in line]
  judge.expect(warned, "it did not say that it goes on elsewhere")
  different = bench_lib.contents(workdir).differences(bench.whole, bits=False)
  judge.expect(not different, f"differs: {different}")
  return Outcome(
      tried=f"{len(cores)} -> 1" if fewer else f"1 -> {len(cores)}",
      ended="0",
      says="a warning names what differs",
      after="the same noise, parameters equal to rounding",
      problems=tuple(judge.problems),
  )


@fault("fewer cores", seconds=25)
def fewer_cores(bench: bench_lib.Bench) -> Outcome:
  """Killed on all of them, gone on with on one."""
  return _on_cores(bench, True)


@fault("more cores", seconds=25)
def more_cores(bench: bench_lib.Bench) -> Outcome:
  """Killed on one, gone on with on all."""
  return _on_cores(bench, False)
