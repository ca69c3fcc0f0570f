"""Measure the accuracy (in regression the squared error) of a run.

  episodic-dp evaluate --workdir=DIR [--data_dir=DIR]

The command tests the last checkpoint, and an ensemble of the five checkpoints
that are best on public validation tasks. Each of them adapts separately, and
the ensemble averages their softmax outputs or predictions. Every score has its
95 % interval. The test tasks come from a public seed, so every run of a config
is measured on the same tasks. The command prints a table and writes
DIR/evaluation.json.
"""

from absl import flags

from episodic_dp.analysis import measure
from episodic_dp.cli import devices
from episodic_dp.cli import shared_flags
from episodic_dp.training import reporting


def define_flags() -> None:
  """Define the flags of the run and its data."""
  shared_flags.define_workdir("Folder of a run of episodic-dp train.")
  shared_flags.define_data()


def main(values: flags.FlagValues) -> None:
  """Measure the run and print a table."""
  devices.log_devices()
  results = measure.measure(
      values.workdir, data_dir=values.data_dir, download=values.download
  )
  print(measure.table(results))
  where = f"{values.workdir.rstrip('/')}/{reporting.EVALUATION}"
  print(f"\n±: 95 % interval over the tasks. The score of each: {where}")
