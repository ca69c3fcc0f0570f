"""The network, the learner and the optimiser that a config names."""

from collections.abc import Callable
import dataclasses
import functools
from typing import Any

import optax

from episodic_dp import learners
from episodic_dp import models
from episodic_dp.config.run_config import RunConfig
from episodic_dp.training import errors

_SUPERVISED = "supervised"
_OPTIMIZERS = {"adam": optax.adam, "sgd": optax.sgd}
_Shape = tuple[int, int, int]


def make_model(
    config: RunConfig, image_shape: _Shape, *, way: int | None = None
) -> models.Model:
  """The network of `config.model.name`: conv4, or mlp with `widths`.

  It has `way` logits; for None what the config's learner needs: a logit for
  every class of a task, the features alone for a closed form, or for supervised
  learning `config.model.outputs`, the number of training classes. An mlp gives
  `config.model.outputs` numbers wherever that is set and `way` is not.

  Raises:
    RunError: an unknown name, or no `outputs` where they are needed.
  """
  options, learner = config.model, config.learner.name
  if options.name not in ("conv4", "mlp"):
    raise errors.RunError(f"model.name={options.name!r} must be conv4 or mlp")
  outputs, is_mlp = way, options.name == "mlp"
  if way is None:
    if is_mlp or learner == _SUPERVISED:
      outputs = options.outputs
    if learner == _SUPERVISED and outputs is None:
      raise errors.RunError(
          "config.model.outputs is missing: set it to the number of training"
          " classes, which learner.name='supervised' tells apart"
      )
    if outputs is None and (is_mlp or learner not in HEADLESS):
      outputs = config.way
  if is_mlp:
    assert outputs is not None
    return models.mlp(outputs, options.widths, image_shape)
  return models.conv4(
      outputs,
      width=options.width,
      norm=options.norm,
      input_shape=image_shape,
      library=options.library,
  )


def make_learner(config: RunConfig, image_shape: _Shape) -> learners.Learner:
  """The learner that `config.learner` names, on `make_model`.

  `config.learner.name` is one of maml, anil, meta_sgd, reptile, protonet, ridge
  and supervised (for a config without an episode). The first four read
  `inner_steps` and `inner_rate`, the first three also `order` and the switches
  of MAML++: `per_step_norm`, `learned_rates` (not meta_sgd) and
  `multi_step_loss`, the number of outer steps after which the last inner step's
  loss counts alone (0: from the beginning). ridge reads `ridge` and
  `ridge_scale`, their initial values. `config.episode.way` of 1 is regression,
  with squared error, for the first three and reptile.

  Raises:
    RunError: an unknown name, or a switch that the learner does not have.
  """
  options = config.learner
  if options.name not in _LEARNERS:
    raise errors.RunError(
        f"learner.name={options.name!r} must be one of {sorted(_LEARNERS)}"
    )
  kind = _LEARNERS[options.name]
  for switch in _SWITCHES:
    value = getattr(options, switch)
    if value and switch not in kind.switches:
      raise errors.RunError(
          f"learner.{switch}={value} is not read by"
          f" learner.name={options.name!r}: leave it out"
      )
  if config.way == 1 and not kind.regression:
    raise errors.RunError(
        f"learner.name={options.name!r} tells classes apart, and way 1 is"
        " regression: use maml"
    )
  return kind.make(config, make_model(config, image_shape))


def check_learner(config: RunConfig) -> None:
  """Refuses a learner of tasks without any, and one of examples with some.

  Raises:
    RunError, PlanError: one sentence.
  """
  name, episode = config.learner.name, config.release.plan.episode
  if episode is None and name != _SUPERVISED:
    raise errors.RunError(
        f"config.episode is missing and learner.name={name!r} learns from"
        " tasks: set way, shot and query, or learner.name=supervised"
        " (episodic_dp/config/presets/glyphs_supervised.py shows the rest)"
    )
  if name == _SUPERVISED:
    if episode is not None:
      raise errors.RunError(
          "learner.name='supervised' learns single examples and config.episode"
          " asks for tasks: leave the episode out, or use another learner"
      )
    assert config.way  # PlanError where the config does not say.


def make_evaluation_learner(
    config: RunConfig, learner: learners.Learner, image_shape: _Shape
) -> learners.Learner:
  """What validation and test tasks are given to.

  The learner itself; or, where it adapts to nothing, fine-tuning with a head of
  its own for every task.
  """
  if config.learner.name != _SUPERVISED:
    return learner
  return make_fine_tuning(
      make_model(config, image_shape, way=config.way),
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
  """A cosine from `optimizer.rate` to `final_rate` over the steps.

  Raises:
    RunError: the rate is not positive, or rises.
  """
  options = config.optimizer
  if not (options.rate > 0 and 0 <= options.final_rate <= options.rate):
    raise errors.RunError(
        f"optimizer.rate={options.rate} and final_rate={options.final_rate}:"
        " the rate must be positive and must not rise"
    )
  return optax.cosine_decay_schedule(
      options.rate, steps, alpha=options.final_rate / options.rate
  )


def make_optimizer(
    config: RunConfig, steps: int
) -> optax.GradientTransformation:
  """Adam or SGD with `make_schedule`.

  Raises:
    RunError: an unknown name, or a wrong rate.
  """
  name = config.optimizer.name
  if name not in _OPTIMIZERS:
    raise errors.RunError(
        f"optimizer.name={name!r} must be one of {sorted(_OPTIMIZERS)}"
    )
  return _OPTIMIZERS[name](make_schedule(config, steps))


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
  return learners.ProtoNet(model, way=config.way)


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


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Kind:
  """What is known of a learner.

  Attributes:
    make: from the config and the network.
    switches: the pieces of MAML++ that it takes.
    regression: whether it also learns numbers (way 1).
    headless: whether its network ends in features: the rest is a closed form.
  """

  make: Callable[[RunConfig, models.Model], learners.Learner]
  switches: tuple[str, ...] = ()
  regression: bool = False
  headless: bool = False


_SWITCHES = ("learned_rates", "per_step_norm", "multi_step_loss")
_LEARNERS = {
    "maml": _Kind(
        make=functools.partial(_maml, learners.MAML),
        switches=_SWITCHES,
        regression=True,
    ),
    "anil": _Kind(
        make=functools.partial(_maml, learners.ANIL),
        switches=_SWITCHES,
        regression=True,
    ),
    "meta_sgd": _Kind(
        make=functools.partial(_maml, learners.MetaSGD),
        switches=("per_step_norm", "multi_step_loss"),
        regression=True,
    ),
    "reptile": _Kind(make=_reptile, regression=True),
    "protonet": _Kind(make=_protonet, headless=True),
    "ridge": _Kind(make=_ridge, headless=True),
    _SUPERVISED: _Kind(make=_supervised),
}
HEADLESS = tuple(name for name, kind in _LEARNERS.items() if kind.headless)
