"""The guarantees of a config, without running it and without JAX.

  python -m experiments.account --config=experiments/configs/glyphs.py
  python -m experiments.account --config=experiments/configs/omniglot.py \\
      --config.steps=1000 --config.delta=1e-7 --format=json

One guarantee is printed for every level of the hierarchy that has one, with the
rates and distances that it rests on and the sentences that it assumes; levels
without a guarantee say why. With --config.target_epsilon=E it is that of the
steps which training would take. With --sweep=FILE.png a picture of epsilon over
the steps is drawn as well.
"""

from collections.abc import Sequence
import json

from absl import flags
from ml_collections import config_flags

from experiments import cli
from experiments import costs

_CONFIG = config_flags.DEFINE_config_file(
    "config", None, "A file of experiments/configs/.", lock_config=True
)
flags.mark_flag_as_required("config")
_FORMAT = flags.DEFINE_enum(
    "format", "table", ("table", "json"), "How the guarantees are printed."
)
_SWEEP = flags.DEFINE_string(
    "sweep", None, "File (.png) for a picture of epsilon over the steps."
)


def main(argv: Sequence[str]) -> None:
  del argv
  result = costs.account(_CONFIG.value)
  if _SWEEP.value is not None:
    costs.draw(costs.sweep(_CONFIG.value, result), _SWEEP.value)
  if _FORMAT.value == "json":
    print(json.dumps(result, indent=2, allow_nan=False))
  else:
    print(costs.table(result))


if __name__ == "__main__":
  cli.run(main)
