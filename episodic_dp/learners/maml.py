"""MAML: adapt by gradient steps, learn the weights to adapt from.

Finn, Abbeel and Levine, "Model-Agnostic Meta-Learning for Fast Adaptation of
Deep Networks" (ICML 2017), equation 1 and Algorithm 1; the first-order form is
that of its section 5.2.
"""

from collections.abc import Callable
import dataclasses
from typing import Any, Literal

import jax
from jax import lax
import jax.numpy as jnp
import optax

from episodic_dp.models import model as model_lib

Params = Any
Loss = Callable[[Params, Any, Any], jax.Array]  # of an inner step


def cross_entropy(logits: jax.Array, labels: jax.Array) -> jax.Array:
  """The mean softmax cross entropy of logits [n, way] at labels int32 [n]."""
  return optax.softmax_cross_entropy_with_integer_labels(
      logits, labels
  ).mean()


def squared_error(outputs: jax.Array, targets: jax.Array) -> jax.Array:
  """The mean of (output - target)^2 over examples and targets, both [n, k]."""
  return jnp.mean(jnp.square(outputs - targets))


def accuracy(logits: jax.Array, labels: jax.Array) -> jax.Array:
  """The share of the rows of logits [n, way] whose largest is the label."""
  return jnp.mean(jnp.argmax(logits, axis=-1) == labels)


@dataclasses.dataclass(frozen=True)
class MAML:
  """Model-agnostic meta-learning.

  Attributes:
    model: the network.
    inner_steps: gradient steps on the support set, at least 1.
    inner_rate: their learning rate, positive.
    order: "second" differentiates through the inner steps; "first" takes the
      inner gradients for constants.
    unroll: write the inner steps out one after the other. Otherwise they are a
      scan: a smaller program, faster to compile for many steps and 10 to 40 %
      slower to run (five steps on two CPU cores).
    task_loss: (outputs, labels) -> scalar, the mean over the examples:
      `cross_entropy` where a task has classes, `squared_error` for regression.
  """

  model: model_lib.Model
  _: dataclasses.KW_ONLY
  inner_steps: int = 5
  inner_rate: float = 0.1
  order: Literal["first", "second"] = "second"
  unroll: bool = True
  task_loss: Callable[[jax.Array, jax.Array], jax.Array] = cross_entropy

  def __post_init__(self):
    if self.inner_steps < 1:
      raise ValueError(f"inner_steps {self.inner_steps} must be at least 1")
    if not self.inner_rate > 0:
      raise ValueError(f"inner_rate {self.inner_rate} must be positive")
    if self.order not in ("first", "second"):
      raise ValueError(f"order {self.order!r} must be 'first' or 'second'")

  def init(self, key: jax.Array) -> Params:
    """The model's initial parameters."""
    return self.model.init(key)

  def support_loss(self, params: Params, examples: Any) -> jax.Array:
    """The task's mean loss of the examples (images, labels)."""
    outputs = self.model.apply(params, examples.images)
    return self.task_loss(outputs, examples.labels)

  def inner_loss(
      self, params: Params, examples: Any, step: jax.Array | int
  ) -> jax.Array:
    """What inner step number `step` descends: the same in all of them."""
    del step
    return self.support_loss(params, examples)

  def adapt(
      self,
      params: Params,
      support: Any,
      *,
      inner_gradient: Callable[[Loss], Callable[..., Params]] = jax.grad,
  ) -> Params:
    """The parameters after `inner_steps` steps on the support set.

    Args:
      params: where to start.
      support: examples with images [n, H, W, C] and labels int32 [n].
      inner_gradient: turns a loss (params, examples, step) -> scalar into its
        gradient (params, examples, step) -> like params. It is called once in
        each step, with 0 .. inner_steps - 1 for `step`: noise is drawn by it.
    """
    gradient = inner_gradient(self.inner_loss)

    def step(params, i):
      slope = gradient(params, support, i)
      if self.order == "first":
        slope = lax.stop_gradient(slope)
      return jax.tree.map(lambda p, g: p - self.inner_rate * g, params, slope)

    if self.unroll:  # Not `scan(unroll=True)`, whose gradient stacks residuals.
      for i in range(self.inner_steps):
        params = step(params, i)
      return params
    adapted, _ = lax.scan(
        lambda p, i: (step(p, i), None), params, jnp.arange(self.inner_steps)
    )
    return adapted

  def loss(self, params: Params, episode: Any) -> jax.Array:
    """The query loss after adapting to the support set of one episode."""
    adapted = self.adapt(params, episode.support)
    return self.support_loss(adapted, episode.query)

  def predict(
      self, params: Params, support: Any, query_images: jax.Array
  ) -> jax.Array:
    """The adapted model's logits [n, way] of the query images [n, H, W, C]."""
    return self.model.apply(self.adapt(params, support), query_images)
