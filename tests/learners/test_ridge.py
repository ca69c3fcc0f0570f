"""The ridge head against least squares."""

import jax
import numpy as np
import pytest

from episodic_dp import learners
from episodic_dp.learners import ridge


def plain_solve(x, y, weight):
  """The same minimum as a least-squares problem with d more equations."""
  d, k = x.shape[1], y.shape[1]
  rows = np.concatenate([x, np.sqrt(weight) * np.eye(d)])
  return np.linalg.lstsq(rows, np.concatenate([y, np.zeros((d, k))]))[0]


@pytest.mark.parametrize("n,d", [(4, 9), (9, 4), (5, 5)])
def test_both_forms_solve_the_ridge_regression(n, d):
  rng = np.random.default_rng(0)
  x, y = rng.standard_normal((n, d)), rng.standard_normal((n, 3))
  with jax.enable_x64(True):
    solution = np.asarray(ridge.solve(x, y, 0.3))
  np.testing.assert_allclose(solution, plain_solve(x, y, 0.3), rtol=1e-9)


@pytest.mark.parametrize("features", [2, 8])
def test_loss_and_gradient_are_those_of_least_squares(tiny, features):
  """Also with respect to the ridge and the scale."""
  learner = learners.RidgeHead(
      tiny.model(out=features), way=tiny.WAY, ridge=0.5, scale=3.0
  )
  episode = tiny.episode(shot=2, query=2)

  def reference(params):
    weights = plain_solve(
        tiny.outputs(params["model"], episode.support.images),
        np.eye(tiny.WAY)[episode.support.labels],
        np.exp(params["log_ridge"]),
    )
    queries = tiny.outputs(params["model"], episode.query.images)
    return tiny.cross_entropy(
        np.exp(params["log_scale"]) * queries @ weights, episode.query.labels
    )

  params = learner.init(jax.random.key(0))
  np.testing.assert_allclose(np.exp(params["log_ridge"]), 0.5, rtol=1e-6)
  np.testing.assert_allclose(np.exp(params["log_scale"]), 3.0, rtol=1e-6)
  tiny.assert_gradient(lambda p: learner.loss(p, episode), reference, params)
