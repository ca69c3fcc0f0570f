"""The one-step profile: against high precision, and its properties."""

import math

from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
import mpmath
import numpy as np
import pytest
from scipy import optimize

from episodic_dp import accounting
from episodic_dp.accounting.profiles import amplification
from episodic_dp.accounting.profiles import unit_profile


def oracle_hockey_stick(alpha, distance):
  """Phi(d/2 - ln(alpha)/d) - alpha Phi(-d/2 - ln(alpha)/d)."""
  d, log_alpha = mpmath.mpf(distance), mpmath.log(alpha)
  return mpmath.ncdf(d / 2 - log_alpha / d) - alpha * mpmath.ncdf(
      -d / 2 - log_alpha / d
  )


def oracle_w(w, alpha, distance):
  return w * oracle_hockey_stick((alpha - 1 + w) / w, distance)


@pytest.mark.parametrize("distance", [1e-3, 0.1, 1.0, 7.0, 60.0])
@pytest.mark.parametrize("epsilon", [0.0, 1e-4, 0.3, 2.0, 40.0])
@pytest.mark.parametrize("q,p", [(1.0, 1.0), (0.004, 0.2), (0.3, 1e-5)])
def test_one_distance_agrees_with_high_precision(q, p, epsilon, distance):
  kind = accounting.Amplification((q,), p, (distance,), distance)
  with mpmath.workdps(60):
    alpha = mpmath.exp(mpmath.mpf(epsilon))
    weights = {
        "remove": mpmath.mpf(q) * p,
        "add": q * (1 - alpha * (1 - mpmath.mpf(p))),
    }
    for direction, w in weights.items():
      truth = float(oracle_w(w, alpha, distance)) if w > 0 else 0.0
      got = float(kind.divergence(np.asarray([epsilon]), direction)[0])
      assert got == pytest.approx(truth, rel=1e-8, abs=1e-250)


def test_weighted_covers_every_ratio():
  with mpmath.workdps(40):
    for w, k, d in [(0.3, 0.1, 2.0), (0.1, 0.3, 2.0), (1e-9, 0.5, 0.5)]:
      truth = float(w * oracle_hockey_stick(mpmath.mpf(k) / w, d))
      got = amplification.weighted(np.log([w]), np.log([k]), d)[0]
      assert got == pytest.approx(truth, rel=1e-9)
  with np.errstate(divide="ignore"):
    zero = np.log([0.0])
  some = np.log([0.25])
  assert amplification.weighted(some, zero, 1.0)[0] == pytest.approx(0.25)
  assert amplification.weighted(zero, some, 1.0)[0] == 0
  assert amplification.weighted(zero, zero, 1.0)[0] == 0


@pytest.mark.parametrize(
    "direction,epsilon,value", [("remove", 0.5, 0.01148), ("add", 0.2, 0.01077)]
)
def test_hospital_example(direction, epsilon, value):
  kind = accounting.Amplification((0.1, 0.5), 0.5, (20.0, 2.0), 2.0)
  got = kind.divergence(np.asarray([epsilon]), direction)[0]
  assert got == pytest.approx(value, abs=5e-6)


def test_best_split_is_the_least_of_a_search():
  terms = [(0.03, 1.0), (0.2, 2.0)]
  weight = 0.05

  def split(u):
    return sum(
        amplification.weighted(np.log([w]), np.log([k]), d)[0]
        for w, (k, d) in zip((u, weight - u), terms)
    )

  found = optimize.minimize_scalar(
      split, bounds=(1e-12, weight - 1e-12), method="bounded",
      options={"xatol": 1e-12},
  )
  got = amplification.best_split(
      np.log([weight]), [(np.log([k]), d) for k, d in terms]
  )[0]
  assert got == pytest.approx(found.fun, rel=1e-6)
  assert got <= found.fun * (1 + 1e-9)
  ends = [split(1e-300), split(weight * (1 - 1e-16))]
  assert got < min(ends)


