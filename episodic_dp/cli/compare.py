"""Compare the scores, epsilon and steps of trained runs.

  episodic-dp compare RUN RUN ... [--format=table|json]
  episodic-dp compare SWEEP

Each RUN is a work directory of episodic-dp train, or a folder of several, as a
sweep makes it. The command only reads what the runs wrote. The last validation
score comes from metrics.jsonl. The scores on test tasks (last checkpoint and
ensemble) come from evaluation.json, if episodic-dp evaluate has written it.
Epsilon and delta of every level come from guarantee.json. A run that was
stopped has the epsilon of the steps that it has done, and one that is running
or was killed that of all its steps.

Finished runs that differ only in their keys (config.seed, private_seed) and
their devices have one more row. It shows their mean, with the 95 % interval of
Student's t over the runs, and the largest epsilon. Runs on different data are
never averaged.
"""

from absl import flags

from episodic_dp import plain
from episodic_dp.analysis import comparison
from episodic_dp.cli import shared_flags
from episodic_dp.errors import RunError


def main(values: flags.FlagValues, *paths: str) -> None:
  """Print the runs named by the arguments."""
  if not paths:
    raise RunError(
        "no run is given: name work directories, as in episodic-dp compare"
        " runs/a runs/b"
    )
  found = comparison.compare(paths)
  shared_flags.show(plain.to_plain({"runs": found}), comparison.text(found))


def define_flags() -> None:
  """Define the format of the output."""
  shared_flags.define_format()
