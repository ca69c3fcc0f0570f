"""Draws what a plan samples and guarantees, before any training.

  episodic-dp inspect --config=glyphs \\
      --out=runs/inspect
  episodic-dp inspect --config=omniglot \\
      --data_dir=DATA --out=DIR

DIR/index.html is one page that holds everything (it loads nothing else and runs
no script): a contact sheet of tasks with their labels, support and query; the
hierarchy and the stages; how often a step draws a unit of each level, by theory
and counted over some hundred draws; the guarantees, or why a level has none,
and how epsilon grows with the steps. The pictures lie beside it as PNG.

The tasks shown are of the validation split, public by assumption, in the form
that training draws. --show_private_training_images shows the training tasks
themselves, for the data holder's eyes: nothing protects what they show. All
draws come from the public --seed; no run's secret key is touched.

--nodata reads no images and shows the rest, which needs the config alone (of
your own data, the sizes that are listed in --data_dir).
"""

from collections.abc import Sequence
import pathlib

from absl import flags
from absl import logging
from ml_collections import config_flags

from episodic_dp.analysis.inspection import report
from episodic_dp.cli import shared_flags
from episodic_dp.config import RunConfig
from episodic_dp.output import files


def define_flags() -> None:
  """Of the config, its data, and what the page shows."""
  shared_flags.define_config()
  shared_flags.define_out(
      "Folder for index.html and its PNG files; other files in it are kept.",
      required=True,
  )
  shared_flags.define_data()
  flags.DEFINE_bool(
      "data", True, "Read the images; --nodata shows what the config says."
  )
  flags.DEFINE_integer(
      "tasks", 6, "How many tasks to show.", lower_bound=1, upper_bound=100
  )
  shared_flags.define_seed(
      "Public seed of what is drawn here; it is not the key of a run."
  )
  flags.DEFINE_bool(
      "show_private_training_images",
      False,
      "Show tasks of the training data, as step 0 draws them, in place of"
      " public ones. The page is then private, and so are its files.",
  )


def main(argv: Sequence[str]) -> None:
  """Writes the page, and prints its path."""
  del argv
  values = flags.FLAGS
  private = values.show_private_training_images
  if private:
    if not values.data:
      raise ValueError(
          "--show_private_training_images and --nodata contradict each other:"
          " leave one of them out"
      )
    logging.warning("%s will show private training images", values.out)
  files.check_folder(values.out)
  path = config_flags.get_config_filename(flags.FLAGS["config"])
  file, colon, arguments = path.partition(":")
  content = report.make(
      RunConfig.parse(values.config, data_dir=values.data_dir),
      pathlib.Path(file).stem + colon + arguments,
      report.Options(
          data=values.data,
          data_dir=values.data_dir,
          download=values.download,
          tasks=values.tasks,
          seed=values.seed,
          private=private,
      ),
  )
  print(report.write(content, values.out))
