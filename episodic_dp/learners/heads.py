"""Heads in closed form on a learned embedding: prototypes and ridge regression.

Neither takes gradient steps: a task costs one evaluation of its support set and
one of its query set.
"""

import abc
import dataclasses
from typing import Any, NamedTuple, Self

import jax
from jax import lax
import jax.numpy as jnp
import jax.scipy.linalg
import numpy as np

from episodic_dp import _validate
from episodic_dp import options
from episodic_dp.learners import learner
from episodic_dp.sampling import episodes

_BLOCK = 128  # Support images that are embedded at once.


class WithHead(NamedTuple):
  """A learner's parameters with the head of one task.

  Attributes:
    params: the learner's parameters.
    head: ProtoNet: prototypes [way, d], the mean embedding of every class;
      ridge regression: weights [d, way].
  """

  params: learner.Params
  head: jax.Array


@dataclasses.dataclass(frozen=True, kw_only=True)
class _ClosedForm(learner.TaskLearner):
  """A head that is computed from the embeddings of the support set.

  Attributes:
    way: the number of classes of a task.
    rotate_support: whether all images of a training task take turns as the
      support set, with the others as queries, in one pass of the network. The
      loss is the mean over the turns.
  """

  way: int
  rotate_support: bool = False

  def __post_init__(self) -> None:
    super().__post_init__()
    _validate.count("way", self.way, 2)

  def _embed(self, params: learner.Params, images: jax.Array) -> jax.Array:
    """Return the embeddings of images, [n, d]."""
    return self.model.apply(self.network_params(params), images)

  def _in_blocks(
      self, params: learner.Params, images: jax.Array
  ) -> jax.Array:
    """Return the embeddings of many images, in the memory of a few."""
    n = len(images)
    if self.model.mixes_examples or n <= _BLOCK or n % _BLOCK:
      return self._embed(params, images)
    blocks = images.reshape(-1, _BLOCK, *images.shape[1:])
    embedded = lax.map(lambda block: self._embed(params, block), blocks)
    return embedded.reshape(n, *embedded.shape[2:])

  def on_features(self) -> Self:
    """See `Learner`."""
    return self._of_model(lambda model: model._replace(
        apply=lambda params, features: features, mixes_examples=False,
        moments=None, public=None,
    ))

  def network_params(self, params: learner.Params) -> learner.Params:
    """See `Learner`."""
    return params.params if isinstance(params, WithHead) else params

  @abc.abstractmethod
  def _head(
      self, params: learner.Params, x: jax.Array, members: jax.Array
  ) -> jax.Array:
    """Return the head for support embeddings [n, d]; see `WithHead`.

    Args:
      params: the learner's parameters.
      x: embeddings, zero where an example does not count.
      members: [n, way], 1 for the class of each, zero where it does not count.
    """

  def _of_labels(
      self, params: learner.Params, x: jax.Array, labels: jax.Array,
      mask: jax.Array | None = None
  ) -> jax.Array:
    """Return the head for support embeddings and their labels."""
    members = jax.nn.one_hot(labels, self.way, dtype=x.dtype)
    if mask is not None:
      x, members = (jnp.where(mask[:, None], a, 0) for a in (x, members))
    return self._head(params, x, members)

  @abc.abstractmethod
  def _scores(
      self, params: learner.Params, head: jax.Array, x: jax.Array
  ) -> jax.Array:
    """Return the logits [n, way] of embeddings [n, d]."""

  def adapt(
      self,
      params: learner.Params,
      support: episodes.Examples,
      *,
      inner_gradient: learner.InnerGradient = jax.grad,
  ) -> WithHead:
    """Compute the head of the support set; see `Learner`."""
    learner, mask = self.in_pass(0), support.mask
    embed = learner._embed
    if mask is not None:  # Only prediction fills up support sets.
      seen = learner.seen(params, support)
      embed = learner._of_model(lambda model: model.alone(seen))._in_blocks
    embedded = embed(params, support.images)
    head = self._of_labels(params, embedded, support.labels, mask)
    return WithHead(params, head)

  def logits(self, adapted: WithHead, images: jax.Array) -> jax.Array:
    """Compute logits [n, way] of images [n, H, W, C], after adaptation."""
    embedded = self._embed(adapted.params, images)
    return self._scores(adapted.params, adapted.head, embedded)

  def loss(
      self, params: learner.Params, episode: episodes.EpisodeBatch
  ) -> jax.Array:
    """Compute the query loss, or with `rotate_support` its mean over turns."""
    if not self.rotate_support:
      return super().loss(params, episode)
    # Both sets are class by class, in the same order of classes.
    support, query = jax.tree.map(
        lambda a: a.reshape(self.way, -1, *a.shape[1:]), tuple(episode)
    )
    shot, labels = support.labels.shape[1], support.labels[:, 0]
    images = jnp.concatenate([support.images, query.images], axis=1)
    n = images.shape[1]
    embedded = self._embed(params, images.reshape(-1, *images.shape[2:]))
    order = (np.arange(n)[:, None] + np.arange(n)) % n  # [turn, position]
    turns = embedded.reshape(self.way, n, -1)[:, order]

    def turn(x: jax.Array) -> jax.Array:  # [way, n, d], the support first.
      first, rest = x[:, :shot], x[:, shot:]
      head = self._of_labels(
          params, first.reshape(-1, x.shape[-1]), jnp.repeat(labels, shot)
      )
      scores = self._scores(params, head, rest.reshape(-1, x.shape[-1]))
      return self.task_loss(scores, jnp.repeat(labels, n - shot))

    return jax.vmap(turn, in_axes=1)(turns).mean()


