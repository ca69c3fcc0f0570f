"""The learner and the optimizer that a config names."""

import optax

from episodic_dp import _validate
from episodic_dp import learners
from episodic_dp import options
from episodic_dp.config import networks
from episodic_dp.config.run_config import RunConfig
from episodic_dp.learners import naming
from episodic_dp.private import state as state_lib

_Shape = tuple[int, ...]


def make_learner(config: RunConfig, image_shape: _Shape) -> learners.Learner:
  """Build the learner of `config.learner` on `networks.make_model`."""
  supervised = config.learner.name == options.SUPERVISED
  return naming.by_name(
      config.learner,
      networks.make_model(config, image_shape),
      way=None if supervised else config.way,
  )


def make_evaluation_learner(
    config: RunConfig, learner: learners.Learner, image_shape: _Shape
) -> learners.Learner:
  """Build the learner of validation and test tasks.

  It is the learner itself; or, for a learner of examples, fine-tuning with a
  new head for every task.
  """
  if config.learner.name != options.SUPERVISED:
    return learner
  return naming.make_fine_tuning(
      networks.make_model(config, image_shape, way=config.way),
      config.fine_tuning,
  )


def make_optimizer(
    config: RunConfig, steps: int
) -> optax.GradientTransformation:
  """Build Adam or SGD with a cosine schedule, and the average of its iterates.

  Raises:
    PlanError: the warm-up leaves no step.
  """
  chosen = config.optimizer
  if chosen.warm_up >= steps:
    raise _validate.refusal(
        "config.optimizer.warm_up", chosen.warm_up, f"less than {steps} steps"
    )
  schedule = optax.cosine_decay_schedule(
      chosen.rate, steps, alpha=chosen.final_rate / chosen.rate
  )
  if chosen.warm_up:
    schedule = optax.warmup_cosine_decay_schedule(
        0.0, chosen.rate, chosen.warm_up, steps, chosen.final_rate
    )
  moments = {"b1": chosen.momentum, "b2": chosen.second_momentum}
  if chosen.name == "sgd":
    moments = {"momentum": chosen.momentum}
  optimizer = naming.OPTIMIZERS[chosen.name](
      schedule, **{k: v for k, v in moments.items() if v is not None}
  )
  if not chosen.average:
    return optimizer
  return state_lib.averaged(optimizer, chosen.average)
