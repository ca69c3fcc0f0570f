"""Tables and figures that `experiments.reproduce` makes.

Each module of the folder has a dictionary `TARGETS`; `panels.Target` describes
the parts of a target.
"""

import importlib
from typing import Any

from episodic_dp import errors

SCALES = ("smoke", "cpu", "full")
# Module -> its targets.
_MODULES = {
    "table3": ("table3",),
    "frontier": ("frontier",),
    "comparisons": ("learners",),
    "sample_level": ("figure13_shots",),
    "writers": ("mnist_writers",),
    "dp_maml": (
        "figure4", "figure6a", "figure6b", "figure6c", "figure7", "figure9",
        "figure10", "figure11",
    ),
    "starts": ("figure13_starts",),
    "pairs": ("glyphs", "sinusoid", "stages"),
    "federated": ("pvi_adult",),
    "adaptation": ("adaptation",),
    "backbones": ("backbones",),
    "computed": ("figure12", "amplification", "table4"),
    "audited_plans": ("audited_plans",),
}
NAMES = tuple(name for names in _MODULES.values() for name in names)


def load(name: str) -> Any:
  """Return the target of that name, a `panels.Target`; import it only now.

  Raises:
    RunError: there is none.
  """
  for module, names in _MODULES.items():
    if name in names:
      return importlib.import_module(
          f"experiments.targets.{module}"
      ).TARGETS[name]
  raise errors.RunError(f"--target={name}: expected one of {', '.join(NAMES)}")
