"""Differentially private meta-learning in JAX.

A private run is described once, as plain data (`episodic_dp.plan`), and read
twice: by the sampler and the training step (`sampling`, `private`), and by the
accountant (`accounting`). The parts are loaded on first use, so that computing
a guarantee never imports JAX.
"""

import importlib
from typing import Any, TYPE_CHECKING

from episodic_dp._version import __version__

if TYPE_CHECKING:  # For editors and type checkers alone.
  from episodic_dp.backends import use_all_cores
  from episodic_dp.estimator import FewShotClassifier

__all__ = [
    "FewShotClassifier",
    "__version__",
    "accounting",
    "auditing",
    "data",
    "export",
    "learners",
    "models",
    "plan",
    "private",
    "sampling",
    "training",
    "use_all_cores",
]

_PLACES = {
    "FewShotClassifier": "episodic_dp.estimator",
    "use_all_cores": "episodic_dp.backends",
}


def __getattr__(name: str) -> Any:
  if name in _PLACES:
    return getattr(importlib.import_module(_PLACES[name]), name)
  if name in __all__:
    return importlib.import_module(f"episodic_dp.{name}")
  raise AttributeError(f"module 'episodic_dp' has no attribute '{name}'")


__dir__ = __all__.copy
