"""The description of a training run."""

from collections.abc import Mapping
import dataclasses
from typing import Any

import jax
import optax

from episodic_dp import _validate
from episodic_dp import backends
from episodic_dp import learners
from episodic_dp import plan as plan_lib
from episodic_dp import private
from episodic_dp.data import dataset as dataset_lib
from episodic_dp.errors import RunError
from episodic_dp.private import checks
from episodic_dp.private import sharding
from episodic_dp.training import evaluation


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class TrainingSpec:
  """Everything that determines a training run.

  Attributes:
    train: the data that tasks are sampled from.
    validation: fixed tasks of public classes (`sample_tasks`); None for a run
      without validation, which has no best checkpoints.
    release: sampling plan and mechanism of a step, with the hierarchy of
      `train`.
    learner: MAML or another learner.
    optimizer: the outer optimiser, including its schedule.
    steps: number of steps, at least 1.
    delta: delta of the guarantees, between 0 and 1.
    privacy_unit: the level whose epsilon is reported during the run; None for
      the first that has a guarantee. The result has all levels.
    seed: public seed of the initial parameters.
    private_seed: None for a secret key. An integer makes the run reproducible,
      and its guarantee void for anyone who knows the number.
    compute: settings of the computation and its devices.
    evaluate_every: steps between validations, each with a checkpoint.
    checkpoint_every: steps between checkpoints.
    evaluator: measures the learner; None makes one for it.
    config: JSON-able description, compared when the run is resumed.

  Raises:
    PlanError: on construction, a number of steps that is not positive.
    PlanError: the release has no such privacy unit.
    PlanError: the release's hierarchy differs from the data's.
  """

  train: dataset_lib.Dataset
  release: plan_lib.Release
  learner: learners.Learner
  optimizer: optax.GradientTransformation
  steps: int
  delta: float
  validation: evaluation.Tasks | None = None
  privacy_unit: str | None = None
  seed: int = 0
  private_seed: int | None = None
  compute: private.Compute = dataclasses.field(
      default_factory=private.Compute
  )
  evaluate_every: int = 25
  checkpoint_every: int = 25
  evaluator: evaluation.Evaluator | None = None
  config: Mapping[str, Any] = dataclasses.field(default_factory=dict)

  def __post_init__(self) -> None:
    for name in ("steps", "evaluate_every", "checkpoint_every"):
      _validate.count(name, getattr(self, name), 1)
    if self.privacy_unit is not None:
      self.release.hierarchy.level_index(self.privacy_unit)
    checks.check_tree(self.train, self.release)


def make_mesh(devices: int | None = None) -> jax.sharding.Mesh:
  """Return a mesh of one axis, `tasks`, for `private.Compute(mesh=...)`.

  Args:
    devices: number of devices of all processes, where every core of a CPU is
      one; None for all.

  Raises:
    RunError: there are fewer, or some process would have none.
  """
  if devices is None:
    backends.warn_of_idle_cores()
    return sharding.make_mesh(jax.devices())
  backends.ask_for_cores()
  there = jax.devices()
  least = 1
  if jax.process_count() > 1:
    least = len(there)  # A process without a device could not take part.
  if not least <= devices <= len(there):
    raise RunError(
        f"devices={devices}: expected {least} to {len(there)}, or None for all"
        f" that JAX sees; in a command, --config.compute.devices={len(there)}"
    )
  return sharding.make_mesh(there[:devices])
