"""Properties of every accountant, and a reference for each."""

import dataclasses
import itertools
import math

from dp_accounting import dp_event
from dp_accounting.pld import pld_privacy_accountant
from dp_accounting.rdp import rdp_privacy_accountant
import mpmath
import pytest
from scipy import integrate

from episodic_dp import plan
from episodic_dp.accounting.accountants import base
from episodic_dp.accounting.accountants import moments
from episodic_dp.accounting.accountants import pld
from episodic_dp.accounting.guarantee import ACCOUNTANTS
from episodic_dp.accounting.guarantee import get_accountant
from episodic_dp.accounting.profiles import amplification
from episodic_dp.plan import sampler_error

Phase = base.Phase


def unit_profiles(q, p, outer, own):
  return (amplification.Amplification((q,), p, (outer,), own),)


def poisson(p, z):
  return unit_profiles(1.0, p, 1 / z, 1 / z)


def release(z):
  return unit_profiles(1.0, 1.0, 1 / z, 1 / z)


IMAGES = unit_profiles(0.05, 0.3, 1.0, 2.0)
TASKS = poisson(0.02, 1.5)
RAGGED = (
  *unit_profiles(0.1, 0.2, 0.5, 1.0),
  *unit_profiles(0.3, 0.05, 0.5, 1.0),
)


def tails(variation):
  """Return an error that no ratio of probabilities bounds."""
  return sampler_error.SamplerError(
      variation=variation, tails=variation, unmatched=math.inf
  )


class AccountantTest:
  """Inherited by the test of every accountant."""

  # To be set by the test of an accountant:
  accountant: base.Accountant
  tolerance: float  # relative, of its epsilon: grids and the like
  loosest: float  # how many times the exact epsilon of a Gaussian it may give
  reference: list[tuple[base.Phases, str, float, float]]

  def poisson_reference(self, p, z, steps, delta):
    """Epsilon of another implementation."""
    raise NotImplementedError

  def floor(self, delta):
    """Epsilon of a run that reveals nothing."""
    del delta
    return 0.0

  def epsilon(self, phases, delta=1e-6, direction="remove", error=0.0):
    return self.accountant.epsilon(phases, direction, delta, tails(error))

  @pytest.mark.parametrize("z", [0.3, 3.0, 1000.0])
  @pytest.mark.parametrize("steps", [1, 100, 10**5])
  @pytest.mark.parametrize("delta", [1e-5, 1e-15])
  def test_never_below_exact_gaussians(self, z, steps, delta):
    run = (Phase(release(z), steps),)
    exact = base.GaussianCurve(steps**0.5 / z).epsilon(delta)
    for direction in amplification.DIRECTIONS:
      got = self.epsilon(run, delta, direction)
      most = exact * self.loosest + 2 * self.floor(delta)
      assert exact * (1 - 1e-8) <= got <= most
      if 0 < exact < 50:
        delta_there = self.accountant.delta(run, direction, exact)
        assert delta_there >= delta * (1 - 1e-6)

  @pytest.mark.parametrize("p,z", [(0.01, 1.0), (0.3, 2.0), (0.004, 0.6)])
  def test_poisson_agrees_with_another_implementation(self, p, z):
    run = (Phase(poisson(p, z), 60),)
    got = max(
        self.epsilon(run, direction=d) for d in amplification.DIRECTIONS
    )
    theirs = self.poisson_reference(p, z, 60, 1e-6)
    assert got == pytest.approx(theirs, rel=5e-3)

  def test_phases_compose_in_any_order(self):
    phases = (Phase(IMAGES, 30), Phase(TASKS, 400), Phase(release(40.0), 9))
    found = [self.epsilon(order) for order in itertools.permutations(phases)]
    assert max(found) <= min(found) * (1 + self.tolerance)
    for phase in phases:
      assert self.epsilon((phase,)) < min(found)

  def test_different_gaussians_compose_exactly(self):
    # Multipliers 6 and 8 / sqrt(4): squares of distances add up.
    run = (Phase(release(6.0), 1), Phase(release(8.0), 4))
    exact = base.GaussianCurve((1 / 36 + 4 / 64) ** 0.5).epsilon(1e-6)
    got = self.epsilon(run)
    assert exact <= got <= exact * self.loosest

  @pytest.mark.parametrize("delta", [1e-3, 1e-7, 1e-12])
  def test_delta_of_epsilon_is_delta(self, delta):
    run = (Phase(IMAGES, 50), Phase(TASKS, 50))
    curve = self.accountant.curve(run, "remove", delta=delta)
    epsilon = curve.epsilon(delta)
    assert epsilon > 0
    assert curve.delta(epsilon) <= delta * (1 + 1e-6)
    assert curve.delta(epsilon) >= delta * (1 - 1e-3)
    # Asked for epsilon, another grid may be chosen.
    again = self.accountant.delta(run, "remove", epsilon)
    assert again == pytest.approx(delta, rel=30 * self.tolerance)

  def test_error_of_the_sampler_is_charged_on_both_neighbours(self):
    run, delta, error = (Phase(TASKS, 100),), 1e-6, 1e-9
    charged = self.epsilon(run, delta, error=error)
    left = delta - error * (1 + math.exp(charged))
    assert self.epsilon(run, delta) < charged == pytest.approx(
        self.epsilon(run, left), rel=self.tolerance
    )
    for large in (delta / 2, 0.1):
      assert math.isinf(self.epsilon(run, delta, error=large))
    plain = self.accountant.delta(run, "remove", 1.0)
    more = self.accountant.delta(run, "remove", 1.0, tails(error))
    assert more - plain == pytest.approx(error * (1 + math.e), rel=1e-6)

  def test_reference_values(self):
    for run, direction, delta, value in self.reference:
      found = self.epsilon(run, delta, direction)
      assert value * 0.97 <= found <= value * 1.003


