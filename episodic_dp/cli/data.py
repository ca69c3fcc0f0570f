"""Write a data set of the library as a folder of pictures, to try own data.

  episodic-dp data --name=glyphs --options=participants=1000,drawings=4 \\
      --out=DIR
  episodic-dp data --name=mnist_writers --data_dir=DATA --out=DIR

The folder has a folder for each unit, such as DIR/PERSON/CLASS/IMAGE.png, and
is read by --config=own_data --data_dir=DIR. It must not exist yet. By default
it holds the training data; with --part=all it holds the folders train,
validation and test. --options sets fields of the data set, which
docs/configuration.md lists.
"""

from absl import flags

from episodic_dp import data
from episodic_dp.cli import shared_flags
from episodic_dp.config import presets
from episodic_dp.data import dataset
from episodic_dp.data import folders
from episodic_dp.output import files
from episodic_dp.output import phases


def define_flags() -> None:
  """Define the flags of the data set, its files and the folder."""
  names = sorted(set(data.NAMES) - {"own_data", "sinusoid"})  # Of images.
  flags.DEFINE_string(
      "name", None, f"The data set: one of {', '.join(names)}.", required=True
  )
  flags.DEFINE_list("options", [], "Fields of the data set, as NAME=VALUE.")
  flags.DEFINE_enum(
      "part", "train", (*dataset.PARTS, "all"), "The part that is written."
  )
  shared_flags.define_data()
  shared_flags.define_out("New folder of the pictures.", required=True)


def main(values: flags.FlagValues) -> None:
  """Write the folder, and print what it holds."""
  files.check_new_folder(values.out)
  options = presets.read(shared_flags.named(values.options))
  with phases.phase("reading the data", at_once=True):
    splits = data.load(
        values.name, data_dir=values.data_dir, download=values.download,
        **options,
    )
  if values.part == "all":
    parts = {part: getattr(splits, part) for part in dataset.PARTS}
  else:
    parts = {"": getattr(splits, values.part)}
  total = folders.write(parts, values.out)
  for part in parts.values():
    print(f"{part.name}: {part.hierarchy}")
  print(f"images in {values.out}: {total}")
