"""Set trained runs side by side: scores, epsilon and steps.

  episodic-dp compare RUN RUN ... [--format=table|json]
  episodic-dp compare SWEEP

Each RUN is a work directory of episodic-dp train, or a folder that holds some,
as a sweep makes them. Nothing is computed anew: the last validation comes from
metrics.jsonl, the score on test tasks (last checkpoint and ensemble) from
evaluation.json where episodic-dp evaluate has written one, and epsilon and
delta of every level from guarantee.json. A run that is not finished is listed
with the steps that it has done; its epsilon is that of all its steps until it
ends.

Finished runs that differ only in their keys (config.seed, private_seed, and the
devices that they ran on) have one more row: the mean, with the 95 % interval of
Student's t over the runs, and the largest epsilon. Runs on data of different
trees are never averaged.
"""

from absl import flags

from episodic_dp import errors
from episodic_dp import plain
from episodic_dp.analysis import comparison
from episodic_dp.cli import shared_flags


def main(values: flags.FlagValues, *paths: str) -> None:
  """Print the runs that the arguments name."""
  if not paths:
    raise errors.RunError(
        "no run is given: name work directories, as in episodic-dp compare"
        " runs/a runs/b"
    )
  found = comparison.compare(paths)
  shared_flags.show(plain.to_plain({"runs": found}), comparison.text(found))


def define_flags() -> None:
  """Define how the result is printed."""
  shared_flags.define_format()
