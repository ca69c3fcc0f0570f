"""The learner and the optimiser that a config names."""

from collections.abc import Callable
import dataclasses
import functools
from typing import Any

import optax

from episodic_dp import learners
from episodic_dp import models
from episodic_dp.config import learner_kinds
from episodic_dp.config import networks
from episodic_dp.config.run_config import RunConfig
from episodic_dp.private import averaging
from episodic_dp.training import errors

_OPTIMIZERS = {"adam": optax.adam, "sgd": optax.sgd}
_Shape = tuple[int, ...]


def make_learner(config: RunConfig, image_shape: _Shape) -> learners.Learner:
  """The learner that `config.learner` names, on `networks.make_model`.

  `config.learner.name` is one of maml, anil, meta_sgd, reptile, protonet, ridge
  and supervised (for a config without an episode). The first four read
  `inner_steps` and `inner_rate`, the first three also `order` and the switches
  of MAML++: `per_step_norm`, `learned_rates` (not meta_sgd) and
  `multi_step_loss`, the number of outer steps after which the last inner step's
  loss counts alone (0: from the beginning). ridge reads `ridge` and
  `ridge_scale`, their initial values. `config.episode.way` of 1 is regression,
  with squared error, for the first three and reptile. What goes with what is
  checked by `learner_kinds`, before there are data.
  """
  make = _MAKERS[config.learner.name]
  return make(config, networks.make_model(config, image_shape))


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
    model: models.Model,
    *,
    steps: int = 30,
    rate: float = 0.1,
    body: bool = False,
    optimizer: str = "sgd",
    fresh_head: bool = True,
) -> learners.FineTuning:
  """Fine-tuning as `config.fine_tuning` describes it.

  Args:
    model: the network, with as many logits as a task has classes.
    steps: on the support set.
    rate: of these steps.
    body: train the whole network, not the head alone.
    optimizer: sgd or adam.
    fresh_head: begin with a head of zeros.

  Raises:
    RunError: one of them is wrong.
  """
  if optimizer not in _OPTIMIZERS or not rate > 0:
    raise errors.RunError(
        f"fine-tuning by optimizer={optimizer!r} with rate={rate}: choose"
        f" {' or '.join(sorted(_OPTIMIZERS))} and a positive rate"
    )
  if not isinstance(steps, int) or steps < 1:
    raise errors.RunError(
        f"fine-tuning steps={steps!r} must be a whole number of at least 1"
    )
  return learners.FineTuning(
      model,
      inner_steps=steps,
      optimizer=_OPTIMIZERS[optimizer](rate),
      body=body,
      fresh_head=fresh_head,
  )


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
  optimizer = _OPTIMIZERS[options.name](
      make_schedule(config, steps),
      **{k: v for k, v in moments.items() if v is not None},
  )
  if not options.average:
    return optimizer
  return averaging.averaged(optimizer, options.average)


# The learners by name ---------------------------------------------------------


def _inner_loop(config: RunConfig) -> dict[str, Any]:
  """What the learners that take inner steps have in common."""
  options = config.learner
  inner: dict[str, Any] = dict(
      inner_steps=options.inner_steps, inner_rate=options.inner_rate
  )
  if config.way == 1:
    inner["task_loss"] = learners.squared_error
  return inner


def _maml(
    cls: type[learners.MAML], config: RunConfig, model: models.Model
) -> learners.Learner:
  options = config.learner
  moving = options.multi_step_loss
  return cls(
      model,
      **_inner_loop(config),
      order=options.order,
      learned_rates=bool(options.learned_rates),
      per_step_norm=bool(options.per_step_norm),
      loss_weights=(
          learners.annealed(options.inner_steps, moving) if moving else None
      ),
  )


def _reptile(config: RunConfig, model: models.Model) -> learners.Learner:
  return learners.Reptile(model, **_inner_loop(config))


def _protonet(config: RunConfig, model: models.Model) -> learners.Learner:
  return learners.ProtoNet(
      model,
      way=config.way,
      metric=config.learner.metric,
      scale=config.learner.metric_scale,
  )


def _ridge(config: RunConfig, model: models.Model) -> learners.Learner:
  return learners.RidgeHead(
      model,
      way=config.way,
      ridge=config.learner.ridge,
      scale=config.learner.ridge_scale,
  )


def _supervised(config: RunConfig, model: models.Model) -> learners.Learner:
  del config
  return learners.Supervised(model)


_MAKERS: dict[str, Callable[[RunConfig, models.Model], learners.Learner]] = {
    "maml": functools.partial(_maml, learners.MAML),
    "anil": functools.partial(_maml, learners.ANIL),
    "meta_sgd": functools.partial(_maml, learners.MetaSGD),
    "reptile": _reptile,
    "protonet": _protonet,
    "ridge": _ridge,
    learner_kinds.SUPERVISED: _supervised,
}
