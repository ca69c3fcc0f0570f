"""Steps for which there is no memory."""

from tests.faults import bench as bench_lib
from tests.faults.outcomes import fault
from tests.faults.outcomes import Judge
from tests.faults.outcomes import Outcome


@fault("an absurd microbatch", seconds=20)
def microbatch(bench: bench_lib.Bench) -> Outcome:
  """More than the machine has, of a device's allocation."""
  judge, workdir = Judge(), bench.new()
  flag = f"--config.compute.microbatch_size={2**30}"
  ended = bench.run(workdir, flag)
  judge.end(ended, 1, f"--config.compute.microbatch_size={2**29}")
  judge.end(bench.run(workdir), 0, "done: ")
  return Outcome(
      tried="1",
      ended="1",
      says=ended.sentence,
      after=judge.same(bench_lib.contents(workdir), bench.whole),
      problems=tuple(judge.problems),
  )
