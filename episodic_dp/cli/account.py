"""The guarantees of a config, without running it and without JAX.

  episodic-dp account --config=glyphs
  episodic-dp account --config=omniglot \\
      --config.steps=1000 --config.delta=1e-7 --format=json

One guarantee is printed for every level of the hierarchy that has one, with the
rates and distances that it rests on and the sentences that it assumes; levels
without a guarantee say why. With --config.target_epsilon=E it is that of the
steps which training would take.

Curves around the config, each as a picture and as JSON, with its own point
marked; `comparison` sets the printed theorem beside what is true:

  episodic-dp account --config=glyphs \\
      --sweep=steps,noise_multiplier,tasks,stages,comparison --out=DIR

A privacy statement (--format=json, --statement=FILE, or the guarantee.json of a
run) is computed again from what it says was run; the exit status is 1 where it
does not hold:

  episodic-dp account --verify=WORKDIR/guarantee.json
"""

from collections.abc import Sequence
import json

from absl import flags
from absl import logging
from ml_collections import config_flags

from episodic_dp.analysis import costs
from episodic_dp.analysis import sweep_plots
from episodic_dp.analysis import sweeps
from episodic_dp.cli import app
from episodic_dp.cli import verify
from episodic_dp.config import own_data
from episodic_dp.output import files

_CONFIG = config_flags.DEFINE_config_file(
    "config", None, "A file of episodic_dp/config/presets/.", lock_config=True
)
_FORMAT = flags.DEFINE_enum(
    "format", "table", ("table", "json"), "How the guarantees are printed."
)
_DATA_DIR = flags.DEFINE_string(
    "data_dir", None, "Your own data (own_data.py), whose sizes are listed."
)
_SWEEP = flags.DEFINE_list(
    "sweep", [], f"Curves to draw: {', '.join(sweeps.SWEEPS)}."
)
_OUT = flags.DEFINE_string(
    "out", "runs/sweeps", "Folder for sweep_NAME.png and sweep_NAME.json."
)
_STATEMENT = flags.DEFINE_string(
    "statement", None, "File (.json) for the privacy statement of the config."
)
_VERIFY = flags.DEFINE_string(
    "verify", None, "A privacy statement (.json) to compute again."
)


def main(argv: Sequence[str]) -> None:
  del argv
  if (_CONFIG.value is None) == (_VERIFY.value is None):
    app.fail(
        "give either --config=FILE, to account for it, or --verify=FILE, to"
        " compute a statement again"
    )
  if _VERIFY.value is not None:
    verify.run(_VERIFY.value)
    return
  sweeps.check_names(_SWEEP.value)
  config = own_data.with_hierarchy(_CONFIG.value, _DATA_DIR.value)
  result = costs.account(config)
  if _FORMAT.value == "json":
    print(json.dumps(result, indent=2, allow_nan=False))
  else:
    print(costs.table(result))
  if _STATEMENT.value is not None:
    files.write_json(_STATEMENT.value, result)
  for name in _SWEEP.value:
    data = sweeps.sweep(name, config, result)
    logging.info("wrote %s", sweep_plots.write(data, _OUT.value))
