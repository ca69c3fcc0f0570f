"""Signals and the time limit: what is done is saved, and the status says it."""

import signal
import time

from tests.faults import bench as bench_lib
from tests.faults.outcomes import fault
from tests.faults.outcomes import Judge
from tests.faults.outcomes import Outcome


def stopped(bench: bench_lib.Bench, name: str, status: int) -> Outcome:
  """A run that gets a signal among its steps.

  Args:
    bench: where.
    name: of the signal.
    status: with which the run is to end.
  """
  judge, workdir = Judge(), bench.new()
  process = bench.start(workdir)
  moment = int(bench.rng.integers(4, bench_lib.STEPS - 20))
  bench_lib.wait_for_lines(process, workdir, moment)
  process.send_signal(signal.Signals[name])
  (ended,) = bench.end(process)
  by = "Ctrl-C" if name == "SIGINT" else name
  judge.end(ended, status, f"stopped by {by} after step")
  saved = bench_lib.contents(workdir)
  judge.expect(saved.step >= moment, f"step {saved.step} was saved")
  judge.expect(
      saved.lines[-1]["step"] == saved.step,
      "a step was taken that was not saved",
  )
  judge.end(bench.run(workdir), 0, "done: ")
  return Outcome(
      tried=f"1, at line {moment}",
      ended=str(ended.status),
      says=ended.sentence,
      after=judge.same(bench_lib.contents(workdir), bench.whole),
      problems=tuple(judge.problems),
  )


@fault("SIGTERM", seconds=14)
def sigterm(bench: bench_lib.Bench) -> Outcome:
  """As schedulers send it."""
  return stopped(bench, "SIGTERM", 75)


@fault("SIGUSR1", seconds=14)
def sigusr1(bench: bench_lib.Bench) -> Outcome:
  """As SLURM sends it before a job's time is over, if asked to."""
  return stopped(bench, "SIGUSR1", 75)


@fault("Ctrl-C", seconds=14)
def sigint(bench: bench_lib.Bench) -> Outcome:
  """Once."""
  return stopped(bench, "SIGINT", 130)


@fault("Ctrl-C twice", seconds=14)
def sigint_twice(bench: bench_lib.Bench) -> Outcome:
  """The second does not wait for what the first began."""
  judge, workdir = Judge(), bench.new()
  # What a run does behind its last step is slow.
  slow = ("episodic_dp.training.spending:Spending.finish", 1, "sleep 30")
  process = bench.start(workdir, moment=slow)
  bench_lib.wait_for_lines(process, workdir, 10)
  process.send_signal(signal.SIGINT)
  time.sleep(1.5)
  process.send_signal(signal.SIGINT)
  (ended,) = bench.end(process)
  judge.end(ended, 130, "stopped by Ctrl-C")
  judge.expect(ended.seconds < 5, f"it took {ended.seconds:.0f} s")
  judge.end(bench.run(workdir), 0, "done: ")
  return Outcome(
      tried="1",
      ended=f"{ended.status} after {ended.seconds:.1f} s",
      says=ended.sentence,
      after=judge.same(bench_lib.contents(workdir), bench.whole),
      problems=tuple(judge.problems),
  )


def early(
    bench: bench_lib.Bench, name: str, status: int, count: int
) -> Outcome:
  """Signals while a command imports, reads its data and compiles.

  Args:
    bench: where.
    name: of the signal.
    status: with which the command is to end.
    count: of the moments, from 0.3 s on.
  """
  judge, workdir, says = Judge(), bench.new(), ""
  began = time.monotonic()
  whole = bench.start(workdir)
  bench_lib.wait_for_lines(whole, workdir, 1)
  first = time.monotonic() - began  # Seconds to the first step.
  whole.kill()
  bench.end(whole)
  for number in range(count):
    workdir = bench.new()
    process = bench.start(workdir)
    time.sleep(0.3 + (0.9 * first - 0.3) * number / count)
    process.send_signal(signal.Signals[name])
    (ended,) = bench.end(process)
    if not ended.status:  # It was quicker than the first.
      continue
    judge.end(ended, status, "stopped by ")
    judge.expect(ended.seconds < 5, f"it took {ended.seconds:.1f} s")
    says = says or ended.sentence
  judge.expect(bool(says), "no run was stopped")
  judge.end(bench.run(workdir), 0, "done: ")
  return Outcome(
      tried=f"{count}, from 0.3 s to the first step",
      ended=f"{status} at once",
      says=says,
      after=judge.same(bench_lib.contents(workdir), bench.whole),
      problems=tuple(judge.problems),
  )


