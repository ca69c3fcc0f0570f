"""Samplers of examples, and the tasks made from their samples.

`sample` reads the same `plan` objects as the accountant: what is accounted is
what is sampled. It runs on the accelerator. `numpy_sampler` is for programs
without JAX, so this package imports JAX on first use only.
"""

import importlib
from typing import Any, TYPE_CHECKING

__all__ = [
    "EpisodeBatch",
    "make_episode",
    "numpy_sampler",
    "sample",
    "synthetic_participants",
    "task_indices",
]

if TYPE_CHECKING:
  from episodic_dp.sampling import numpy_sampler as numpy_sampler
  from episodic_dp.sampling.episodes import EpisodeBatch as EpisodeBatch
  from episodic_dp.sampling.episodes import make_episode as make_episode
  from episodic_dp.sampling.episodes import task_indices as task_indices
  from episodic_dp.sampling.sampler import sample as sample
  from episodic_dp.sampling.synthetic import (
      synthetic_participants as synthetic_participants,
  )

_MODULES = {
    "EpisodeBatch": "episodes",
    "make_episode": "episodes",
    "sample": "sampler",
    "synthetic_participants": "synthetic",
    "task_indices": "episodes",
}


def __getattr__(name: str) -> Any:
  if name not in __all__:
    raise AttributeError(f"module 'episodic_dp.sampling' has no '{name}'")
  module = importlib.import_module(
      f"episodic_dp.sampling.{_MODULES.get(name, name)}"
  )
  if name not in _MODULES:
    return module
  return getattr(module, name)


__dir__ = __all__.copy
