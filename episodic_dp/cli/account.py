"""Print the guarantees of a config, without running it and without JAX.

  episodic-dp account --config=glyphs
  episodic-dp account --config=omniglot \\
      --config.steps=1000 --delta=1e-7 --format=json

The command prints one guarantee for every level of the hierarchy that has one,
with its rate, its distance and its assumptions. For each other level it prints
the reason why there is none.

With --format=json it also prints what any attacker gains: the largest
true-positive rate at a false-positive rate of 1 %, and the least Gaussian mu.

Plot epsilon over delta and the attackers' rates for every level, and write the
curves as JSON:

  episodic-dp account --config=glyphs --sweep=delta --out=DIR

--statement=FILE writes the privacy statement of the config, the JSON that
`episodic-dp verify FILE` computes again.

Account for k units of each level that are added or removed together:

  episodic-dp account --config=glyphs --group=5

Account for several runs on the same people together. Name their work
directories, or their statements or ledgers as JSON. The runs have one epsilon
for every level at which their units are the same:

  episodic-dp account --ledger=WORKDIR,WORKDIR
"""

import pathlib

from absl import flags
from absl import logging

from episodic_dp.analysis import costs
from episodic_dp.cli import app
from episodic_dp.cli import shared_flags
from episodic_dp.output import files
from episodic_dp.output import phases


def define_flags() -> None:
  """Define the flags of the config and of the results."""
  shared_flags.define_config(required=False)
  shared_flags.define_data(download=False)
  shared_flags.define_format()
  flags.DEFINE_enum(
      "sweep", None, ["delta"], "Plot epsilon of every level over delta."
  )
  shared_flags.define_out(
      "Folder for sweep_delta.png and sweep_delta.json.", "runs/sweeps"
  )
  flags.DEFINE_string(
      "statement",
      None,
      "File (.json) for the privacy statement of the config.",
  )
  flags.DEFINE_list(
      "ledger",
      [],
      "Instead of --config: work directories, statements or ledgers (.json) of"
      " runs on the same people, to compose.",
  )
  flags.DEFINE_list(
      "same_level",
      [],
      "Levels whose units are the same in all of --ledger, if their trees"
      " differ.",
  )
  flags.DEFINE_integer(
      "group", 1, "Number of units that are added or removed together.", 1
  )


def main(values: flags.FlagValues) -> None:
  """Print the guarantees; write the statement and the curves."""
  if bool(values.ledger) == (values.config is not None):
    app.fail(
        "give --config=NAME for the cost of a config"
        " (--config=own_data:levels=LEVEL/LEVEL for data of your own), or"
        " --ledger=DIR,DIR for that of several runs together"
    )
  how, refused = "with", ["same_level"]
  if values.ledger:
    how = "without"
    refused = ["sweep", "out", "statement", "data_dir", "config.FIELD"]
  for name in refused:
    if values[name].present:
      app.fail(f"--{name} goes {how} --ledger: leave it out")
  if not values.ledger:
    _account_config(values)
    return
  with phases.phase("composing the runs"):
    result = costs.account_runs(
        values.ledger,
        delta=values.delta,
        group=values.group,
        same_levels=values.same_level,
    )
  shared_flags.show(result, costs.runs_table(result))


def _account_config(values: flags.FlagValues) -> None:
  """Print the guarantees of --config."""
  config = shared_flags.run(values)
  if values.sweep:
    files.check_folder(values.out)
  with phases.phase("computing the guarantees"):
    result = costs.account(config, attacks=values.format == "json")
  text = costs.table(config, result)
  if values.group > 1:
    text += "\n\n" + costs.group_table(config, values.group)
  shared_flags.show(result, text)
  if values.sweep:
    with phases.phase("computing epsilon over delta"):
      data = costs.curve(config, result)
    # Lazy imports: without a picture, an account needs no Matplotlib.
    from episodic_dp.analysis import inspection
    from episodic_dp.output import plotting

    figure = inspection.draw_curve(data)
    path = pathlib.Path(values.out) / "sweep_delta.png"
    files.write_json(path.with_suffix(".json"), data)
    plotting.save(figure, path)
    logging.info("wrote %s", path)
  if values.statement is not None:
    files.write_json(values.statement, result)
