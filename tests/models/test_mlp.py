"""The multilayer perceptron against plain NumPy."""

import jax
import numpy as np
import pytest

from episodic_dp import models


def test_equals_products_and_relus():
  model = models.mlp(2, widths=(5, 3), input_shape=(1, 2, 2))
  assert (model.way, model.input_shape) == (2, (1, 2, 2))
  params = model.init(jax.random.key(0))
  x = np.random.default_rng(0).standard_normal((7, 1, 2, 2), np.float32)
  expected = x.reshape(7, 4)
  for name in ("hidden_0", "hidden_1"):
    layer = jax.tree.map(np.asarray, params[name])
    expected = np.maximum(expected @ layer["kernel"] + layer["bias"], 0)
  head = jax.tree.map(np.asarray, params["head"])
  expected = expected @ head["kernel"] + head["bias"]
  assert expected.shape == (7, 2) and np.abs(expected).max() > 0.1
  np.testing.assert_allclose(model.apply(params, x), expected, atol=1e-5)


def test_examples_are_not_mixed():
  model = models.mlp(1)
  assert not model.mixes_examples
  params = model.init(jax.random.key(0))
  assert sum(leaf.size for leaf in jax.tree.leaves(params)) == 1761
  x = np.linspace(-5, 5, 4, dtype=np.float32).reshape(4, 1, 1, 1)
  other = x.copy()
  other[1:] *= -3
  np.testing.assert_array_equal(
      model.apply(params, x)[0], model.apply(params, other)[0]
  )


@pytest.mark.parametrize(
    "change", [{"outputs": 0}, {"widths": (4, 0)}, {"input_shape": (1, 1, 0)}]
)
def test_sizes_below_one_are_refused(change):
  with pytest.raises(ValueError, match="must all be at least 1"):
    models.mlp(**({"outputs": 1} | change))
