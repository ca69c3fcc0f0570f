"""A small network with names that public starts and masks look for."""

import jax
import jax.numpy as jnp

from episodic_dp import models

OUTPUTS = 3


def layered(norm: bool = True, head: bool = True) -> models.Model:
  """Return a layer of 4 inputs, a norm and a head where they are asked for."""

  def init(key):
    a, b = jax.random.split(key)
    params = {"hidden": {"kernel": jax.random.normal(a, (4, 6))}}
    if norm:
      params["norm"] = {"scale": jnp.ones(6), "bias": jnp.zeros(6)}
    if head:
      kernel = jax.random.normal(b, (6, OUTPUTS))
      params["head"] = {"kernel": kernel, "bias": jnp.zeros(OUTPUTS)}
    return params

  def apply(params, x):
    x = x.reshape(x.shape[0], -1) @ params["hidden"]["kernel"]
    if norm:
      x = x * params["norm"]["scale"][None] + params["norm"]["bias"][None]
    x = jnp.tanh(x)
    if head:
      x = x @ params["head"]["kernel"] + params["head"]["bias"][None]
    return x

  return models.Model(init, apply, mixes_examples=False)