@dataclasses.dataclass(frozen=True, kw_only=True)
class ProtoNet(_ClosedForm):
  """Prototypical networks: distances to the means of the classes.

  Snell, Swersky and Zemel, "Prototypical Networks for Few-shot Learning" (NIPS
  2017), equations 1 and 2, with the squared Euclidean distance.

  No gradient steps are taken: a task costs one evaluation of its support set
  and one of its query set.

  Attributes:
    model: the embedding network; its outputs [n, d] are compared
      (`models.conv4(way=None)` has no head).
    way: the number of classes of a task.
    rotate_support: whether all images of a training task take turns as the
      support set, with the others as queries, in one pass of the network.
    scale: factor of the squared distances, positive. They grow with the
      embedding; a scale near its inverse dimension keeps the first losses near
      log(way).
    task_loss: see `Learner`.
  """

  scale: float = 1.0

  paper = "Snell et al., NIPS 2017"
  adapted = "class means of embeddings, in closed form"

  @classmethod
  def settings(cls, chosen: options.LearnerOptions, way: int) -> dict[str, Any]:
    """See `Learner`."""
    return super().settings(chosen, way) | {"scale": chosen.metric_scale}

  def __post_init__(self) -> None:
    super().__post_init__()
    _validate.positive("scale", self.scale)

  def _head(
      self, params: learner.Params, x: jax.Array, members: jax.Array
  ) -> jax.Array:
    """Compute the prototypes (eq. 1); zero for a class without examples."""
    return members.T @ x / jnp.maximum(members.sum(0), 1)[:, None]

  def _scores(
      self, params: learner.Params, head: jax.Array, x: jax.Array
  ) -> jax.Array:
    """Compute negative scaled distances to prototypes (eq. 2): [n, way]."""
    return -self.scale * jnp.square(x[:, None] - head[None]).sum(-1)


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
class RidgeHead(_ClosedForm):
  """R2D2: ridge regression from support embeddings to one-hot labels.

  Bertinetto, Henriques, Torr and Vedaldi, "Meta-learning with differentiable
  closed-form solvers" (ICLR 2019), equations 4 to 6.

  The parameters are those of the network ("model") and the logarithms of the
  ridge ("log_ridge") and of the scale of the logits ("log_scale"). Logarithms
  are learned so that both stay positive under any noise. Equation 6 adds one
  bias to all outputs; it is left out because a softmax ignores it. The authors'
  code also appends a column of ones to the embeddings, so that each class has a
  bias of its own, under the ridge; this head has none.

  Attributes:
    model: the embedding network; its outputs [n, d] are the regressors
      (`models.conv4(way=None)` has no head).
    way: the number of classes of a task.
    rotate_support: whether all images of a training task take turns as the
      support set, with the others as queries, in one pass of the network.
    ridge: the initial ridge, positive.
    scale: the initial scale of the logits, positive.
    task_loss: see `Learner`.
  """

  ridge: float = 1.0
  scale: float = 10.0

  paper = "Bertinetto et al., ICLR 2019"
  adapted = "a linear head on embeddings, in closed form"

  @classmethod
  def settings(cls, chosen: options.LearnerOptions, way: int) -> dict[str, Any]:
    """See `Learner`."""
    return super().settings(chosen, way) | {"scale": chosen.ridge_scale}

  def __post_init__(self) -> None:
    super().__post_init__()
    _validate.positive("ridge", self.ridge)
    _validate.positive("scale", self.scale)

  def init(self, key: jax.Array) -> learner.Params:
    """Return the initial parameters, the ridge and the scale."""
    return {
        "model": self.model.init(key),
        "log_ridge": jnp.log(jnp.float32(self.ridge)),
        "log_scale": jnp.log(jnp.float32(self.scale)),
    }

  def network_params(self, params: learner.Params) -> learner.Params:
    """See `Learner`."""
    return super().network_params(params)["model"]

  def _head(
      self, params: learner.Params, x: jax.Array, members: jax.Array
  ) -> jax.Array:
    """Solve the regression on the support set."""
    return solve(x, members, jnp.exp(params["log_ridge"]))

  def _scores(
      self, params: learner.Params, head: jax.Array, x: jax.Array
  ) -> jax.Array:
    """Compute the scaled outputs of the regression, [n, way]."""
    return jnp.exp(params["log_scale"]) * (x @ head)
