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
marked; `comparison` sets the printed theorem beside what is true:

  episodic-dp account --config=glyphs \\
      --sweep=steps,noise_multiplier,tasks,stages,comparison --out=DIR

--statement=FILE writes the privacy statement of the config, the JSON that
`episodic-dp verify FILE` computes again.
"""

from collections.abc import Sequence
import json

from absl import flags
from absl import logging

from episodic_dp.analysis import calibration
from episodic_dp.analysis import costs
from episodic_dp.analysis import sweeps
from episodic_dp.cli import shared_flags
from episodic_dp.config import RunConfig
from episodic_dp.output import files


def define_flags() -> None:
  """Of the config, and of what is written about it."""
  shared_flags.define_config()
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


def main(argv: Sequence[str]) -> None:
  """Prints the guarantees; writes the statement and the curves asked for."""
  del argv
  values = flags.FLAGS
  sweeps.check_names(values.sweep)
  config = RunConfig.parse(values.config, data_dir=values.data_dir)
  result = costs.account(config)
  if values.format == "json":
    print(json.dumps(result, indent=2, allow_nan=False))
  else:
    print(costs.table(result))
    if config.target_epsilon is not None:
      print(f"\n{calibration.calibrate(config).sentence()}")
  if values.statement is not None:
    files.write_json(values.statement, result)
  if values.sweep:
    # Lazy import: a table alone need not wait for matplotlib.
    from episodic_dp.analysis import sweep_plots
  for name in values.sweep:
    data = sweeps.sweep(name, config, result)
    logging.info("wrote %s", sweep_plots.write(data, values.out))
