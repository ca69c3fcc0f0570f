"""Drawing examples, and the tasks made of them.

`sample` reads the same `plan` objects as the accountant: what is accounted is
what is drawn. It runs on the accelerator; `numpy_sampler` is for programs
without JAX, which this package therefore imports on first use.
"""

import importlib
from typing import Any, TYPE_CHECKING

__all__ = [
    "EpisodeBatch",
    "Examples",
    "make_episode",
    "numpy_sampler",
    "rotate_classes",
    "sample",
    "single_example",
    "synthetic_participants",
    "task_indices",
    "torch_sampler",
]

if TYPE_CHECKING:
  from episodic_dp.sampling import numpy_sampler as numpy_sampler
  from episodic_dp.sampling import torch_sampler as torch_sampler
  from episodic_dp.sampling.episodes import EpisodeBatch as EpisodeBatch
  from episodic_dp.sampling.episodes import Examples as Examples
  from episodic_dp.sampling.episodes import make_episode as make_episode
  from episodic_dp.sampling.episodes import rotate_classes as rotate_classes
  from episodic_dp.sampling.episodes import single_example as single_example
  from episodic_dp.sampling.episodes import task_indices as task_indices
  from episodic_dp.sampling.sampler import sample as sample
  from episodic_dp.sampling.synthetic import (
      synthetic_participants as synthetic_participants,
  )

_MODULES = {
    "EpisodeBatch": "episodes",
    "Examples": "episodes",
    "make_episode": "episodes",
    "rotate_classes": "episodes",
    "sample": "sampler",
    "single_example": "episodes",
    "synthetic_participants": "synthetic",
    "task_indices": "episodes",
}


def __getattr__(name: str) -> Any:
  if name in ("numpy_sampler", "torch_sampler"):
    return importlib.import_module(f"episodic_dp.sampling.{name}")
  if name in _MODULES:
    module = importlib.import_module(f"episodic_dp.sampling.{_MODULES[name]}")
    return getattr(module, name)
  raise AttributeError(f"module 'episodic_dp.sampling' has no '{name}'")


def __dir__() -> list[str]:
  return sorted({*globals(), *__all__})
