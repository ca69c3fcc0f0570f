"""Show the sampling and the epsilon of a plan, before any training.

  episodic-dp inspect --config=glyphs --out=runs/inspect
  episodic-dp inspect --config=omniglot --data_dir=DATA --out=DIR

The command prints the table of episodic-dp account and writes DIR/inspect.png.
The figure shows the sampling of each level and its epsilon. If the data are
available, it also shows some tasks of the public validation split. Everything
else needs only the config and, for your own data, the sizes listed in
--data_dir.
"""

import pathlib

from absl import flags
from absl import logging

from episodic_dp.analysis import costs
from episodic_dp.analysis import inspection
from episodic_dp.cli import shared_flags
from episodic_dp.output import files
from episodic_dp.output import phases
from episodic_dp.output import plotting


def define_flags() -> None:
  """Define the flags of the config, its data and the results."""
  shared_flags.define_config()
  shared_flags.define_out("Folder for inspect.png.", required=True)
  shared_flags.define_data()


def main(values: flags.FlagValues) -> None:
  """Print the table, write the figure and print its path."""
  config = shared_flags.run(values)
  if config.data.name == "own_data":  # Of which every file is an example.
    files.check_outside(values.out, values.data_dir, "--data_dir")
  files.check_folder(values.out)
  with phases.phase("computing the guarantees"):
    result = costs.account(config)
  print(costs.table(config, result))
  tasks = None
  try:
    with phases.phase("plotting public tasks"):
      tasks = inspection.public_tasks(
          config, values.data_dir, values.download
      )
  except FileNotFoundError as e:
    logging.info("no tasks are shown: %s", e)
  figure = inspection.draw(config.release, result["guarantees"], tasks)
  path = pathlib.Path(values.out) / inspection.FILE
  plotting.save(figure, path)
  print(f"\nwrote {path}")
