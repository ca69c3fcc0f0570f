"""Learners by name, with their papers and their released vectors."""

from typing import Any

import optax

from episodic_dp import options
from episodic_dp.learners import fine_tuning
from episodic_dp.learners import heads
from episodic_dp.learners import learner as learner_lib
from episodic_dp.learners import maml
from episodic_dp.learners import reptile
from episodic_dp.models import model as model_lib


def make_learner(
    learner: options.LearnerOptions, model: model_lib.Model, *, way: int
) -> learner_lib.Learner:
  """Build a learner from its options.

  Args:
    learner: its options.
    model: the network.
    way: classes of a task; 1 is regression with squared error.

  Raises:
    PlanError: a setting is out of range.
  """
  if learner.name == options.SUPERVISED:
    return learner_lib.Supervised(model)
  # Closed forms separate classes, so they refuse regression.
  closed: dict[str, Any] = dict(way=way, rotate_support=learner.rotate_support)
  if learner.name == "protonet":
    return heads.ProtoNet(model, **closed, scale=learner.metric_scale)
  if learner.name == "ridge":
    return heads.RidgeHead(
        model, **closed, ridge=learner.ridge, scale=learner.ridge_scale
    )
  inner: dict[str, Any] = dict(
      inner_steps=learner.inner_steps, inner_rate=learner.inner_rate
  )
  if way == 1:
    inner["task_loss"] = learner_lib.squared_error
  if learner.name == "reptile":
    return reptile.Reptile(model, **inner)
  loss_weights = None
  if learner.multi_step_loss:
    loss_weights = maml.annealed(learner.inner_steps, learner.multi_step_loss)
  descending: Any = LEARNERS[learner.name][0]
  return descending(
      model,
      **inner,
      order=learner.order,
      learned_rates=learner.learned_rates or learner.name == "meta_sgd",
      per_step_norm=learner.per_step_norm,
      loss_weights=loss_weights,
  )


def make_fine_tuning(
    model: model_lib.Model,
    settings: options.FineTuningOptions,
    *,
    fresh_head: bool = True,
) -> fine_tuning.FineTuning:
  """Build fine-tuning from its options.

  Args:
    model: the network, with as many logits as a task has classes.
    settings: its optimizer and steps.
    fresh_head: whether to start with a head of zeros.
  """
  return fine_tuning.FineTuning(
      model,
      inner_steps=settings.steps,
      optimizer=getattr(optax, settings.optimizer)(settings.rate),
      body=settings.body,
      fresh_head=fresh_head,
  )


_GRADIENT = "the gradient of the query loss"
_Entries = dict[str, tuple[type[learner_lib.Learner], str, str, str]]
LEARNERS: _Entries = {
    "maml": (
        maml.MAML,
        "Finn et al., ICML 2017",
        "all weights, by gradient steps",
        _GRADIENT,
    ),
    "anil": (
        maml.ANIL,
        "Raghu et al., ICLR 2020",
        "the head, by gradient steps",
        _GRADIENT,
    ),
    "meta_sgd": (
        maml.MetaSGD,
        "Li et al., 2017",
        "all weights, by gradient steps with a learned rate each",
        _GRADIENT,
    ),
    "reptile": (
        reptile.Reptile,
        "Nichol et al., 2018",
        "all weights, by gradient steps",
        "the difference from the weights after the task's training",
    ),
    "protonet": (
        heads.ProtoNet,
        "Snell et al., NIPS 2017",
        "class means of embeddings, in closed form",
        _GRADIENT,
    ),
    "ridge": (
        heads.RidgeHead,
        "Bertinetto et al., ICLR 2019",
        "a linear head on embeddings, in closed form",
        _GRADIENT,
    ),
    "fine_tuning": (
        fine_tuning.FineTuning,
        "Chen et al., ICLR 2019",
        "all weights or the head, by an optimiser's steps",
        "",
    ),
}
"""Name -> class, paper, adapted parameters and released vector."""
