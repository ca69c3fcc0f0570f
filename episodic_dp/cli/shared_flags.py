"""Flags of several commands, each defined in one place.

A command defines its flags when it is called, not when it is imported, because
tests import all commands into one process.
"""

from collections.abc import Iterable, Sequence
import json
from typing import Any

from absl import flags

from episodic_dp.accounting import report
from episodic_dp.config import presets
from episodic_dp.output import files
from episodic_dp.run import Run

_FIELD = "config.FIELD"  # The flag that takes --config.steps=3 as steps=3.


def define_config(
    *, required: bool = True, names: Sequence[str] = presets.NAMES
) -> None:
  """Define --config, a preset or a file, --config.FIELD and --delta.

  Args:
    required: whether the command needs it.
    names: the presets that the command accepts.
  """
  flags.DEFINE_string(
      "config",
      None,
      f"A preset ({', '.join(names)}) or a file of this form, with arguments"
      f" after a colon: --config={names[0]}:private=0.",
      required=required,
  )
  flags.DEFINE_multi_string(
      _FIELD,
      [],
      "Value of a field, as in --config.seed=1; --help of train and of pvi"
      " lists all fields.",
  )
  flags.DEFINE_float(
      "delta", None, "Delta, instead of the config's or the statements' delta."
  )


def fields(values: flags.FlagValues) -> dict[str, str]:
  """Return the fields that were set, such as {"steps": "3"}."""
  found = named(values[_FIELD].value or ())
  return found if values.delta is None else found | {"delta": str(values.delta)}


def named(texts: Iterable[str]) -> dict[str, str]:
  """Return name -> text of texts such as "steps=3"."""
  return {name: text for name, _, text in (t.partition("=") for t in texts)}


def run(values: flags.FlagValues) -> Run:
  """Return the checked run of --config, its fields and --data_dir."""
  changes = fields(values)
  return presets.load(values.config, changes).resolved(values.data_dir)


def define_workdir(what: str) -> None:
  """Define --workdir, which the command requires."""
  flags.DEFINE_string(
      "workdir",
      None,
      f"{what} Also s3://BUCKET/RUN or gs://BUCKET/RUN on an object store.",
      required=True,
  )


def check_workdir(values: flags.FlagValues) -> None:
  """Raise RunError unless --workdir may hold a run, before data are read."""
  # Lazy import: commands that account do without the packages of training.
  from episodic_dp.training import workdir as workdir_lib

  if "://" not in values.workdir:
    files.check_no_file(values.workdir)
    workdir_lib.check_own(
        workdir_lib.folder_of(values.workdir),
        workdir_lib.key_path(values.workdir, values.key_file),
    )


def define_data(*, download: bool = True) -> None:
  """Define --data_dir and, for commands that read images, --download."""
  flags.DEFINE_string(
      "data_dir",
      None,
      "Folder of the data sets that are not built in, or your own data.",
  )
  if download:
    flags.DEFINE_bool(
        "download", False, "Fetch the data files that --data_dir lacks."
    )


def define_resume() -> None:
  """Define --resume and --key_file, for commands that train."""
  flags.DEFINE_enum(
      "resume",
      "same",
      ("same", "fork", "auto"),
      "For a run that has started. same: resume it, and refuse any change."
      " fork: resume it after a change under a fresh key, and charge again the"
      " steps that may have been released since its last checkpoint. auto: same"
      " if possible, otherwise fork (for launchers).",
  )
  flags.DEFINE_string(
      "key_file",
      None,
      "File of the secret key, on this machine. The default is in"
      " WORKDIR/private, or in ~/.episodic_dp/keys for a run on an object"
      " store.",
  )


def define_out(
    what: str, default: str | None = None, *, required: bool = False
) -> None:
  """Define --out: the folder of the results."""
  flags.DEFINE_string("out", default, what, required=required)
  flags.register_validator(
      "out",
      lambda out: "://" not in (out or ""),
      "results are written to a folder of this machine: name one",
  )


def define_format(
    choices: Sequence[str] = ("table", "json"), what: str = "of the output"
) -> None:
  """Define --format; the first choice is the default."""
  flags.DEFINE_enum("format", choices[0], choices, f"Format {what}.")


def show(data: Any, text: str) -> None:
  """Print a result in the format of --format: its text, or JSON."""
  if flags.FLAGS.format == "json":
    text = json.dumps(data, indent=2, allow_nan=False)
  print(text)


def define_neighbours() -> None:
  """Define --neighbours: the relation for which --epsilon holds."""
  flags.DEFINE_enum(
      "neighbours",
      report.RELATIONS[0],
      report.RELATIONS,
      "What --epsilon hides: the presence of a unit, or its data.",
  )


def define_target() -> None:
  """Define --epsilon, --level and --neighbours: the cost to solve for."""
  define_neighbours()
  flags.DEFINE_float("epsilon", None, "The target epsilon.", required=True)
  flags.DEFINE_string(
      "level",
      None,
      "The privacy unit; by default config.privacy_unit, or the primary one.",
  )