def test_three_distances_are_below_every_merged_pair():
  epsilon = np.linspace(0, 1, 21)
  three = accounting.Amplification((0.2, 0.5), 0.3, (6.0, 1.0), 2.0)
  wider = accounting.Amplification((0.2, 0.5), 0.3, (6.0, 2.0), 2.0)
  revealed = accounting.Amplification((0.5,), 0.3, (1.0,), 2.0)
  for direction in amplification.DIRECTIONS:
    got = three.divergence(epsilon, direction)
    assert (got <= wider.divergence(epsilon, direction) + 1e-15).all()
    assert (got <= 0.2 * revealed.divergence(epsilon, direction) + 1e-15).all()


RATES = st.floats(0.001, 1.0)
DISTANCES = st.floats(0.05, 8.0)


@settings(max_examples=60, deadline=None)
@given(RATES, RATES, RATES, DISTANCES, DISTANCES, DISTANCES, st.booleans())
def test_profile_is_a_profile(r1, r2, p, d1, d2, spread, remove):
  # Two outputs that are both within the outer distances of a third.
  own = min(spread, 2 * min(d1, d2))
  kind = accounting.Amplification((r1, r2), p, (d1, d2), own)
  direction = "remove" if remove else "add"
  log_alpha = np.linspace(-6, 6, 241)
  f = unit_profile.profile((kind,), log_alpha, direction)
  alpha = np.exp(log_alpha)
  assert (f >= np.maximum(1 - alpha, 0) - 1e-15).all() and (f <= 1).all()
  slope = np.diff(f) / np.diff(alpha)
  assert (slope <= 1e-12).all() and (slope >= -1 - 1e-9).all()
  assert (np.diff(slope) >= -1e-9).all()  # convex in alpha


@settings(max_examples=60, deadline=None)
@given(
    st.tuples(RATES, RATES, RATES),
    st.tuples(DISTANCES, DISTANCES, DISTANCES),
    st.integers(0, 5),
    st.floats(1.0, 3.0),
)
def test_profile_rises_with_every_rate_and_distance(rates, lengths, which, by):
  log_alpha = np.concatenate([[0, 1e-3], np.linspace(0.05, 5, 30)])
  small = [*rates, *lengths]
  large = list(small)
  large[which] *= by
  if which < 3:
    large[which] = min(1.0, large[which])

  def kind(v):
    return accounting.Amplification((v[0], v[1]), v[2], (v[3], v[4]), v[5])

  for direction in amplification.DIRECTIONS:
    low = kind(small).divergence(log_alpha, direction)
    high = kind(large).divergence(log_alpha, direction)
    assert (low <= high * (1 + 1e-9) + 1e-14).all()


def test_ragged_profile_is_the_pointwise_maximum():
  unit_profiles = (
      accounting.Amplification((0.1,), 0.5, (1.0,), 2.0),
      accounting.Amplification((0.5,), 0.1, (1.0,), 2.0),
  )
  log_alpha = np.linspace(-2, 2, 41)
  for direction in amplification.DIRECTIONS:
    each = [
      unit_profile.profile((k,), log_alpha, direction) for k in unit_profiles
    ]
    both = unit_profile.profile(unit_profiles, log_alpha, direction)
    np.testing.assert_array_equal(both, np.maximum(*each))


def test_extreme_arguments_stay_finite():
  log_alpha = np.asarray([-1e5, -800.0, -1e-12, 0.0, 1e-12, 800.0, 1e5])
  for d in (0.0, 1e-8, 1e4):
    for p in (1e-12, 0.5, 1.0):
      kind = accounting.Amplification((1e-9, 1.0), p, (d, 3.0), d)
      for direction in amplification.DIRECTIONS:
        f = unit_profile.profile((kind,), log_alpha, direction)
        assert np.isfinite(f).all() and (f >= 0).all() and (f <= 1).all()
  nothing = accounting.Amplification((0.0,), 0.5, (1.0,), 1.0)
  assert not nothing.divergence(np.asarray([0.0, 1.0]), "remove").any()
  assert math.prod(nothing.outer_rates) == nothing.parent_rate == 0
