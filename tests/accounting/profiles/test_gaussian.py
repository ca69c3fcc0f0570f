"""The Gaussian mechanism: classical and analytic, never too optimistic."""

import math

from dp_accounting import gaussian_mechanism
import mpmath
import pytest

from episodic_dp import plan
from episodic_dp.accounting.profiles import gaussian


def exact_delta(noise_multiplier, epsilon):
  """50 digits of Phi(1/(2z) - ez) - exp(e) Phi(-1/(2z) - ez)."""
  with mpmath.workdps(50):
    z, e = mpmath.mpf(noise_multiplier), mpmath.mpf(epsilon)
    half = 1 / (2 * z)
    return mpmath.ncdf(half - e * z) - mpmath.exp(e) * mpmath.ncdf(
        -half - e * z
    )


SETTINGS = [
    (epsilon, delta)
    for epsilon in (1e-3, 0.1, 0.9, 3.0, 30.0)
    for delta in (1e-2, 1e-6, 1e-15)
]


@pytest.mark.parametrize("epsilon,delta", SETTINGS)
def test_analytic_noise_is_the_least_that_is_enough(epsilon, delta):
  z = gaussian.analytic_noise_multiplier(epsilon, delta)
  assert exact_delta(z, epsilon) <= delta
  assert exact_delta(z * (1 - 1e-6), epsilon) > delta
  assert z == pytest.approx(
      gaussian_mechanism.get_sigma_gaussian(epsilon, delta, tol=1e-9), rel=1e-6
  )


@pytest.mark.parametrize("epsilon,delta", SETTINGS)
def test_analytic_answers_invert_each_other(epsilon, delta):
  z = gaussian.analytic_noise_multiplier(epsilon, delta)
  again = gaussian.analytic_epsilon(z, delta)
  assert again == pytest.approx(epsilon, rel=1e-6)
  assert exact_delta(z, again) <= delta
  assert gaussian.analytic_delta(z, epsilon) == pytest.approx(delta, rel=1e-6)
  assert gaussian.analytic_delta(z, epsilon) >= exact_delta(z, epsilon)


def test_nonsense_is_refused():
  for wrong in (0.0, -1.0, math.inf, math.nan):
    with pytest.raises(plan.PlanError, match="noise_multiplier"):
      gaussian.analytic_epsilon(wrong, 1e-6)
  for wrong in (0.0, 1.0, -1e-6, math.nan):
    with pytest.raises(plan.PlanError, match="delta"):
      gaussian.analytic_noise_multiplier(1.0, wrong)
  with pytest.raises(plan.PlanError, match="epsilon=-1"):
    gaussian.analytic_delta(1.0, -1)
