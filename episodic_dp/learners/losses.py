"""Losses and accuracy of a task's outputs."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import optax

TaskLoss = Callable[[jax.Array, jax.Array], jax.Array]  # (outputs, labels)


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