class TestPLD(AccountantTest):
  accountant = pld.PLD()
  tolerance = 1e-3
  loosest = 1.001
  reference = [
    (
      (Phase(unit_profiles(0.004, 0.2, outer, 2.0), 250),),
      d,
      1e-6,
      value,
    )
    for outer, pair in ((2.0, (3.242, 0.486)), (1.0, (0.1116, 0.1066)))
    for d, value in zip(amplification.DIRECTIONS, pair)
  ] + [
    ((Phase(poisson(0.004, 1.0), 250),), "remove", 1e-6, 0.498),
    (
      (Phase(unit_profiles(1.0, 0.004, 2.0, 2.0), 250),),
      "remove",
      1e-6,
      6.11,
    ),
  ]

  def poisson_reference(self, p, z, steps, delta):
    accountant = pld_privacy_accountant.PLDAccountant(
        value_discretization_interval=1e-3
    )
    accountant.compose(
        dp_event.PoissonSampledDpEvent(p, dp_event.GaussianDpEvent(z)), steps
    )
    return accountant.get_epsilon(delta)


class TestRDP(AccountantTest):
  accountant = moments.RDP()
  tolerance = 1e-3
  loosest = 1.2

  def floor(self, delta):
    # A divergence below sqrt(delta) is no more than delta; else it takes orders
    # of about sqrt(-2 ln delta) / distance, and there are 512.
    return -math.log(delta) / 512
  reference = [
      # Of dp_accounting's accountant with every order up to 512.
      ((Phase(poisson(0.004, 1.0), 250),), "remove", 1e-6, 1.1815),
      ((Phase(poisson(0.004, 3.0), 250),), "remove", 1e-6, 0.10907),
  ]

  def poisson_reference(self, p, z, steps, delta):
    orders = [order for order in moments.orders(128) if order > 1.3]
    accountant = rdp_privacy_accountant.RdpAccountant(orders)
    accountant.compose(
        dp_event.PoissonSampledDpEvent(p, dp_event.GaussianDpEvent(z)), steps
    )
    return accountant.get_epsilon(delta)

  def test_refuses_orders_that_make_no_sense(self):
    for wrong in (1, 0, -5, 2.5, True, 10**6):
      with pytest.raises(plan.PlanError, match=f"max_order={wrong}"):
        dataclasses.replace(self.accountant, max_order=wrong)


