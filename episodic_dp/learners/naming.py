"""Learners by name, as a config or an exported model writes them."""

from collections.abc import Callable
import functools
from typing import Any, Literal

import optax

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


def by_name(
    name: str,
    model: model_lib.Model,
    *,
    way: int | None,
    inner_steps: int = 5,
    inner_rate: float = 0.1,
    order: learner_lib.Order = "second",
    learned_rates: bool = False,
    per_step_norm: bool = False,
    multi_step_loss: int = 0,
    ridge: float = 1.0,
    ridge_scale: float = 10.0,
    metric: Literal["euclidean", "cosine"] = "euclidean",
    metric_scale: float = 1.0,
) -> learner_lib.BaseLearner:
  """The learner of a name, of those settings that it reads.

  maml, anil and meta_sgd read `inner_steps`, `inner_rate`, `order` and the
  switches of MAML++: `per_step_norm`, `learned_rates` (not meta_sgd) and
  `multi_step_loss`; reptile reads the first two. ridge reads `ridge` and
  `ridge_scale`, their initial values, and protonet the `metric`.

  Args:
    name: maml, anil, meta_sgd, reptile, protonet, ridge or supervised.
    model: the network.
    way: the classes of a task; 1 is regression with squared error (the first
      four). None for supervised.
    inner_steps: gradient steps on a support set.
    inner_rate: of these steps.
    order: of the gradient through them.
    learned_rates: whether their rates are learned.
    per_step_norm: whether every inner step has norms of its own.
    multi_step_loss: the outer steps after which the last inner step's loss
      counts alone; 0 for from the beginning.
    ridge: of the closed form.
    ridge_scale: of its logits.
    metric: of prototypes.
    metric_scale: what it is multiplied by.

  Raises:
    ValueError: an unknown name, or a setting out of range.
  """
  inner: dict[str, Any] = dict(inner_steps=inner_steps, inner_rate=inner_rate)
  if way == 1:
    inner["task_loss"] = losses.squared_error

  def descending(cls: type[maml.MAML]) -> maml.MAML:
    return cls(
        model,
        **inner,
        order=order,
        learned_rates=bool(learned_rates),
        per_step_norm=bool(per_step_norm),
        loss_weights=(
            multi_step.annealed(inner_steps, multi_step_loss)
            if multi_step_loss
            else None
        ),
    )

  # The last two tell classes apart, of which there have to be some.
  classes = way or 0
  makers: dict[str, Callable[[], learner_lib.BaseLearner]] = {
      "maml": functools.partial(descending, maml.MAML),
      "anil": functools.partial(descending, anil.ANIL),
      "meta_sgd": functools.partial(descending, meta_sgd.MetaSGD),
      "reptile": lambda: reptile.Reptile(model, **inner),
      "supervised": lambda: supervised.Supervised(model),
      "protonet": lambda: protonet.ProtoNet(
          model, way=classes, metric=metric, scale=metric_scale
      ),
      "ridge": lambda: ridge_lib.RidgeHead(
          model, way=classes, ridge=ridge, scale=ridge_scale
      ),
  }
  if name not in makers:
    raise ValueError(f"learner {name!r} must be one of {sorted(makers)}")
  return makers[name]()


def make_fine_tuning(
    model: model_lib.Model,
    *,
    steps: int = 30,
    rate: float = 0.1,
    body: bool = False,
    optimizer: str = "sgd",
    fresh_head: bool = True,
) -> fine_tuning.FineTuning:
  """Fine-tuning by plain settings.

  Args:
    model: the network, with as many logits as a task has classes.
    steps: on the support set.
    rate: of these steps.
    body: train the whole network, not the head alone.
    optimizer: one of `OPTIMIZERS`.
    fresh_head: begin with a head of zeros.

  Raises:
    ValueError: one of them is wrong.
  """
  if optimizer not in OPTIMIZERS or not rate > 0:
    raise ValueError(
        f"fine-tuning by optimizer={optimizer!r} with rate={rate}: choose"
        f" {' or '.join(sorted(OPTIMIZERS))} and a positive rate"
    )
  if not isinstance(steps, int) or steps < 1:
    raise ValueError(
        f"fine-tuning steps={steps!r} must be a whole number of at least 1"
    )
  return fine_tuning.FineTuning(
      model,
      inner_steps=steps,
      optimizer=OPTIMIZERS[optimizer](rate),
      body=body,
      fresh_head=fresh_head,
  )
