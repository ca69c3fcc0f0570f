"""Small regressions and classifications, dealt out to clients."""

import jax
import numpy as np

from episodic_dp.pvi import likelihoods


def partition(rows, clients, rng):
  """Client -> its rows, in no order; each client has one at least."""
  cuts = np.sort(rng.choice(np.arange(1, rows), clients - 1, replace=False))
  return np.split(rng.permutation(rows), cuts)


def padded(inputs, labels, parts, length=None):
  """Examples of all clients along a first axis, the shorter ones padded."""
  most = length or max(map(len, parts))
  x = np.zeros((len(parts), most, inputs.shape[1]), inputs.dtype)
  y = np.zeros((len(parts), most), labels.dtype)
  weight = np.zeros((len(parts), most), inputs.dtype)
  for i, rows in enumerate(parts):
    x[i, : len(rows)], y[i, : len(rows)] = inputs[rows], labels[rows]
    weight[i, : len(rows)] = 1
  return likelihoods.Examples(x, y, weight)


def regression(rows=23, features=3, seed=0):
  """(inputs, labels) of a linear model, float64."""
  rng = np.random.default_rng(seed)
  inputs = rng.normal(size=(rows, features))
  labels = inputs @ rng.normal(size=features) + 0.5 * rng.normal(size=rows)
  return inputs, labels


def classification(rows=60, features=2, seed=0):
  """(inputs, labels) of a logistic model, float64 and int32."""
  rng = np.random.default_rng(seed)
  inputs = rng.normal(size=(rows, features))
  logits = inputs @ (2 * rng.normal(size=features)) + 0.5
  labels = rng.random(rows) < 1 / (1 + np.exp(-logits))
  return inputs, labels.astype(np.int32)


def flat(tree):
  """All numbers of a tree in one array."""
  return np.concatenate([np.ravel(a) for a in jax.tree.leaves(tree)])


def check_close(a, b, **options):
  """Assert that two trees of one structure hold about the same numbers."""
  assert jax.tree.structure(a) == jax.tree.structure(b)
  np.testing.assert_allclose(flat(a), flat(b), **options)


def least(precision):
  """The least precision in any direction: above 0 where q is proper."""
  if getattr(precision, "ndim", 1) == 2:
    return np.linalg.eigvalsh((precision + precision.T) / 2).min()
  return flat(precision).min()
