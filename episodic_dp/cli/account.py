"""The guarantees of a config, without running it and without JAX.

  episodic-dp account --config=glyphs
  episodic-dp account --config=omniglot \\
      --config.steps=1000 --config.delta=1e-7 --format=json

One guarantee is printed for every level of the hierarchy that has one, with the
rates and distances that it rests on and the sentences that it assumes; levels
without a guarantee say why. With --config.target_epsilon=E it is that of the
steps which training would take, and the last line says the noise with which all
steps of the config could be taken.

Curves around the config, each as a picture and as JSON, with its own point
marked:

  episodic-dp account --config=glyphs \\
      --sweep=steps,noise_multiplier,tasks,stages --out=DIR

--statement=FILE writes the privacy statement of the config, the JSON that
`episodic-dp verify FILE` computes again.

Beyond one record, for k units of each level that are added or removed together:

  episodic-dp account --config=glyphs --group=5

and the whole curve of epsilon and delta, as CSV and a picture for each level:

  episodic-dp account --config=glyphs --curve=DIR

Several runs on the same people, by their work directories (or statements, or
ledgers as JSON), have one epsilon for every level at which their units are the
same:

  episodic-dp account --ledger=WORKDIR,WORKDIR
"""

from collections.abc import Sequence
import json

from absl import flags
from absl import logging

from episodic_dp import accounting
from episodic_dp.analysis import calibration
from episodic_dp.analysis import costs
from episodic_dp.analysis import study
from episodic_dp.analysis import sweeps
from episodic_dp.cli import app
from episodic_dp.cli import shared_flags
from episodic_dp.config import RunConfig
from episodic_dp.output import files
from episodic_dp.output import phases


def define_flags() -> None:
  """Define the flags of the config and of the results."""
  shared_flags.define_config(required=False)
  shared_flags.define_data(download=False)
  shared_flags.define_format()
  flags.DEFINE_list(
      "sweep", [], f"Curves to draw: {', '.join(sweeps.SWEEPS)}."
  )
  shared_flags.define_out(
      "Folder for sweep_NAME.png and sweep_NAME.json.", "runs/sweeps"
  )
  flags.DEFINE_string(
      "statement",
      None,
      "File (.json) for the privacy statement of the config.",
  )
  flags.DEFINE_list(
      "ledger",
      [],
      "Instead of --config: work directories, statements or ledgers (.json) on"
      " the same people, to be composed.",
  )
  flags.DEFINE_list(
      "same_level",
      [],
      "Levels whose units are the same in all of --ledger, where their trees"
      " differ.",
  )
  flags.DEFINE_float(
      "delta", None, "Of --ledger, where the statements' own is not wanted."
  )
  flags.DEFINE_integer(
      "group", 1, "How many units are added or removed together.", 1
  )
  flags.DEFINE_string(
      "curve",
      None,
      "Folder for LEVEL.csv and LEVEL.png, the curve of epsilon and delta.",
  )


def main(argv: Sequence[str]) -> None:
  """Prints the guarantees; writes the statement and the curves asked for."""
  del argv
  values = flags.FLAGS
  if bool(values.ledger) == (values.config is not None):
    app.fail(
        "give --config=NAME for what a config costs, or --ledger=DIR,DIR for"
        " what several runs cost together"
    )
  if values.ledger:
    _account_ledgers(values)
  else:
    _account_config(values)


def _account_ledgers(values: flags.FlagValues) -> None:
  """Print what --ledger costs together."""
  for name in ("sweep", "out", "statement", "data_dir", "curve"):
    if values[name].present:
      app.fail(f"--{name} is of one config: leave it out with --ledger")
  with phases.phase("composing the runs"):
    result = study.account(
        values.ledger,
        delta=values.delta,
        group=values.group,
        same_levels=values.same_level,
    )
  if values.format == "json":
    print(json.dumps(result, indent=2, allow_nan=False))
  else:
    print(study.table(result))


def _check_folders(values: flags.FlagValues) -> None:
  """RunError where the folder of the curves or sweeps takes no file."""
  if values.curve is not None:
    files.check_folder(values.curve, "--curve")
  if values.sweep:
    files.check_folder(values.out)


def _say(text: str, values: flags.FlagValues) -> None:
  """Prints lines after the table; JSON stays the only thing that is printed."""
  if values.format == "json":
    for line in text.splitlines():
      logging.info("%s", line)
  else:
    print(f"\n{text}")


def _account_config(values: flags.FlagValues) -> None:
  """Prints what --config costs."""
  if values.delta is not None or values.same_level:
    app.fail(
        "--delta and --same_level are of --ledger: set --config.delta for the"
        " config"
    )
  if values["out"].present and not values.sweep:
    app.fail(
        f"--out={values.out} is the folder of --sweep: give"
        " --sweep=steps,noise_multiplier too, or leave it out"
    )
  sweeps.check_names(values.sweep)
  config = RunConfig.parse(values.config, data_dir=values.data_dir)
  _check_folders(values)
  with phases.phase("computing the guarantees"):
    result = costs.account(config)
  ledger = accounting.Ledger.from_dict(result)
  if values.format == "json":
    print(json.dumps(result, indent=2, allow_nan=False))
  else:
    print(costs.table(result))
    if config.target_epsilon is not None:
      print(f"\n{calibration.calibrate(config).sentence()}")
  if values.group > 1:
    # JSON is the statement, which is about one unit, and is left whole.
    _say(
        study.group_table(ledger, delta=config.delta, group=values.group),
        values,
    )
  if values.statement is not None:
    files.write_json(values.statement, result)
  if values.curve is not None:
    # Lazy import: a table alone need not wait for matplotlib.
    from episodic_dp.analysis import privacy_curves

    sentences = privacy_curves.write(
        ledger, values.curve, levels=ledger.levels, group=values.group
    )
    _say("\n".join(sentences), values)
  for name in values.sweep:
    data = sweeps.sweep(name, config, result)
    logging.info("wrote %s", sweeps.write(data, values.out))