@fault("Ctrl-C in the first seconds", seconds=50)
def early_sigint(bench: bench_lib.Bench) -> Outcome:
  """Nothing is there that could be saved."""
  return early(bench, "SIGINT", 130, 10)


@fault("SIGTERM in the first seconds", seconds=30)
def early_sigterm(bench: bench_lib.Bench) -> Outcome:
  """Nothing is there that could be saved."""
  return early(bench, "SIGTERM", 75, 5)


@fault("Ctrl-C to `evaluate`", seconds=25)
def evaluate(bench: bench_lib.Bench) -> Outcome:
  """A command that only reads a run."""
  judge, says = Judge(), ""
  for number in range(4):
    process = bench.start(bench.whole_folder, command="evaluate")
    time.sleep(0.4 + number)
    process.send_signal(signal.SIGINT)
    (ended,) = bench.end(process)
    judge.end(ended, 130, "stopped by Ctrl-C")
    says = says or ended.sentence
  judge.expect(
      not list(bench.whole_folder.glob(".evaluation*")), "half a file is left"
  )
  return Outcome(
      tried="4, from 0.4 s to 3.4 s",
      ended="130 at once",
      says=says,
      after="-",
      problems=tuple(judge.problems),
  )


@fault("a time limit", seconds=35)
def time_limit(bench: bench_lib.Bench) -> Outcome:
  """A run of many steps is given half a minute."""
  judge, workdir = Judge(), bench.new()
  limit = 30
  began = time.monotonic()
  ended = bench.run(workdir, f"--time_limit={limit}s", "--config.steps=100000")
  taken = time.monotonic() - began
  judge.end(ended, 75, "stopped by its time limit after step")
  judge.expect(taken < limit + 1, f"it left after {taken:.1f} s")
  saved = bench_lib.contents(workdir)
  judge.expect(
      saved.lines[-1]["step"] == saved.step > 0, f"step {saved.step}"
  )
  return Outcome(
      tried=f"1, --time_limit={limit}s",
      ended=f"75 after {taken:.1f} s",
      says=ended.sentence,
      after="goes on",
      problems=tuple(judge.problems),
  )


@fault("SIGTERM to one of two processes", seconds=40)
def one_of_two(bench: bench_lib.Bench) -> Outcome:
  """To either; both end after the same step."""
  judge, says = Judge(), ""
  for number in (0, 1):
    workdir = bench.new()
    two = bench.start_two(workdir)
    bench_lib.wait_for_lines(two[0], workdir, 10)
    two[number].send_signal(signal.SIGTERM)
    first, second = bench.end(*two)
    judge.end(first, 75, "stopped by SIGTERM after step")
    judge.expect(second.status == 75, f"status {second.status} of the other")
    judge.expect(second.clean, f"a trace: {second.error[-600:]}")
    says = first.sentence
    for ended in bench.end(*bench.start_two(workdir)):
      judge.expect(ended.status == 0, f"then: {ended.error[-300:]}")
    after = judge.same(bench_lib.contents(workdir), bench.whole_of_two)
  return Outcome(
      tried="2: either of them",
      ended="75, both",
      says=says,
      after=after,
      problems=tuple(judge.problems),
  )
