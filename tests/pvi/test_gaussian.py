"""Natural parameters against moments, sampling and SciPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from episodic_dp.pvi import gaussian

pytestmark = pytest.mark.usefixtures("float64")


def _full(seed, d=3):
  rng = np.random.default_rng(seed)
  root = rng.normal(size=(d, d))
  return rng.normal(size=d), root @ root.T + 0.5 * np.eye(d)


def _mean_field(seed):
  rng = np.random.default_rng(seed)
  mean = {"a": rng.normal(size=(2, 2)), "b": rng.normal(size=3)}
  variance = jax.tree.map(lambda m: np.exp(rng.normal(size=m.shape)), mean)
  return mean, variance


def _flat(tree):
  return np.concatenate([np.ravel(a) for a in jax.tree.leaves(tree)])


def test_moments_come_back():
  mean, covariance = _full(0)
  q = gaussian.full(mean, covariance)
  np.testing.assert_allclose(q.mean, mean)
  np.testing.assert_allclose(q.covariance, covariance)
  mean, variance = _mean_field(0)
  q = gaussian.mean_field(mean, variance)
  np.testing.assert_allclose(_flat(q.mean), _flat(mean))
  np.testing.assert_allclose(_flat(q.variance), _flat(variance))


@pytest.mark.parametrize("kind", ["full", "mean field"])
def test_densities_are_those_of_scipy(kind):
  if kind == "full":
    mean, covariance = _full(1)
    q, theta = gaussian.full(mean, covariance), np.arange(3.0)
    flat_mean, flat_theta = mean, theta
  else:
    mean, variance = _mean_field(1)
    q = gaussian.mean_field(mean, variance)
    theta = jax.tree.map(lambda m: m + 1.0, mean)
    flat_mean, covariance = _flat(mean), np.diag(_flat(variance))
    flat_theta = _flat(theta)
  expected = stats.multivariate_normal(flat_mean, covariance).logpdf(flat_theta)
  found = q.exponent(theta) - q.log_partition()
  np.testing.assert_allclose(found, expected)


def test_the_divergence_is_the_known_one():
  (m, s), (n, t) = _full(2), _full(3)
  found = gaussian.divergence(gaussian.full(m, s), gaussian.full(n, t))
  inverse = np.linalg.inv(t)
  expected = (
      np.trace(inverse @ s) + (n - m) @ inverse @ (n - m) - 3
      + np.log(np.linalg.det(t) / np.linalg.det(s))
  ) / 2
  np.testing.assert_allclose(found, expected)
  a, b = (gaussian.mean_field(*_mean_field(i)) for i in (2, 3))
  dense = [
      gaussian.full(_flat(x.mean), np.diag(_flat(x.variance))) for x in (a, b)
  ]
  np.testing.assert_allclose(
      gaussian.divergence(a, b), gaussian.divergence(*dense)
  )


def test_an_invalid_precision_is_raised_and_the_mean_kept():
  q, floor = gaussian.full(*_full(4)), gaussian.full(*_full(5))
  raised = q.above(floor)
  gap = np.linalg.eigvalsh(raised.precision - floor.precision)
  assert gap.min() > -1e-9 and gap.max() > 0
  np.testing.assert_allclose(raised.mean, q.mean)
  # What is valid stays as it is.
  more = gaussian.product(q, floor)
  np.testing.assert_allclose(more.above(floor).precision, more.precision)
  q, floor = (gaussian.mean_field(*_mean_field(i)) for i in (4, 5))
  raised = q.above(floor)
  assert (_flat(raised.precision) >= _flat(floor.precision)).all()
  np.testing.assert_allclose(_flat(raised.mean), _flat(q.mean))


def test_proper_means_normalisable():
  q = gaussian.full(*_full(6))
  assert q.proper()
  assert not gaussian.quotient(q, gaussian.product(q, q)).proper()
  p = gaussian.mean_field(*_mean_field(6))
  assert p.proper() and not gaussian.one(p).proper()


def test_a_power_between_two_is_the_geometric_mean():
  a, b = (gaussian.full(*_full(i)) for i in (7, 8))
  theta = jnp.asarray([0.3, -1.0, 2.0])
  found = gaussian.between(a, b, 0.25).exponent(theta)
  expected = 0.75 * a.exponent(theta) + 0.25 * b.exponent(theta)
  np.testing.assert_allclose(found, expected)
