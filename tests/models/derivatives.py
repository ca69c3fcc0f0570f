"""Derivatives of two orders by reverse mode, against a plain implementation."""

import jax
import jax.numpy as jnp
import numpy as np


def two_orders(function, arguments):
  """The value, the gradients, and the gradients of a function of those."""
  places = tuple(range(len(arguments)))

  def first(*arguments):
    return jnp.sum(jnp.sin(function(*arguments)))

  def slope(*arguments):
    gradients = jax.grad(first, places)(*arguments)
    return sum(jnp.sum(jnp.cos(g)) for g in gradients)

  return jax.jit(
      lambda *arguments: (
          function(*arguments),
          jax.grad(first, places)(*arguments),
          jax.grad(slope, places)(*arguments),
      )
  )(*arguments)


def error(quick, plain, arguments):
  """Return the error of `quick` in float32, relative to `plain` in float64.

  The largest difference in an array over the array's largest entry, and the
  largest of these over value and derivatives.
  """
  arguments = [np.asarray(a) for a in arguments]
  actual = jax.tree.leaves(two_orders(quick, arguments))
  with jax.enable_x64(True):
    exact = two_orders(plain, [a.astype(np.float64) for a in arguments])
  exact = [np.asarray(a) for a in jax.tree.leaves(exact)]
  assert all(a.dtype == np.float64 for a in exact)
  return max(
      np.abs(np.asarray(x, np.float64) - y).max() / np.abs(y).max()
      for x, y in zip(actual, exact, strict=True)
  )
