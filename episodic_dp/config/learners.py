"""The learner and the optimiser that a config names."""

import dataclasses
from typing import Any

import optax

from episodic_dp import errors
from episodic_dp import learners
from episodic_dp import models
from episodic_dp.config import learner_kinds
from episodic_dp.config import networks
from episodic_dp.config.run_config import RunConfig
from episodic_dp.private import averaging

_Shape = tuple[int, ...]


def make_learner(config: RunConfig, image_shape: _Shape) -> learners.Learner:
  """The learner that `config.learner` names, on `networks.make_model`.

  `learners.by_name` says which learner reads which field. `config.episode.way`
  of 1 is regression. What goes with what is checked by `learner_kinds`, before
  there are data.
  """
  name = config.learner.name
  return learners.by_name(
      model=networks.make_model(config, image_shape),
      way=None if name == learner_kinds.SUPERVISED else config.way,
      **dataclasses.asdict(config.learner),
  )


def make_evaluation_learner(
    config: RunConfig, learner: learners.Learner, image_shape: _Shape
) -> learners.Learner:
  """What validation and test tasks are given to.

  The learner itself; or, where it adapts to nothing, fine-tuning with a head of
  its own for every task.
  """
  if config.learner.name != learner_kinds.SUPERVISED:
    return learner
  return make_fine_tuning(
      networks.make_model(config, image_shape, way=config.way),
      **dataclasses.asdict(config.fine_tuning),
  )


def make_fine_tuning(
    model: models.Model, **options: Any
) -> learners.FineTuning:
  """`learners.make_fine_tuning`, of options that a config or flags give.

  Raises:
    RunError: one of them is wrong.
  """
  try:
    return learners.make_fine_tuning(model, **options)
  except ValueError as e:
    raise errors.RunError(str(e)) from e


def make_schedule(config: RunConfig, steps: int) -> optax.Schedule:
  """A cosine from `optimizer.rate` to `final_rate`, after the warm-up."""
  options = config.optimizer
  if options.warm_up:
    return optax.warmup_cosine_decay_schedule(
        0.0, options.rate, options.warm_up, steps, options.final_rate
    )
  return optax.cosine_decay_schedule(
      options.rate, steps, alpha=options.final_rate / options.rate
  )


def make_optimizer(
    config: RunConfig, steps: int
) -> optax.GradientTransformation:
  """Adam or SGD with `make_schedule`, whose iterates may be averaged."""
  options = config.optimizer
  if options.warm_up >= steps:
    raise errors.RunError(
        f"optimizer.warm_up={options.warm_up} leaves nothing of {steps} steps:"
        f" take fewer, such as --config.optimizer.warm_up={steps // 10}"
    )
  moments: dict[str, Any] = {"b1": options.momentum}
  if options.name == "sgd":
    moments = {"momentum": options.momentum}
  else:
    moments["b2"] = options.second_momentum
  optimizer = learners.OPTIMIZERS[options.name](
      make_schedule(config, steps),
      **{k: v for k, v in moments.items() if v is not None},
  )
  if not options.average:
    return optimizer
  return averaging.averaged(optimizer, options.average)
