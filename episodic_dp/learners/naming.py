"""Learners of their options."""

from episodic_dp import options
from episodic_dp.learners import fine_tuning
from episodic_dp.learners import learner as learner_lib
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
  kind = options.LEARNERS[learner.name].load()
  return kind.of_options(model, learner, way)


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
  # Lazy import: a metric learner predicts without Optax.
  import optax

  return fine_tuning.FineTuning(
      model,
      inner_steps=settings.steps,
      optimizer=getattr(optax, settings.optimizer)(settings.rate),
      body=settings.body,
      fresh_head=fresh_head,
  )
