"""Moments of one step: from above, near the truth, at every rate and order."""

import math

import mpmath
import numpy as np
import pytest
from scipy import integrate

from episodic_dp import accounting
from episodic_dp.accounting.accountants import log_moments
from episodic_dp.accounting.accountants import moments
from episodic_dp.accounting.profiles import amplification
from episodic_dp.accounting.profiles import recurrence
from episodic_dp.accounting.profiles import unit_profile

ORDERS = (1.02, 1.3, 2.0, 3.0, 7.5, 16.0, 33.0)


def poisson(p, z):
  return (accounting.Amplification((1.0,), p, (1 / z,), 1 / z),)


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


@pytest.mark.parametrize("direction", amplification.DIRECTIONS)
@pytest.mark.parametrize(
    "p,z",
    [(0.3, 0.3), (0.004, 0.5), (0.004, 1.0), (1e-9, 3.0), (0.3, 1000.0),
     (1e-9, 1000.0)],
)
def test_one_distance_from_above_and_near(p, z, direction):
  orders = tuple(order for order in ORDERS if order < 30 * z)
  got = log_moments.log_moments(poisson(p, z), direction, orders)
  for order, value in zip(orders, got):
    truth = exact_log_moment([p], [1 / z], order, direction)
    assert truth * (1 - 1e-8) <= value <= truth * (1 + 1e-3), order


def test_high_orders_near_where_they_are_of_use():
  orders = tuple(map(float, range(2, 513)))
  for p, z, order in ((0.004, 3.0, 512), (1e-9, 3.0, 360), (1e-4, 1.0, 120)):
    got = log_moments.log_moments(poisson(p, z), "remove", orders)
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
        accounting.Amplification((0.1,), 0.3, (1.0,), 2.0),
        accounting.Amplification((0.1, 0.5), 0.5, (3.0, 0.5), 1.0),
        accounting.Amplification((1e-3,), 1.0, (0.1,), 0.2),
    ],
)
def test_several_distances_against_quadrature(kind, direction):
  orders = (1.02, 2.0, 7.5)
  got = log_moments.log_moments((kind,), direction, orders)
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


def test_no_sampling_is_the_gaussian():
  for distance in (1e-3, 0.3, 3.0, 60.0):
    kind = accounting.Amplification((), 1.0, (), distance)
    for direction in amplification.DIRECTIONS:
      got = log_moments.log_moments((kind,), direction, ORDERS)
      order = np.asarray(ORDERS)
      np.testing.assert_allclose(
          got, order * (order - 1) * distance**2 / 2, rtol=1e-8
      )


def test_records_that_recur_are_mixtures():
  kind = recurrence.Recurrence(
      places=4, place_rate=0.2, rate=0.5, distance=0.4
  )
  orders = (1.5, 2.0, 5.0, 12.0)
  for direction in amplification.DIRECTIONS:
    got = log_moments.log_moments((kind,), direction, orders)
    for order, value in zip(orders, got):
      # Averaged over J, which is revealed.
      mean = 0.0
      for j in range(5):
        chance = math.comb(4, j) * 0.2**j * 0.8 ** (4 - j)
        drawn = range(1, j + 1)
        weights = [math.comb(j, k) * 0.5**j for k in drawn]
        if j:
          given = exact_log_moment(
              weights, [0.4 * k for k in drawn], order, direction
          )
          mean += chance * math.expm1(given)
      assert math.log1p(mean) * (1 - 1e-8) <= value
      assert value <= math.log1p(mean) * (1 + 1e-3)


def test_ragged_kinds_are_their_maximum():
  first = accounting.Amplification((0.1,), 0.2, (0.5,), 1.0)
  second = accounting.Amplification((0.3,), 0.05, (0.5,), 1.0)
  for direction in amplification.DIRECTIONS:
    both = log_moments.log_moments((first, second), direction, ORDERS)
    for one in (first, second):
      alone = log_moments.log_moments((one,), direction, ORDERS)
      assert (both >= alone * (1 - 1e-3)).all()


def test_fewer_points_only_raise_the_moments(monkeypatch):
  unit_profiles = (accounting.Amplification((0.1,), 0.3, (1.0,), 2.0),)

  def found(tolerance, most=1 << 16):
    monkeypatch.setattr(log_moments, "_TOLERANCE", tolerance)
    monkeypatch.setattr(log_moments, "_MOST_POINTS", most)
    log_moments.log_moments.cache_clear()
    return log_moments.log_moments(unit_profiles, "remove", ORDERS)

  fine = found(1e-5)
  for tolerance in (1e-3, 0.1, 10.0):
    assert (found(tolerance) >= fine * (1 - 1e-9)).all()
  assert (found(1e-3, most=0) >= fine).all()
  assert np.isfinite(found(1e-3, most=0)).all()
  log_moments.log_moments.cache_clear()


@pytest.mark.parametrize("distance", [1e-3, 0.5, 4.0])
def test_logarithms_of_profiles_go_on_below_the_smallest_double(distance):
  # From where doubles end to far below, against high precision.
  for deviations in (20.0, 36.0, 60.0, 500.0):
    log_alpha = distance * (distance / 2 + deviations)
    got = log_moments.log_hockey_stick(np.asarray([log_alpha]), distance)[0]
    with mpmath.workdps(60):
      d, u = mpmath.mpf(distance), mpmath.mpf(log_alpha)
      value = mpmath.ncdf(d / 2 - u / d) - mpmath.exp(u) * mpmath.ncdf(
          -d / 2 - u / d
      )
      truth = float(mpmath.log(value))
    assert got == pytest.approx(truth, rel=1e-12, abs=1e-9)
  kind = accounting.Amplification((0.1,), 0.2, (distance / 2,), distance)
  log_alpha = np.linspace(0, 80 * distance, 400)
  for direction in amplification.DIRECTIONS:
    got = log_moments._log_excess(kind, log_alpha, direction)
    value = unit_profile.excess((kind,), log_alpha, direction)
    seen = value > 1e-279
    np.testing.assert_allclose(got[seen], np.log(value[seen]), rtol=1e-12)
    with np.errstate(divide="ignore"):
      assert (got[~seen] >= np.log(value[~seen])).all()
    assert (got[1:] <= got[:-1] + 1e-9).all()


def test_orders_are_dense_and_end_where_they_are_told():
  found = np.asarray(moments.orders(512))
  assert found[0] < 1.011 and found[-1] == 512
  assert set(range(2, 513)) <= set(found.tolist())
  assert (np.diff(np.log(found - 1)) <= math.log(1.1) + 1e-3).all()
  assert moments.orders(20)[-1] == 20


def test_a_number_of_places_that_is_large_at_most_has_moments():
  """What is unlikely is bounded by the largest number, not left out."""
  many = recurrence.Recurrence(
      places=1000, place_rate=1e-3, rate=0.5, distance=0.01
  )
  few = recurrence.Recurrence(
      places=40, place_rate=0.025, rate=0.5, distance=0.01
  )
  orders = (1.5, 2.0, 4.0)
  for direction in amplification.DIRECTIONS:
    found = log_moments.log_moments((many,), direction, orders)
    near = log_moments.log_moments((few,), direction, orders)
    np.testing.assert_allclose(found, near, rtol=0.03)
    assert (found > near).all()  # Binomial numbers of a mean: more spread.
