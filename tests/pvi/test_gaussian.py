"""Natural parameters against moments and NumPy."""

import jax
import numpy as np
import pytest

from episodic_dp.pvi import gaussian
from tests.pvi import problems

pytestmark = pytest.mark.usefixtures("float64")


def _full(seed, d=3):
  rng = np.random.default_rng(seed)
  root = rng.normal(size=(d, d))
  return gaussian.Full(rng.normal(size=d), root @ root.T + 0.5 * np.eye(d))


def _mean_field(seed):
  rng = np.random.default_rng(seed)
  mean = {"a": rng.normal(size=(2, 2)), "b": rng.normal(size=3)}
  variance = jax.tree.map(lambda m: np.exp(rng.normal(size=m.shape)), mean)
  return mean, variance


def test_moments_come_back():
  full = _full(0)
  found = full.precision @ full.mean, full.precision @ full.covariance
  problems.check_close(found, (full.linear, np.eye(3)), atol=1e-12)
  mean, variance = _mean_field(0)
  q = gaussian.mean_field(mean, variance)
  problems.check_close((q.mean, q.variance), (mean, variance))


def test_the_divergence_is_the_known_one():
  moments = [_mean_field(i) for i in (2, 3)]
  found = gaussian.divergence(*(gaussian.mean_field(*m) for m in moments))
  (m, s), (n, t) = [map(problems.flat, pair) for pair in moments]
  expected = ((s + (n - m) ** 2) / t - 1 + np.log(t / s)).sum() / 2
  np.testing.assert_allclose(found, expected)


@pytest.mark.parametrize("family", ["full", "mean_field"])
def test_an_invalid_precision_is_raised_and_the_mean_kept(family):
  q, floor = _full(4), _full(5)
  if family == "mean_field":
    q, floor = (gaussian.mean_field(*_mean_field(i)) for i in (4, 5))
  raised = q.above(floor)
  gap = gaussian.quotient(raised, floor).precision
  assert problems.least(gap) > -1e-9 and problems.flat(gap).max() > 0
  problems.check_close(raised.mean, q.mean)
  # What is valid stays as it is.
  more = gaussian.product(q, floor)
  problems.check_close(more.above(floor), more)


@pytest.mark.parametrize("variance", [0.0, 3.0])
def test_noise_is_accounted_for_as_bayes_rule_does(variance):
  """The linear part l of factors is N(P theta, P + variance)."""
  prior, factors = _full(6), _full(7)
  found = gaussian.product(prior, factors).denoised(prior, variance)
  of_l = np.linalg.inv(factors.precision + variance * np.eye(3))
  expected = gaussian.Full(
      prior.linear + factors.precision @ of_l @ factors.linear,
      prior.precision + factors.precision @ of_l @ factors.precision,
  )
  problems.check_close(found, expected)
  # Independent coordinates are a diagonal matrix; one of them is negative.
  rng = np.random.default_rng(8)
  mean, diagonal = rng.normal(size=(2, 3)), np.asarray([2.0, 0.7, -0.3])
  total = gaussian.MeanField(mean[0], 1 + diagonal)
  own = gaussian.MeanField(mean[1], np.ones(3))
  full = [gaussian.Full(q.linear, np.diag(q.precision)) for q in (total, own)]
  found = total.denoised(own, variance)
  same = full[0].denoised(full[1], variance)
  problems.check_close(gaussian.Full(found[0], np.diag(found[1])), same)
  assert found.precision[2] == 1
