"""The one-step profile: against high precision, and its properties."""


import mpmath
import numpy as np
import pytest
from scipy import optimize

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
  kind = amplification.Amplification((q,), p, (distance,), distance)
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


def test_ragged_profile_is_the_pointwise_maximum():
  unit_profiles = (
      amplification.Amplification((0.1,), 0.5, (1.0,), 2.0),
      amplification.Amplification((0.5,), 0.1, (1.0,), 2.0),
  )
  log_alpha = np.linspace(-2, 2, 41)
  for direction in amplification.DIRECTIONS:
    each = [
      unit_profile.profile((k,), log_alpha, direction) for k in unit_profiles
    ]
    both = unit_profile.profile(unit_profiles, log_alpha, direction)
    np.testing.assert_array_equal(both, np.maximum(*each))
