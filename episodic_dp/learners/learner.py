"""What all learners have in common: adapt to a support set, then predict."""

import abc
from typing import Any

import jax
import jax.numpy as jnp

from episodic_dp.learners import losses
from episodic_dp.models import model as model_lib

Params = Any


def members(labels: jax.Array, way: int, dtype: Any) -> jax.Array:
  """Which class each example is of, as zeros and ones [n, way].

  Args:
    labels: int32 [n].
    way: the number of classes.
    dtype: of the result.

  Raises:
    ValueError: the labels are not integers.
  """
  if not jnp.issubdtype(labels.dtype, jnp.integer):
    raise ValueError(
        f"labels of dtype {labels.dtype} are no classes, which this learner"
        " tells apart: for regression use MAML with task_loss=squared_error"
    )
  return jax.nn.one_hot(labels, way, dtype=dtype)


class Learner(abc.ABC):
  """A learner that judges its adapted self on the query set.

  A subclass is a frozen dataclass with the field `model`.
  """

  model: model_lib.Model

  @abc.abstractmethod
  def init(self, key: jax.Array) -> Params:
    """The initial meta-parameters."""

  @abc.abstractmethod
  def adapt(self, params: Params, support: Any) -> Any:
    """What `logits` needs, once the support set was seen.

    Args:
      params: the meta-parameters.
      support: examples with images [n, H, W, C] and labels int32 [n].
    """

  @property
  def transductive(self) -> bool:
    """Whether one query's prediction depends on the other queries.

    No learner here compares queries with one another; a network that mixes
    examples (batch normalisation by the statistics of the query set) does, and
    makes any learner transductive. `models.Model` says which do.
    """
    return self.model.mixes_examples

  def logits(self, adapted: Any, images: jax.Array) -> jax.Array:
    """Logits [n, way] of the images [n, H, W, C], after adaptation."""
    return self.model.apply(adapted, images)

  def predict(
      self, params: Params, support: Any, query_images: jax.Array
  ) -> jax.Array:
    """Logits [n, way] of the query images, after adapting to the support."""
    return self.logits(self.adapt(params, support), query_images)

  def loss(self, params: Params, episode: Any) -> jax.Array:
    """The mean cross entropy of an episode's query set."""
    logits = self.predict(params, episode.support, episode.query.images)
    return losses.cross_entropy(logits, episode.query.labels)
