"""Moments of one step: from above, near the truth, at every rate and order."""

import math

import mpmath
import numpy as np
import pytest
from scipy import integrate

from episodic_dp.accounting.accountants import moments
from episodic_dp.accounting.profiles import amplification
from episodic_dp.accounting.profiles import unit_profile


def poisson(p, z):
  return (amplification.Amplification((1.0,), p, (1 / z,), 1 / z),)


def exact_log_moment(weights, sensitivities, order, direction):
  """ln E_Q (P/Q)^order for P or Q the mixture and the other one N(0).

  By the trapezoidal rule, which is exact to rounding for such integrands.
  """
  s = np.asarray(sensitivities)
  x = np.arange(-40.0, order * s.max() + 40.0, 0.02)
  loss = np.log1p(np.expm1(s * x[:, None] - s * s / 2) @ weights)
  log_q = -x * x / 2 - math.log(math.sqrt(2 * math.pi) / 0.02)
  if direction == "add":
    log_q, loss = log_q + loss, -loss
  # psi = r^l - 1 - l (r - 1), by its series where that cancels
  more = np.expm1(loss)
  small = np.abs(loss) * order < 1e-3
  few = np.where(small, more, 0.0)
  series = order * (order - 1) / 2 * few**2 * (
      1
      + (order - 2) / 3 * few
      + (order - 2) * (order - 3) / 12 * few**2
  )
  whole = np.exp(order * loss + log_q) - np.exp(log_q) * (1 + order * more)
  total = np.where(small, np.exp(log_q) * series, whole).sum()
  return math.log1p(float(total))


def test_the_oracle_against_high_precision():
  p, z, order = 1e-3, 2.0, 5
  with mpmath.workdps(40):
    truth = mpmath.log(sum(
        mpmath.binomial(order, k)
        * mpmath.mpf(p) ** k
        * (1 - mpmath.mpf(p)) ** (order - k)
        * mpmath.exp(mpmath.mpf(k * (k - 1)) / (2 * z * z))
        for k in range(order + 1)
    ))
  got = exact_log_moment([p], [1 / z], order, "remove")
  assert got == pytest.approx(float(truth), rel=1e-9)


def test_high_orders_near_where_they_are_of_use():
  orders = tuple(map(float, range(2, 513)))
  for p, z, order in ((0.004, 3.0, 512), (1e-9, 3.0, 360), (1e-4, 1.0, 120)):
    got = moments.log_moments(poisson(p, z), "remove", orders)
    # E r^l = sum over k of binomial(l, k) p^k (1-p)^(l-k) e^(k (k-1) / 2 z^2)
    with mpmath.workdps(40):
      truth = float(mpmath.log(sum(
          mpmath.binomial(order, k)
          * mpmath.mpf(p) ** k
          * (1 - mpmath.mpf(p)) ** (order - k)
          * mpmath.exp(mpmath.mpf(k * (k - 1)) / (2 * z * z))
          for k in range(order + 1)
      )))
    value = got[order - 2]
    assert truth * (1 - 1e-11) <= value <= truth * (1 + 1e-3)
    assert (np.diff(got) >= 0).all()


@pytest.mark.parametrize("direction", amplification.DIRECTIONS)
@pytest.mark.parametrize(
    "kind",
    [
        amplification.Amplification((0.1,), 0.3, (1.0,), 2.0),
        amplification.Amplification((0.1, 0.5), 0.5, (3.0, 0.5), 1.0),
        amplification.Amplification((1e-3,), 1.0, (0.1,), 0.2),
    ],
)
def test_several_distances_against_quadrature(kind, direction):
  orders = (1.02, 2.0, 7.5)
  got = moments.log_moments((kind,), direction, orders)
  for order, value in zip(orders, got):

    def integrand(u, order=order):
      g = unit_profile.excess((kind,), np.asarray([u]), direction)[0]
      return 0.0 if g == 0 else math.exp((order - 1) * u + math.log(g))

    top = kind.unit_sensitivity**2 * order + 12 * kind.unit_sensitivity
    corners = [s * 10.0**-k * top for s in (-1, 1) for k in range(1, 7)]
    total = integrate.quad(
        integrand, -top - 20, 2 * top, points=[0.0, *corners, top],
        limit=400, epsrel=1e-6, epsabs=0,
    )[0]
    truth = math.log1p(order * (order - 1) * total)
    assert truth * (1 - 1e-5) <= value <= truth * (1 + 1e-3), order


@pytest.mark.parametrize("distance", [1e-3, 0.5, 4.0])
def test_logarithms_of_profiles_go_on_below_the_smallest_double(distance):
  # From where doubles end to far below, against high precision.
  for deviations in (20.0, 36.0, 60.0, 500.0):
    log_alpha = distance * (distance / 2 + deviations)
    got = moments.log_hockey_stick(np.asarray([log_alpha]), distance)[0]
    with mpmath.workdps(60):
      d, u = mpmath.mpf(distance), mpmath.mpf(log_alpha)
      value = mpmath.ncdf(d / 2 - u / d) - mpmath.exp(u) * mpmath.ncdf(
          -d / 2 - u / d
      )
      truth = float(mpmath.log(value))
    assert got == pytest.approx(truth, rel=1e-12, abs=1e-9)
  kind = amplification.Amplification((0.1,), 0.2, (distance / 2,), distance)
  log_alpha = np.linspace(0, 80 * distance, 400)
  for direction in amplification.DIRECTIONS:
    got = moments._log_excess(kind, log_alpha, direction)
    value = unit_profile.excess((kind,), log_alpha, direction)
    seen = value > 1e-279
    np.testing.assert_allclose(got[seen], np.log(value[seen]), rtol=1e-12)
    with np.errstate(divide="ignore"):
      assert (got[~seen] >= np.log(value[~seen])).all()
    assert (got[1:] <= got[:-1] + 1e-9).all()
