"""Measures the accuracy (in regression the squared error) of a run.

  episodic-dp evaluate --workdir=DIR [--data_dir=DIR]

Tests the last checkpoint, and the ensemble of the five checkpoints that did
best on public validation tasks (each adapts on its own; their softmax outputs
or predictions are averaged), with 95 % intervals. The test tasks come from a
public seed: every run of a config is measured on the same ones. Prints a table
and writes DIR/evaluation.json.
"""

from absl import flags

from episodic_dp.analysis import measure
from episodic_dp.cli import app
from episodic_dp.output import tables

_WORKDIR = flags.DEFINE_string(
    "workdir", None, "Folder of a run of experiments.train.", required=True
)
_DATA_DIR = flags.DEFINE_string(
    "data_dir",
    None,
    "Folder of the data sets that are not built in, or your own data.",
)
_DOWNLOAD = flags.DEFINE_bool(
    "download", False, "Fetch the data files that --data_dir does not have."
)


def main(argv) -> None:
  del argv
  app.log_devices()
  results = measure.measure(
      _WORKDIR.value, data_dir=_DATA_DIR.value, download=_DOWNLOAD.value
  )
  print(tables.text(measure.header(results), measure.rows(results)))
