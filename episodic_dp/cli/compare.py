"""Sets trained runs side by side: accuracy, epsilon, steps and time.

  episodic-dp compare RUN RUN ... [--format=table|csv|json]
  episodic-dp compare SWEEP --format=csv > sweep.csv
  episodic-dp compare SWEEP --out=DIR

Each RUN is a work directory of episodic-dp train, or a folder that holds some,
as a sweep makes them. Nothing is computed anew: the last validation comes from
metrics.jsonl, the accuracy on test tasks (single model and ensemble) from
evaluation.json where episodic-dp evaluate has written one, and epsilon and
delta of every level from guarantee.json. A run that is not finished is listed
with the steps that it has done; its epsilon is that of all its steps until it
has ended by itself. Squared errors of regressions stand in place of accuracies.

Finished runs that differ only in their keys (config.seed, private_seed, and the
devices that they ran on) have a row more: the mean, with the 95 % interval of
Student's t over the runs, and the largest epsilon.

--out=DIR draws them, too: the score against epsilon and over the steps, with
error bars: 95 % intervals over tasks, of a mean over its runs.

Time is that of all processes of a run together, and is shown only where
WORKDIR/private/ is at hand. How long steps take tells how many tasks they drew,
which is secret, so no file outside that folder holds a time: a copy of a run
without private/ is compared without it. Leave the column out of what you
publish.
"""

from collections.abc import Sequence

from absl import flags
from absl import logging

from episodic_dp import errors
from episodic_dp.analysis import compare
from episodic_dp.analysis import compare_report
from episodic_dp.cli import shared_flags

_FORMATS = {
    "table": lambda found: compare_report.text(found) + "\n",
    "csv": compare_report.as_csv,
    "json": lambda found: compare_report.as_json(found) + "\n",
}


def main(argv: Sequence[str]) -> None:
  """Prints the runs that the arguments name."""
  _, *paths = argv
  if not paths:
    raise errors.RunError(
        "no run is given: name work directories, as in episodic-dp compare"
        " runs/a runs/b"
    )
  found = compare.compare(paths)
  print(_FORMATS[flags.FLAGS.format](found), end="")
  if flags.FLAGS.out is not None:
    # Lazy import: a table alone need not wait for matplotlib.
    from episodic_dp.analysis import compare_plots

    for path in compare_plots.write(found, flags.FLAGS.out):
      logging.info("wrote %s", path)


def define_flags() -> None:
  """How the result is printed, and where its pictures go."""
  shared_flags.define_format("csv")
  shared_flags.define_out("Folder for the pictures; none without it.")
