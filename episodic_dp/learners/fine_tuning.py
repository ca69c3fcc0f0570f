"""Plain fine-tuning: the baseline for networks that were trained elsewhere."""

import dataclasses
from typing import TYPE_CHECKING

import jax
from jax import lax
import jax.numpy as jnp

from episodic_dp.learners import learner
from episodic_dp.models import parts
from episodic_dp.sampling import episodes

if TYPE_CHECKING:
  import optax


@dataclasses.dataclass(frozen=True, kw_only=True)
class FineTuning(learner.TaskLearner):
  """Train on a test task's support set; for evaluation, not meta-trained.

  The baseline of Chen et al., "A Closer Look at Few-shot Classification" (ICLR
  2019), section 3.2, and of DP-MAML's comparison of initialisations.

  Attributes:
    model: the network, with as many outputs as a task has classes.
    inner_steps: steps on the whole support set.
    optimizer: an Optax transformation for these steps; None for SGD at a rate
      of 0.1.
    body: whether the layers before the head are trained too.
    fresh_head: whether to start with a head of zeros of this network's shape. A
      network that was trained for other classes has a head of another size.
    head: the name of the network's last layer, at the top of its parameters.
    task_loss: see `Learner`.
  """

  inner_steps: int = 30
  optimizer: "optax.GradientTransformation | None" = None
  body: bool = True
  fresh_head: bool = True
  head: str = "head"

  paper = "Chen et al., ICLR 2019"
  adapted = "all weights or the head, by an optimiser's steps"
  releases = ""

  def adapt(
      self,
      params: learner.Params,
      support: episodes.Examples,
      *,
      inner_gradient: learner.InnerGradient = jax.grad,
  ) -> learner.Params:
    """Return the parameters after `inner_steps` steps; see `Learner`.

    Args:
      params: initial parameters of the model; the head's shape may differ.
      support: examples.
      inner_gradient: as for every learner.

    Raises:
      RunError: no parameters have the head's name.
    """
    # Lazy import: a metric learner predicts without Optax.
    import optax

    optimizer = self.optimizer or optax.sgd(0.1)
    if self.fresh_head:
      params = self.with_fresh_head(params)
    moving, still = params, jax.tree.map(lambda _: None, params)
    if not self.body:
      moving, still = parts.split(params, parts.head(params, self.head))

    def inner_loss(moving, examples, i):
      return self.adapted_loss(parts.merge(moving, still), examples)

    gradient = inner_gradient(inner_loss)

    def step(carry, i):
      moving, state = carry
      updates, state = optimizer.update(
          gradient(moving, support, i), state, moving
      )
      return (optax.apply_updates(moving, updates), state), None

    start = (moving, optimizer.init(moving))
    (moving, _), _ = lax.scan(step, start, jnp.arange(self.inner_steps))
    return parts.merge(moving, still)

  def with_fresh_head(self, params: learner.Params) -> learner.Params:
    """Return the parameters with a head of zeros, of this network's shape.

    Raises:
      RunError: no parameters have the head's name.
    """
    zeros = jax.tree.map(
        lambda s: jnp.zeros(s.shape, s.dtype), self.model.shapes
    )
    new, _ = parts.split(zeros, parts.head(zeros, self.head))
    _, old = parts.split(params, parts.head(params, self.head))
    return parts.merge(new, old)
