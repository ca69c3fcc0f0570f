"""Supervised learning: one network for all training classes, no tasks.

With a plan that has no episode every example is a clip unit, and the private
step is DP-SGD: Abadi et al., "Deep Learning with Differential Privacy" (2016),
Algorithm 1, and Algorithm 1 of Sharma, "Differential Privacy & Approximate
Bayesian Inference". What was trained so is a start for `FineTuning`.
"""

import dataclasses
from typing import Any

import jax

from episodic_dp.learners import descent
from episodic_dp.learners import learner
from episodic_dp.models import model as model_lib

Params = Any


@dataclasses.dataclass(frozen=True)
class Supervised(learner.BaseLearner):
  """A network that is trained as it is, by the cross entropy of its logits.

  Attributes:
    model: the network, with a logit for every training class.
  """

  model: model_lib.Model

  adapts = False

  def adapt(
      self,
      params: Params,
      support: Any,
      *,
      inner_gradient: descent.InnerGradient = jax.grad,
  ) -> Params:
    """Return the parameters unchanged."""
    del support, inner_gradient
    return params
