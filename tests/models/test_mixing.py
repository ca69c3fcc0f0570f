"""Mixing is found by what a network does, not by what its layers are called."""

from flax import linen as nn
import jax
import jax.numpy as jnp
import pytest

from episodic_dp.models import mixing
from episodic_dp.models import normalization

SHAPE = (2, 2, 4)
HEAD = jax.ShapeDtypeStruct((16, 3), jnp.float32)


def _norm(layer):
  ones, zeros = jnp.ones(SHAPE[-1]), jnp.zeros(SHAPE[-1])
  return lambda x: layer(x, ones, zeros)


def _flax(layer):
  return lambda x: layer.apply(layer.init(jax.random.key(0), x), x)


def _previous(x):
  """Each example reads the one before it."""
  return x + jnp.concatenate([jnp.zeros_like(x[:1]), x[:-1]])


def _attention(x):
  flat = x.reshape(x.shape[0], -1)
  return (jax.nn.softmax(flat @ flat.T) @ flat).reshape(x.shape)


ALONE = {
    "nothing": lambda x: x,
    "group norm": _norm(normalization.group_norm),
    "Flax group norm": _flax(nn.GroupNorm(num_groups=2)),
    "Flax layer norm": _flax(nn.LayerNorm()),
    "position": lambda x: x + jnp.arange(x.shape[0])[:, None, None, None],
}
MIXED = {
    "batch norm": _norm(normalization.batch_norm),
    "previous": _previous,
    "next": lambda x: _previous(x[::-1])[::-1],
    "attention": _attention,
    "mean": lambda x: x - x.mean(0),
    # Less than a rounding of what it is added to.
    "faint": lambda x: x + 1e-12 * x.mean(0),
    # Only where an image is far brighter than any other.
    "rare": lambda x: x + (x.max() > 10),
    "loop": lambda x: jax.lax.map(lambda row: row - x.sum(0), x),
}


def apply_with(layer):
  return lambda head, x: layer(x).reshape(x.shape[0], -1) @ head


@pytest.mark.parametrize("name", ALONE)
def test_layers_that_treat_examples_alone_pass(name):
  assert not mixing.mixes_examples(apply_with(ALONE[name]), HEAD, SHAPE)


@pytest.mark.parametrize("name", MIXED)
def test_layers_that_mix_examples_are_found(name):
  assert mixing.mixes_examples(apply_with(MIXED[name]), HEAD, SHAPE)


def test_outputs_that_are_never_finite_prove_nothing():
  assert mixing.mixes_examples(apply_with(lambda x: x * jnp.nan), HEAD, SHAPE)
