"""A learner whose gradients are its images, and data of any images for it."""

from collections.abc import Callable
import dataclasses
import math
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from episodic_dp import learners
from episodic_dp import models
from episodic_dp import plan as plan_lib
from episodic_dp.data import dataset as dataset_lib


@dataclasses.dataclass(frozen=True)
class LinearLearner(learners.BaseLearner):
  """A learner whose loss is <params, mean of its images>.

  The gradient of a task, or of a query example where examples are clipped
  inside tasks, is the mean of images: data decide it, and
  parameters do not matter.

  Attributes:
    way: classes of a task; 1 where there are none.
    shape: of an image; there is one parameter for every number of it.
    adapts: whether there are support sets.
    inner_steps: noisy steps inside a task, or None.
    order: of gradients, as the mechanism says.
  """

  way: int
  shape: tuple[int, int, int] = (1, 1, 1)
  adapts: bool = True
  inner_steps: int | None = None
  order: Literal["first", "second"] | None = None

  @property  # Follows from the fields.
  def model(self) -> models.Model:  # type: ignore[override]
    """The linear map, for the check that examples are not mixed."""
    return models.Model(self.init, self._apply, mixes_examples=False)

  def init(self, key: jax.Array) -> jax.Array:
    """Zeros."""
    del key
    return jnp.zeros(math.prod(self.shape))

  def predict(self, params: Any, support: Any, images: jax.Array) -> jax.Array:
    """Logits [n, way], of no meaning."""
    del support
    return self._apply(params, images)

  def loss(self, params: Any, task: Any) -> jax.Array:
    """The mean over support and query."""
    images = jnp.concatenate([task.support.images, task.query.images])
    return jnp.vdot(params, images.mean(0).ravel())

  def adapted_loss(self, params: Any, examples: Any) -> jax.Array:
    """The mean over the examples."""
    return jnp.vdot(params, examples.images.mean(0).ravel())

  def adapt(
      self,
      params: Any,
      support: Any,
      *,
      inner_gradient: Callable[..., Any] = jax.grad,
  ) -> Any:
    """Parameters after noisy steps."""
    for i in range(self.inner_steps or 0):
      loss = lambda p, e, step: self.adapted_loss(p, e)  # noqa: E731
      params = params - inner_gradient(loss)(params, support, i)
    return params

  def _apply(self, params: Any, images: jax.Array) -> jax.Array:
    flat = images.reshape(images.shape[0], -1)
    return jnp.tile((flat @ params)[:, None], (1, self.way))


def of_release(release: plan_lib.Release, size: int = 1) -> LinearLearner:
  """The learner for a release, of images of `size` numbers."""
  plan, mechanism = release.plan, release.mechanism
  return LinearLearner(
      way=1 if plan.episode is None else plan.episode.way,
      shape=(1, 1, size),
      adapts=plan.episode is not None,
      inner_steps=mechanism.inner_steps,
      order=mechanism.order,
  )


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class CanaryDataset:
  """A data set of float32 images: a canary may have any pixels.

  Attributes: those of `data.Dataset`; images are float32[rows, H, W, C].
  """

  images: np.ndarray
  hierarchy: plan_lib.Hierarchy
  name: str = "canaries"
  rows: dataset_lib.Rows = dataset_lib.identity
  rotate: bool = False
  targets: int = 0
  resident: bool = True

  @property
  def image_shape(self) -> tuple[int, int, int]:
    """(height, width, channels)."""
    height, width, channels = self.images.shape[1:]
    return height, width, channels

  @property
  def labels(self) -> np.ndarray:
    """Zeros."""
    return np.zeros(len(self.images), np.int32)