class TestMoments(TestRDP):
  accountant = moments.Moments()
  tolerance = 1e-3
  loosest = 2.1  # The lowest order is 2.

  def floor(self, delta):
    return -math.log(delta) / 256

  reference = [
      ((Phase(poisson(0.004, 1.0), 250),), "remove", 1e-6, 1.517),
      ((Phase(poisson(0.004, 2.0), 250),), "remove", 1e-6, 0.355),
      ((Phase(poisson(0.004, 3.0), 250),), "remove", 1e-6, 0.167),
  ]

  def poisson_reference(self, p, z, steps, delta):
    """[S] (2.10) and (2.14), E_1 and E_2 (2.15, 2.16) by quadrature."""
    best = math.inf
    for power in range(1, 20):

      def integrand(x, exponent):
        ratio = math.log1p(p * math.expm1((2 * x - 1) / (2 * z * z)))
        normal = math.exp(exponent * ratio - x * x / (2 * z * z))
        return normal / (z * math.sqrt(2 * math.pi))

      reach = z * 12 + power + 1
      first, second = (
          integrate.quad(
              integrand, -reach, reach, (exponent,), limit=400,
              points=[0.0, power + 1.0],
          )[0]
          for exponent in (-power, power + 1)
      )
      alpha = steps * math.log(max(first, second))
      best = min(best, (alpha - math.log(delta)) / power)
    return best


RUNS = {
    "images": (Phase(IMAGES, 50),),
    "tasks": (Phase(TASKS, 1000),),
    "ragged": (Phase(RAGGED, 300),),
    "mixed": (Phase(IMAGES, 30), Phase(TASKS, 400)),
    "rare": (Phase(poisson(1e-4, 0.7), 10_000),),
    "large": (Phase(release(0.3), 50),),
}


@pytest.mark.parametrize("name", RUNS)
@pytest.mark.parametrize("delta", [1e-5, 1e-12])
def test_a_tighter_accountant_never_exceeds_a_looser_one(name, delta):
  for direction in amplification.DIRECTIONS:
    tight, middle, loose = (
        get_accountant(which).epsilon(RUNS[name], direction, delta)
        for which in ACCOUNTANTS
    )
    assert 0 < tight <= middle * (1 + 1e-3)
    assert middle <= loose * (1 + 1e-9)


@pytest.mark.parametrize("distance", [0.02, 0.3, 1.0, 7.0])
@pytest.mark.parametrize("epsilon", [0.0, 1e-3, 0.1, 0.9, 3.0, 30.0])
def test_one_gaussian_in_fifty_digits(distance, epsilon):
  """Delta and epsilon are the exact ones, rounded up."""

  def exact(x):
    with mpmath.workdps(50):
      d, e = mpmath.mpf(distance), mpmath.mpf(x)
      return mpmath.ncdf(d / 2 - e / d) - mpmath.exp(e) * mpmath.ncdf(
          -d / 2 - e / d
      )

  curve = base.GaussianCurve(distance)
  delta = curve.delta(epsilon)
  # Doubles end at about 1e-308.
  assert exact(epsilon) - 1e-300 <= delta <= exact(epsilon) * (1 + 1e-6)
  for wanted in (1e-2, 1e-6, 1e-15):
    found = curve.epsilon(wanted)
    assert exact(found) <= wanted
    assert found == 0 or exact(found * (1 - 1e-6)) > wanted


def test_accountants_are_found_by_name():
  for name in ACCOUNTANTS:
    found = get_accountant(name)
    assert found.name == name and get_accountant(found) is found
  with pytest.raises(plan.PlanError, match="'magic'.*'pld'"):
    get_accountant("magic")
