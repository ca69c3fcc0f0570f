"""SIGKILL: of one process at any moment, and of one of two."""

import re
import signal

from tests.faults import bench as bench_lib
from tests.faults.outcomes import fault
from tests.faults.outcomes import Judge
from tests.faults.outcomes import Outcome

_LOST = "another process of this run was lost"


def sigkills(bench: bench_lib.Bench, count: int, in_writes: int) -> Outcome:
  """One run, killed so often and gone on with by the same command.

  Args:
    bench: where.
    count: of the kills, spread over the run's steps.
    in_writes: how many of them wait for a checkpoint that is being written.
  """
  judge, workdir = Judge(), bench.new()
  writing = set(bench.rng.permutation(count)[:in_writes].tolist())
  hits = {"in a write": 0, "elsewhere": 0, "before the first step": 0}
  for number in range(count):
    process = bench.start(workdir)
    mean = bench_lib.STEPS * (number + 0.5) / count
    target = int(bench.rng.integers(max(0, mean - 3), mean + 3))
    if target == 0:
      process.kill()  # While it begins.
    elif bench_lib.wait_for_lines(process, workdir, target):
      if number in writing:
        bench_lib.wait_for_a_write(process, workdir)
      process.kill()
    (ended,) = bench.end(process)
    judge.expect(
        ended.status == -signal.SIGKILL,
        f"kill {number} came too late: {ended.error[-300:]}",
    )
    if target == 0:
      hits["before the first step"] += 1
    else:
      cut = bench_lib.is_writing(workdir)
      hits["in a write" if cut else "elsewhere"] += 1
  judge.expect(hits["in a write"] >= in_writes, f"few kills in writes: {hits}")
  judge.end(bench.run(workdir), 0, "done: ")
  found = bench_lib.contents(workdir)
  after = judge.same(found, bench.whole)
  judge.expect(
      len(found.lineage) <= count + 1, f"a lineage of {len(found.lineage)}"
  )
  return Outcome(
      tried=f"{count} in one run: "
      + ", ".join(f"{many} {where}" for where, many in hits.items() if many),
      ended="-9",
      says="",
      after=after,
      problems=tuple(judge.problems),
  )


@fault("SIGKILL at random moments", seconds=120)
def single(bench: bench_lib.Bench) -> Outcome:
  """Between, during and after writes of checkpoints."""
  return sigkills(bench, 20, 6)


def one_of_two(
    bench: bench_lib.Bench, number: int, signalled: int = signal.SIGKILL
) -> Outcome:
  """Two processes, one of which is lost; the other ends, and both go on.

  Args:
    bench: where.
    number: of the process that is lost: 0 hosts the coordination service.
    signalled: SIGKILL, or SIGSTOP for one that hangs.
  """
  judge, workdir = Judge(), bench.new()
  two = bench.start_two(workdir)
  moment = int(bench.rng.integers(8, bench_lib.STEPS // 2))
  bench_lib.wait_for_lines(two[0], workdir, moment)
  two[number].send_signal(signalled)
  (left,) = bench.end(two[1 - number])
  two[number].kill()
  bench.end(two[number])
  judge.end(left, 75, _LOST)
  judge.expect(left.seconds < 40, f"it took {left.seconds:.0f} s")
  for ended in bench.end(*bench.start_two(workdir)):
    judge.expect(ended.status == 0, f"then: {ended.error[-300:]}")
  return Outcome(
      tried="1",
      ended=f"75 after {left.seconds:.0f} s",
      says=left.sentence,
      after=judge.same(bench_lib.contents(workdir), bench.whole_of_two),
      problems=tuple(judge.problems),
  )


@fault("SIGKILL of process 0 of two", seconds=30)
def first_of_two(bench: bench_lib.Bench) -> Outcome:
  """The one that hosts the coordination service."""
  return one_of_two(bench, 0)


@fault("SIGKILL of process 1 of two", seconds=60)
def second_of_two(bench: bench_lib.Bench) -> Outcome:
  """The one that writes nothing."""
  return one_of_two(bench, 1)


@fault("process 0 of two hangs", seconds=60)
def first_hangs(bench: bench_lib.Bench) -> Outcome:
  """Its connections stay open."""
  return one_of_two(bench, 0, signal.SIGSTOP)


@fault("process 1 of two hangs", seconds=60)
def second_hangs(bench: bench_lib.Bench) -> Outcome:
  """Its connections stay open."""
  return one_of_two(bench, 1, signal.SIGSTOP)


@fault("one of two is never started", seconds=20)
def alone(bench: bench_lib.Bench) -> Outcome:
  """The other waits for a limit, here of 8 s."""
  judge, said = Judge(), ""
  for number in (0, 1):
    short = bench_lib.setting("episodic_dp.cli.peers:CONNECT_SECONDS", 8)
    two = bench.start_two(bench.new(), numbers=[number], moment=short)
    (ended,) = bench.end(*two)
    judge.end(ended, 75, "not all processes met at")
    said = said or ended.sentence
  return Outcome(
      tried="2: either of them",
      ended="75 after the limit",
      says=re.sub(r"localhost:\d+", "HOST:PORT", said),
      after="runs, where both are started",
      problems=tuple(judge.problems),
  )
