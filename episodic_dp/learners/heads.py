"""Heads in closed form on a learned embedding: prototypes and ridge regression.

Neither takes gradient steps: a task costs one pass over its support and one
over its query set.
"""

import dataclasses
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import jax.scipy.linalg

from episodic_dp import _validate
from episodic_dp.learners import descent
from episodic_dp.learners import learner
from episodic_dp.models import model as model_lib

# Squared norm below which a vector has no direction.
_SHORTEST = 1e-12


class Adapted(NamedTuple):
  """A learner with the head that it found for a task.

  Attributes:
    params: the learner's.
    head: ProtoNet's prototypes [way, d], the mean embedding of every class; the
      weights [d, way] of a ridge regression.
  """

  params: Any
  head: jax.Array


@dataclasses.dataclass(frozen=True)
class ProtoNet(learner.Learner):
  """Prototypical networks: distances to the means of the classes.

  Snell, Swersky and Zemel, "Prototypical Networks for Few-shot Learning" (NIPS
  2017), equations 1 and 2, with the squared Euclidean distance; or with the
  cosine of the angle and a learned scale, as in Gidaris and Komodakis, "Dynamic
  Few-Shot Visual Learning without Forgetting" (CVPR 2018), equation 3.

  Nothing is adapted by gradient steps: a task costs one pass over its support
  and one over its query set. Every query is judged alone, unless the network
  mixes examples.

  Attributes:
    model: the embedding: its outputs [n, d] are compared, whatever it calls
      them (`models.conv4(way=None)` has no head).
    way: the number of classes of a task.
    metric: "euclidean", minus the squared distance to a prototype; "cosine",
      the cosine of the angle with it. The parameters of the second are those of
      the network ("model") and the logarithm of the scale ("log_scale").
    scale: what the metric is multiplied by, positive: fixed for "euclidean",
      where the network's last layer can learn it, and where training begins
      for "cosine". Distances grow with the embedding; a scale near its inverse
      dimension keeps the first losses near log(way).
  """

  model: model_lib.Model
  _: dataclasses.KW_ONLY
  way: int
  metric: Literal["euclidean", "cosine"] = "euclidean"
  scale: float = 1.0

  def __post_init__(self) -> None:
    _validate.count("way", self.way, 2)
    _validate.one_of("metric", self.metric, ("euclidean", "cosine"))
    _validate.positive("scale", self.scale)

  def init(self, key: jax.Array) -> Any:
    """Return the initial parameters, and the scale of "cosine"."""
    params = self.model.init(key)
    if self.metric == "euclidean":
      return params
    return {"model": params, "log_scale": jnp.log(jnp.float32(self.scale))}

  def adapt(
      self,
      params: Any,
      support: Any,
      *,
      inner_gradient: descent.InnerGradient = jax.grad,
  ) -> Adapted:
    """Compute the prototypes (eq. 1); zero for a class without examples."""
    del inner_gradient
    embedded = self._embedded(params, support.images, adapting=True)
    members = jax.nn.one_hot(
        support.labels, self.way, dtype=embedded.dtype
    )
    counts = jnp.maximum(members.sum(0), 1)
    return Adapted(params, members.T @ embedded / counts[:, None])

  def logits(self, adapted: Adapted, images: jax.Array) -> jax.Array:
    """Compute the nearness of every prototype (eq. 2), [n, way]."""
    embedded = self._embedded(adapted.params, images, adapting=False)
    if self.metric == "euclidean":
      distances = jnp.square(embedded[:, None] - adapted.head).sum(-1)
      return -self.scale * distances
    scale = jnp.exp(adapted.params["log_scale"])
    return scale * embedded @ _directions(adapted.head).T

  def _embedded(
      self, params: Any, images: jax.Array, *, adapting: bool
  ) -> jax.Array:
    """Compute the embeddings [n, d]; directions for "cosine"."""
    model = self.model.in_pass(0) if adapting else self.model
    if self.metric == "euclidean":
      return model.apply(params, images)
    return _directions(model.apply(params["model"], images))


def _directions(vectors: jax.Array) -> jax.Array:
  """Scale vectors [n, d] to length one; a zero vector stays zero."""
  squares = jnp.square(vectors).sum(-1, keepdims=True)
  return vectors * jax.lax.rsqrt(jnp.maximum(squares, _SHORTEST))


def solve(x: jax.Array, y: jax.Array, ridge: jax.Array) -> jax.Array:
  """Return the weights that minimise |x w - y|^2 + ridge |w|^2.

  The system that is solved has the smaller of n and d unknowns per column: for
  n < d the form x' (x x' + ridge I)^-1 y of equation 5, which follows from the
  other one by Woodbury's identity.

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


@dataclasses.dataclass(frozen=True)
class RidgeHead(learner.Learner):
  """R2D2: ridge regression from support embeddings to one-hot labels.

  Bertinetto, Henriques, Torr and Vedaldi, "Meta-learning with differentiable
  closed-form solvers" (ICLR 2019), equations 4 to 6.

  The parameters are those of the network ("model") and the logarithms of the
  ridge ("log_ridge") and of the scale of the logits ("log_scale"), which are
  learned with them and stay positive under any noise. The bias that equation 6
  adds to all outputs alike is left out: a softmax does not see it.

  Attributes:
    model: the embedding: its outputs [n, d] are regressed on, whatever it calls
      them (`models.conv4(way=None)` has no head).
    way: the number of classes of a task.
    ridge: the initial ridge, positive.
    scale: the initial scale of the logits, positive.
  """

  model: model_lib.Model
  _: dataclasses.KW_ONLY
  way: int
  ridge: float = 1.0
  scale: float = 10.0

  def __post_init__(self) -> None:
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
    del inner_gradient
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
