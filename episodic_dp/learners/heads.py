"""Heads in closed form on a learned embedding: prototypes and ridge regression.

Neither takes gradient steps: a task costs one evaluation of its support set and
one of its query set.
"""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.scipy.linalg

from episodic_dp import _validate
from episodic_dp.learners import descent
from episodic_dp.learners import learner


class Adapted(NamedTuple):
  """A learner's parameters with the head of one task.

  Attributes:
    params: the learner's parameters.
    head: ProtoNet: prototypes [way, d], the mean embedding of every class;
      ridge regression: weights [d, way].
  """

  params: Any
  head: jax.Array


@dataclasses.dataclass(frozen=True, kw_only=True)
class ProtoNet(learner.TaskLearner):
  """Prototypical networks: distances to the means of the classes.

  Snell, Swersky and Zemel, "Prototypical Networks for Few-shot Learning" (NIPS
  2017), equations 1 and 2, with the squared Euclidean distance.

  No gradient steps are taken: a task costs one evaluation of its support set
  and one of its query set. Each query is predicted separately, unless the
  network mixes examples.

  Attributes:
    model: the embedding network; its outputs [n, d] are compared
      (`models.conv4(way=None)` has no head).
    way: the number of classes of a task.
    scale: factor of the squared distances, positive. They grow with the
      embedding; a scale near its inverse dimension keeps the first losses near
      log(way).
    task_loss: see `Learner`.
  """

  way: int
  scale: float = 1.0

  def __post_init__(self) -> None:
    super().__post_init__()
    _validate.count("way", self.way, 2)
    _validate.positive("scale", self.scale)

  def adapt(
      self,
      params: Any,
      support: Any,
      *,
      inner_gradient: descent.InnerGradient = jax.grad,
  ) -> Adapted:
    """Compute the prototypes (eq. 1); zero for a class without examples."""
    embedded = self.model.in_pass(0).apply(params, support.images)
    members = jax.nn.one_hot(
        support.labels, self.way, dtype=embedded.dtype
    )
    counts = jnp.maximum(members.sum(0), 1)
    return Adapted(params, members.T @ embedded / counts[:, None])

  def logits(self, adapted: Adapted, images: jax.Array) -> jax.Array:
    """Compute negative scaled distances to prototypes (eq. 2): [n, way]."""
    embedded = self.model.apply(adapted.params, images)
    distances = jnp.square(embedded[:, None] - adapted.head).sum(-1)
    return -self.scale * distances


def solve(x: jax.Array, y: jax.Array, ridge: jax.Array) -> jax.Array:
  """Return the weights that minimise |x w - y|^2 + ridge |w|^2.

  The linear system has the smaller of n and d unknowns per column. For n < d it
  has the form x' (x x' + ridge I)^-1 y of equation 5, which follows from the
  other form by Woodbury's identity.

  Args:
    x: [n, d].
    y: [n, k].
    ridge: positive scalar.

  Returns:
    [d, k].
  """
  n, d = x.shape
  gram = x @ x.T if n < d else x.T @ x
  regular = gram + ridge * jnp.eye(min(n, d), dtype=x.dtype)
  factor = jax.scipy.linalg.cho_factor(regular)
  if n < d:
    return x.T @ jax.scipy.linalg.cho_solve(factor, y)
  return jax.scipy.linalg.cho_solve(factor, x.T @ y)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RidgeHead(learner.TaskLearner):
  """R2D2: ridge regression from support embeddings to one-hot labels.

  Bertinetto, Henriques, Torr and Vedaldi, "Meta-learning with differentiable
  closed-form solvers" (ICLR 2019), equations 4 to 6.

  The parameters are those of the network ("model") and the logarithms of the
  ridge ("log_ridge") and of the scale of the logits ("log_scale"). Logarithms
  are learned so that both stay positive under any noise. Equation 6 adds one
  bias to all outputs; it is left out because a softmax ignores it.

  Attributes:
    model: the embedding network; its outputs [n, d] are the regressors
      (`models.conv4(way=None)` has no head).
    way: the number of classes of a task.
    ridge: the initial ridge, positive.
    scale: the initial scale of the logits, positive.
    task_loss: see `Learner`.
  """

  way: int
  ridge: float = 1.0
  scale: float = 10.0

  def __post_init__(self) -> None:
    super().__post_init__()
    _validate.count("way", self.way, 2)
    _validate.positive("ridge", self.ridge)
    _validate.positive("scale", self.scale)

  def init(self, key: jax.Array) -> Any:
    """Return the initial parameters, the ridge and the scale."""
    return {
        "model": self.model.init(key),
        "log_ridge": jnp.log(jnp.float32(self.ridge)),
        "log_scale": jnp.log(jnp.float32(self.scale)),
    }

  def adapt(
      self,
      params: Any,
      support: Any,
      *,
      inner_gradient: descent.InnerGradient = jax.grad,
  ) -> Adapted:
    """Solve the regression on the support set."""
    model = self.model.in_pass(0)
    embedded = model.apply(params["model"], support.images)
    targets = jax.nn.one_hot(
        support.labels, self.way, dtype=embedded.dtype
    )
    weights = solve(embedded, targets, jnp.exp(params["log_ridge"]))
    return Adapted(params, weights)

  def logits(self, adapted: Adapted, images: jax.Array) -> jax.Array:
    """Compute the scaled outputs of the regression, [n, way]."""
    embedded = self.model.apply(adapted.params["model"], images)
    return jnp.exp(adapted.params["log_scale"]) * (embedded @ adapted.head)
