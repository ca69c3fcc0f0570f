"""Prototypical networks: the class whose mean embedding is nearest.

Snell, Swersky and Zemel, "Prototypical Networks for Few-shot Learning" (NIPS
2017), equations 1 and 2, with the squared Euclidean distance.
"""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from episodic_dp.learners import descent
from episodic_dp.learners import learner
from episodic_dp.models import model as model_lib


class Prototypes(NamedTuple):
  """An adapted ProtoNet.

  Attributes:
    params: the embedding's.
    prototypes: [way, d], the mean embedding of every class.
  """

  params: Any
  prototypes: jax.Array


@dataclasses.dataclass(frozen=True)
class ProtoNet(learner.BaseLearner):
  """Distances to the means of the classes.

  Nothing is adapted by gradient steps: a task costs one pass over its support
  and one over its query set. Every query is judged alone, unless the network
  mixes examples.

  Attributes:
    model: the embedding: its outputs [n, d] are compared, whatever it calls
      them (`models.conv4(way=None)` has no head).
    way: the number of classes of a task.
  """

  model: model_lib.Model
  _: dataclasses.KW_ONLY
  way: int

  def __post_init__(self) -> None:
    if self.way < 2:
      raise ValueError(f"way {self.way} must be at least 2")

  def adapt(
      self,
      params: Any,
      support: Any,
      *,
      inner_gradient: descent.InnerGradient = jax.grad,
  ) -> Prototypes:
    """The prototypes (eq. 1); that of a class without an example is zero."""
    del inner_gradient
    embedded = self.model.in_pass(0).apply(params, support.images)
    members = learner.one_hot(support.labels, self.way, embedded.dtype)
    counts = jnp.maximum(members.sum(0), 1)
    return Prototypes(params, members.T @ embedded / counts[:, None])

  def logits(self, adapted: Prototypes, images: jax.Array) -> jax.Array:
    """Minus the squared distance to every prototype (eq. 2), [n, way]."""
    embedded = self.model.apply(adapted.params, images)
    return -jnp.square(embedded[:, None] - adapted.prototypes).sum(-1)
