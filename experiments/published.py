"""Table 3 of "Meta-Learning with Differential Privacy" ([M]), and its epsilon.

[M] claims (1.5, 1e-6) for a task by the moments accountant, which assumes
Poisson sampling of tasks; its Algorithm 1 samples a random subset of fixed
size.
"""

from collections.abc import Mapping
import functools
from typing import Any

from episodic_dp import plan
from experiments.evidence import errata

EPSILON, LOT = 1.5, 1600
NAMES = {
    "omniglot": "Omniglot",
    "cifar_fs": "CIFAR-FS",
    "mini_imagenet": "mini-ImageNet",
}
# (data, way, shot) -> accuracy in percent of MAML and of DP-MAML.
TABLE3 = {
    ("omniglot", 5, 1): (99.5, 93.9),
    ("omniglot", 20, 1): (96.4, 88.0),
    ("cifar_fs", 5, 1): (61.0, 48.1),
    ("cifar_fs", 5, 5): (78.6, 58.2),
    ("mini_imagenet", 5, 1): (51.9, 32.7),
    ("mini_imagenet", 5, 5): (69.8, 45.8),
}
_TASKS = {"omniglot": 400_000, "cifar_fs": 400_000, "mini_imagenet": 100_000}


def task(data: str, way: int, shot: int) -> str:
  """Return the name of a cell, such as "Omniglot 5-way 1-shot"."""
  return f"{NAMES.get(data, data)} {way}-way {shot}-shot"


def cell(row: Mapping[str, Any]) -> tuple[str, int, int]:
  """Return the key of `TABLE3` of a row or of labels."""
  return row["data"], row["way"], row["shot"]


@functools.cache
def epsilon(data: str, *, poisson: bool) -> float:
  """Return the true epsilon of a published run at its claimed delta.

  One pass over all training tasks, noise multiplier 1.

  Args:
    data: name of the data set.
    poisson: whether tasks are sampled by Poisson; otherwise without
      replacement, as in the paper's algorithm.
  """
  tasks = _TASKS[data]
  stage = plan.Poisson(LOT / tasks) if poisson else plan.FixedSize(LOT)
  return errata.epsilon(tasks, stage, tasks // LOT).epsilon
