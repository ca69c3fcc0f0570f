"""Reptile: move towards the weights after a task's own training."""

import dataclasses

import jax
import jax.numpy as jnp

from episodic_dp.learners import learner
from episodic_dp.sampling import episodes


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reptile(learner.StepLearner):
  """Clip the task's update instead of a loss gradient.

  Nichol, Achiam and Schulman, "On First-Order Meta-Learning Algorithms" (2018),
  Algorithm 1 and section 3. The private step's sum over tasks is the batched
  form, Algorithm 2.

  A task trains from the meta-parameters p for `inner_steps` steps on all of its
  examples, support and query together (the update needs no split), and reaches
  p'. Its direction (p - p') / inner_rate is the sum of the gradients of these
  steps. The outer optimiser takes it as a gradient, as the paper proposes.
  Nothing is differentiated twice. A test task adapts to its support set.

  Attributes:
    model: the network.
    inner_steps: gradient steps of a task, at least 1. With 1 the direction is
      the gradient of the task's loss: the paper's joint training.
    inner_rate: their learning rate, positive.
    task_loss: see `Learner`.
  """

  paper = "Nichol et al., 2018"
  adapted = "all weights, by gradient steps"
  releases = "the difference from the weights after the task's training"
  order = "first"  # No gradient flows through the inner steps.

  def adapt(
      self,
      params: learner.Params,
      support: episodes.Examples,
      *,
      inner_gradient: learner.InnerGradient = jax.grad,
  ) -> learner.Params:
    """Return the parameters after `inner_steps` steps; see `Learner`."""

    def inner_loss(params, examples, i):
      return self.in_pass(i).adapted_loss(params, examples)

    return self.descend(inner_gradient(inner_loss), params, support)[0]

  def meta_gradient(
      self, params: learner.Params, episode: episodes.EpisodeBatch
  ) -> tuple[jax.Array, learner.Params]:
    """Return (`loss`, the direction (p - p') / inner_rate, like params)."""
    examples = jax.tree.map(
        lambda *both: jnp.concatenate(both), episode.support, episode.query
    )
    adapted = self.adapt(params, examples)
    direction = jax.tree.map(
        lambda p, q: (p - q) / self.inner_rate, params, adapted
    )
    return self.loss(params, episode), direction
