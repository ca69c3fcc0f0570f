"""Expectations of sums of lognormal variables: never too small, and tight."""

import numpy as np
import pytest
from scipy import special

from episodic_dp.accounting.profiles import lognormal_sum


def call(c, d):
  """E (X - c)_+ for X = exp(d g - d^2 / 2), textbook formula."""
  c = np.asarray(c, float)
  log_c = np.log(np.maximum(c, 1e-300))
  value = special.ndtr(d / 2 - log_c / d) - c * special.ndtr(
      -d / 2 - log_c / d
  )
  return np.where(c > 0, value, 1 - c)


def put(c, d):
  """E (c - X)_+, textbook formula."""
  c = np.asarray(c, float)
  log_c = np.log(np.maximum(c, 1e-300))
  value = c * special.ndtr(d / 2 + log_c / d) - special.ndtr(
      -d / 2 + log_c / d
  )
  return np.where(c > 0, value, 0.0)


def integral(function, c, number, d):
  """E function(c + number - X_2 - .. , d): all but one copy by quadrature.

  The trapezoidal rule in g converges faster than any power of its step.
  """
  step = 0.04 if d <= 1 else 0.002
  g = np.arange(-10, 10 + 2 * d, step)
  weight = step * np.exp(-g * g / 2) / np.sqrt(2 * np.pi)
  x = np.exp(d * g - d * d / 2)
  rest, weights = np.zeros(1), np.ones(1)
  for _ in range(number - 1):
    rest = (rest[:, None] + x).ravel()
    weights = (weights[:, None] * weight).ravel()
  return np.array([weights @ function(v + number - rest, d) for v in c])


@pytest.mark.parametrize(
    "number,d",
    [(1, 0.05), (1, 2.0), (2, 0.05), (2, 1.0), (2, 2.0), (3, 0.5), (3, 1.0)],
)
def test_agrees_with_quadrature(number, d):
  total = lognormal_sum.copies(d, number)
  spread = d * number**0.5
  above = np.array([0.0, 0.2, 1.0, 3.0]) * spread
  below = -number * -np.expm1(-np.array([0.1, 0.5, 1.5]) * d)
  for c, function in ((above, call), (below, put)):
    truth = integral(function, c, number, d)
    got = total.at(c)
    kept = truth > 1e-9  # The textbook formulas cancel.
    assert kept.sum() >= 2
    assert (got[kept] >= truth[kept] * (1 - 1e-6)).all()
    assert (got[kept] <= truth[kept] * (1 + 1e-3)).all()


@pytest.mark.parametrize("d,number", [(0.2, 5), (1.0, 3), (2.0, 10)])
def test_chernoffs_bound_is_above(d, number):
  """The bound holds within the grid, and is at most polynomially above."""
  share = -np.array([0.5, 1.0, 2.0]) * d * number**-0.5 * 3
  truth = np.log(lognormal_sum.copies(d, number).at(number * np.expm1(share)))
  bound = lognormal_sum.log_below(d, number, share) + np.log(number)
  assert (bound >= truth - 1e-3).all() and (bound <= truth + 6).all()
