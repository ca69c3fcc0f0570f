"""Moments of one step: from above, near the truth, at every rate and order."""

import math

from dp_accounting import dp_event
from dp_accounting.rdp import rdp_privacy_accountant
import mpmath
import numpy as np
import pytest
from scipy import integrate

from episodic_dp.accounting.accountants import base
from episodic_dp.accounting.accountants import moments
from episodic_dp.accounting.profiles import amplification
from episodic_dp.accounting.profiles import unit_profile


def poisson(p, z):
  return (amplification.Amplification((1.0,), p, (1 / z,), 1 / z),)


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


# Whole orders, where the library's sum is exact, and few, as it is slow.
ORDERS = [*range(2, 65), *range(72, 513, 40), 512]


def ours_and_theirs(p, z, steps=1):
  unit_profiles = (amplification.Amplification((1.0,), p, (1 / z,), 1 / z),)
  run = (base.Phase(unit_profiles, steps),)
  curves = [
      moments.RDP().curve(run, d) for d in amplification.DIRECTIONS
  ]
  place = np.searchsorted(curves[0].orders, ORDERS)
  ours = np.max([curve.rdp[place] for curve in curves], axis=0)
  accountant = rdp_privacy_accountant.RdpAccountant(ORDERS)
  accountant.compose(
      dp_event.PoissonSampledDpEvent(p, dp_event.GaussianDpEvent(z)), steps
  )
  return ours, accountant.rdp


@pytest.mark.parametrize("z", [0.5, 1.0, 3.0, 30.0])
@pytest.mark.parametrize("p", [1e-4, 0.004, 0.3])
def test_agrees_with_the_library_on_the_same_orders(p, z):
  ours, theirs = ours_and_theirs(p, z)
  # Its sums are near 1: 1e-16 of that is lost, and more at high orders.
  lost = 1e-12 / (np.asarray(ORDERS) - 1)
  assert (ours >= theirs * (1 - 1e-9) - lost).all()
  of_use = theirs <= theirs[0] + 100
  assert (ours <= theirs * (1 + 1e-3) + lost)[of_use].all()
  for steps, delta in ((1, 1e-5), (250, 1e-6), (10**6, 1e-12)):
    epsilons = [
        rdp_privacy_accountant.compute_epsilon(
            ORDERS, (steps * rdp).tolist(), delta
        )[0]
        for rdp in (ours, theirs)
    ]
    assert epsilons[0] == pytest.approx(epsilons[1], rel=1e-3, abs=1e-9)


def test_fractional_orders_matter_where_epsilon_is_large():
  z, steps, delta = 0.5, 1000, 1e-6
  unit_profiles = (amplification.Amplification((), 1.0, (), 1 / z),)
  curve = moments.RDP().curve((base.Phase(unit_profiles, steps),), "remove")
  whole = curve.orders == np.round(curve.orders)
  coarse = moments.RenyiCurve(curve.orders[whole], curve.rdp[whole])
  # With every real order: the least of a l + b / (l - 1).
  rho = steps / (2 * z * z)
  best = rho + 2 * math.sqrt(-rho * math.log(delta))
  assert curve.epsilon(delta) <= best * 1.002
  assert coarse.epsilon(delta) > 1.5 * curve.epsilon(delta)
