"""Expectations of sums of lognormal variables: never too small, and tight."""

import mpmath
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


def precise_pair(c, d):
  """The smaller of E (Z - c)_+ and E (c - Z)_+ for two copies, 40 digits."""
  mp = mpmath.mp
  with mp.workdps(40):
    d, level = mp.mpf(d), mp.mpf(c) + 2

    def one(c):  # put for c below the mean of all, else call
      if c <= 0:
        return mp.mpf(0) if level < 2 else 1 - c
      x, y = d / 2 + mp.log(c) / d, -d / 2 + mp.log(c) / d
      if level < 2:
        return c * mp.ncdf(x) - mp.ncdf(y)
      return mp.ncdf(-y) - c * mp.ncdf(-x)

    def integrand(g):
      return mp.npdf(g) * one(level - mp.exp(d * g - d * d / 2))

    edge = mp.log(level) / d + d / 2  # where one copy alone reaches it
    points = [-16, -8, -4, 0, 4, 8, 16]
    points = sorted({*points, edge, edge - 0.2, edge + 0.2})
    return float(mp.quad(integrand, points))


@pytest.mark.parametrize("d,c", [(1.0, 1000.0), (1.0, -1.98), (0.2, 4.0)])
def test_tails_agree_with_high_precision(d, c):
  truth = precise_pair(c, d)
  assert truth < 1e-8
  got = float(lognormal_sum.copies(d, 2).at(c))
  assert truth <= got <= truth * (1 + 5e-3)


@pytest.mark.parametrize("d,number", [(0.2, 60), (1.0, 100)])
def test_agrees_with_a_fourier_transform(d, number):
  """Equal steps of x and rounding, an independent way for central values."""
  step, size = 0.01 * d, 1 << 17
  edges = (np.arange(size + 1) - 0.5) * step
  cdf = special.ndtr(np.log(np.maximum(edges, 1e-300)) / d + d / 2)
  mean_below = special.ndtr(np.log(np.maximum(edges, 1e-300)) / d - d / 2)
  mass = np.diff(cdf)
  mean = np.diff(mean_below)
  # Cells are put at their own means, rounded; what is left is a shift of all.
  spectrum = np.fft.rfft(mass) ** number
  sums = np.fft.irfft(spectrum, size)
  values = np.arange(size) * step
  assert mean.sum() == pytest.approx(1, abs=1e-6)
  shift = number - sums @ values
  values = values + shift - number
  total = lognormal_sum.copies(d, number)
  spread = np.sqrt(number * np.expm1(d * d))
  for c in np.array([0.5, 2.0, 4.0]) * spread:
    above = float(sums @ np.maximum(values - c, 0))
    below = float(sums @ np.maximum(-c - values, 0))
    assert total.at(c) == pytest.approx(above, rel=1.5e-3, abs=1e-11)
    assert total.at(-c) == pytest.approx(below, rel=1.5e-3, abs=1e-11)
    assert total.at(c) >= above * (1 - 1e-5) - 1e-11
    assert total.at(-c) >= below * (1 - 1e-5) - 1e-11


@pytest.mark.parametrize("d,number", [(0.3, 7), (1.0, 12), (3.0, 5)])
def test_finer_points_only_lower_it(d, number):
  """The bound falls towards the truth, and by less and less."""
  c = np.concatenate([
      np.linspace(0, 8 * d * number**0.5, 40),
      -number * np.linspace(0.05, 0.9, 20),
  ])
  values = [
      lognormal_sum.copies(
          d, number, lognormal_sum.Resolution(near=h, far=0.06, switch=8.0)
      ).at(c)
      for h in (0.064, 0.032, 0.016, 0.008)
  ]
  # Where a chord happens to touch there is nothing to gain.
  for coarse, fine in zip(values, values[1:]):
    kept = fine > 1e-25
    assert (fine[kept] <= coarse[kept] * (1 + 2e-4)).all()
  changes = [float(np.log(a / b).sum()) for a, b in zip(values, values[1:])]
  assert changes[0] > 2 * changes[1] > 4 * changes[2] > 0


@pytest.mark.parametrize("reach", [5.0, 7.0])
def test_shorter_reach_only_raises_it(reach):
  short = lognormal_sum.copies(
      1.0,
      6,
      lognormal_sum.Resolution(near=0.02, switch=4.0, low=reach, high=reach),
  )
  whole = lognormal_sum.copies(
      1.0, 6, lognormal_sum.Resolution(near=0.02, switch=4.0)
  )
  c = np.concatenate([np.linspace(-5.9, 30, 200), [1e3, 1e9]])
  assert (short.at(c) >= whole.at(c) * (1 - 5e-3)).all()
  assert short.at(1e9) > 100 * whole.at(1e9) > 0


@pytest.mark.parametrize("d,number", [(0.2, 5), (1.0, 3), (2.0, 10)])
def test_chernoffs_bound_is_above(d, number):
  """Where the grid still reaches; and no more than polynomially above."""
  share = -np.array([0.5, 1.0, 2.0]) * d * number**-0.5 * 3
  truth = np.log(lognormal_sum.copies(d, number).at(number * np.expm1(share)))
  bound = lognormal_sum.log_below(d, number, share) + np.log(number)
  assert (bound >= truth - 1e-3).all() and (bound <= truth + 6).all()


@pytest.mark.parametrize(
    "d,number", [(1e-4, 2), (1e-3, 20), (1.0, 12), (12.0, 3)]
)
def test_is_the_excess_of_a_distribution(d, number):
  total = lognormal_sum.copies(d, number)
  points, probs = total.points, total.probs
  assert (probs >= 0).all() and probs.sum() == pytest.approx(1, abs=1e-12)
  assert points[total.zero] == 0 and (np.diff(points) > 0).all()
  assert points[0] == -number and total.excess[0] == 0
  # Its own expectations, up to what lies beyond the last point.
  for i in (total.zero // 2, total.zero, (total.zero + points.size) // 2):
    above = probs @ np.maximum(points - points[i], 0)
    below = probs @ np.maximum(points[i] - points, 0)
    assert min(above, below) == pytest.approx(total.excess[i], rel=1e-6)
