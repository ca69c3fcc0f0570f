"""Learners by name, as a config or an exported model writes them."""

from typing import Any

import optax

from episodic_dp import options
from episodic_dp.learners import anil
from episodic_dp.learners import fine_tuning
from episodic_dp.learners import learner as learner_lib
from episodic_dp.learners import losses
from episodic_dp.learners import maml
from episodic_dp.learners import meta_sgd
from episodic_dp.learners import multi_step
from episodic_dp.learners import protonet
from episodic_dp.learners import reptile
from episodic_dp.learners import ridge as ridge_lib
from episodic_dp.learners import supervised
from episodic_dp.models import model as model_lib

OPTIMIZERS = {"adam": optax.adam, "sgd": optax.sgd}
"""The optimisers of `make_fine_tuning` by name: rate -> optimiser."""
_DESCENDING: dict[str, type[maml.MAML]] = {
    "maml": maml.MAML,
    "anil": anil.ANIL,
    "meta_sgd": meta_sgd.MetaSGD,
}


def by_name(
    learner: options.Learner, model: model_lib.Model, *, way: int | None
) -> learner_lib.BaseLearner:
  """Build a learner.

  Args:
    learner: its settings.
    model: the network.
    way: classes of a task; 1 is regression with squared error. None for
      supervised.

  Raises:
    ValueError: a setting is out of range.
  """
  # Closed forms separate classes, and refuse a task without any.
  classes = way or 0
  if learner.name == options.SUPERVISED:
    return supervised.Supervised(model)
  if learner.name == "protonet":
    return protonet.ProtoNet(
        model, way=classes, metric=learner.metric, scale=learner.metric_scale
    )
  if learner.name == "ridge":
    return ridge_lib.RidgeHead(
        model, way=classes, ridge=learner.ridge, scale=learner.ridge_scale
    )
  inner: dict[str, Any] = dict(
      inner_steps=learner.inner_steps, inner_rate=learner.inner_rate
  )
  if way == 1:
    inner["task_loss"] = losses.squared_error
  if learner.name == "reptile":
    return reptile.Reptile(model, **inner)
  weights = None
  if learner.multi_step_loss:
    weights = multi_step.annealed(
        learner.inner_steps, learner.multi_step_loss
    )
  return _DESCENDING[learner.name](
      model,
      **inner,
      order=learner.order,
      learned_rates=learner.learned_rates,
      per_step_norm=learner.per_step_norm,
      loss_weights=weights,
  )


def make_fine_tuning(
    model: model_lib.Model,
    settings: options.FineTuning,
    *,
    fresh_head: bool = True,
) -> fine_tuning.FineTuning:
  """Build fine-tuning.

  Args:
    model: the network, with as many logits as a task has classes.
    settings: its optimizer and steps.
    fresh_head: begin with a head of zeros.
  """
  return fine_tuning.FineTuning(
      model,
      inner_steps=settings.steps,
      optimizer=OPTIMIZERS[settings.optimizer](settings.rate),
      body=settings.body,
      fresh_head=fresh_head,
  )
