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

_CONFIG = config_flags.DEFINE_config_file(
    "config", None, "A file of episodic_dp/config/presets/.", lock_config=True
)
flags.mark_flag_as_required("config")
_OUT = flags.DEFINE_string(
    "out",
    None,
    "Folder for index.html and its PNG files; other files in it are kept.",
    required=True,
)
_DATA = flags.DEFINE_bool(
    "data", True, "Read the images; --nodata shows what the config alone says."
)
_DATA_DIR = flags.DEFINE_string(
    "data_dir",
    None,
    "Folder of the data sets that are not built in, or your own data.",
)
_DOWNLOAD = flags.DEFINE_bool(
    "download", False, "Fetch the data files that --data_dir does not have."
)
_TASKS = flags.DEFINE_integer(
    "tasks", 6, "How many tasks to show.", lower_bound=1, upper_bound=100
)
_SEED = flags.DEFINE_integer(
    "seed",
    0,
    "Public seed of what is drawn here; it is not the key of a run.",
    lower_bound=0,
    upper_bound=2**32 - 1,
)
_PRIVATE = flags.DEFINE_bool(
    "show_private_training_images",
    False,
    "Show tasks of the training data, as step 0 draws them, in place of public"
    " ones. The page is then private, and so are its files.",
)


def main(argv: Sequence[str]) -> None:
  del argv
  if _PRIVATE.value:
    if not _DATA.value:
      raise ValueError(
          "--show_private_training_images and --nodata contradict each other:"
          " leave one of them out"
      )
    logging.warning("%s will show private training images", _OUT.value)
  report.check(_OUT.value)
  path = config_flags.get_config_filename(flags.FLAGS["config"])
  file, colon, arguments = path.partition(":")
  content = report.make(
      _CONFIG.value,
      pathlib.Path(file).stem + colon + arguments,
      report.Options(
          data=_DATA.value,
          data_dir=_DATA_DIR.value,
          download=_DOWNLOAD.value,
          tasks=_TASKS.value,
          seed=_SEED.value,
          private=_PRIVATE.value,
      ),
  )
  print(report.write(content, _OUT.value))
