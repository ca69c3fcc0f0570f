"""Properties of every accountant, and references for each."""

import itertools
import math

from dp_accounting import dp_event
from dp_accounting.pld import pld_pmf
from dp_accounting.rdp import rdp_privacy_accountant
import mpmath
import numpy as np
import pytest
from scipy import integrate

from episodic_dp import accounting
from episodic_dp import plan
from episodic_dp.accounting import composition
from episodic_dp.accounting.accountants import base
from episodic_dp.accounting.accountants import moments
from episodic_dp.accounting.accountants import pld
from episodic_dp.accounting.guarantee import ACCOUNTANTS
from episodic_dp.accounting.guarantee import get_accountant
from episodic_dp.accounting.profiles import amplification
from episodic_dp.accounting.profiles import unit_profile
from episodic_dp.plan import sampler_error
from tests import plans
from tests.accounting import enumerated
from tests.refusals import assert_refused

Phase = base.Phase


def unit_profiles(q, p, outer, own):
  return (amplification.Amplification((q,), p, (outer,), own),)


def poisson(p, z):
  return unit_profiles(1.0, p, 1 / z, 1 / z)


def release(z):
  return unit_profiles(1.0, 1.0, 1 / z, 1 / z)


IMAGES = unit_profiles(0.05, 0.3, 1.0, 2.0)
TASKS = poisson(0.02, 1.5)


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

  def floor(self, delta):
    """Epsilon of a run that reveals nothing."""
    del delta
    return 0.0

  def epsilon(self, phases, delta=1e-6, direction="remove", error=0.0):
    return self.accountant.answer(
        phases, direction, base.Delta(delta), tails(error)
    )

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
        there = base.Epsilon(exact)
        delta_there = self.accountant.answer(run, direction, there)
        assert delta_there >= delta * (1 - 1e-6)

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
    curve = self.accountant.curve(run, "remove", base.Delta(delta))
    epsilon = curve.epsilon(delta)
    assert epsilon > 0
    assert curve.delta(epsilon) <= delta * (1 + 1e-6)
    assert curve.delta(epsilon) >= delta * (1 - 1e-3)
    # Asked for epsilon, another grid may be chosen.
    again = self.accountant.answer(run, "remove", base.Epsilon(epsilon))
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
    at = base.Epsilon(1.0)
    plain = self.accountant.answer(run, "remove", at)
    more = self.accountant.answer(run, "remove", at, tails(error))
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


def test_a_gaussian_at_an_infinite_distance_promises_nothing():
  curve = base.GaussianCurve(math.inf)
  assert curve.epsilon(0.5) == math.inf and curve.delta(9.0) == 1.0


def test_accountants_are_found_by_name():
  for name in ACCOUNTANTS:
    found = get_accountant(name)
    assert found.name == name and get_accountant(found) is found
  assert_refused(plan.PlanError, "'magic'.*'pld'", get_accountant, "magic")


# Privacy loss distributions ---------------------------------------------------


@pytest.mark.parametrize("direction", amplification.DIRECTIONS)
def test_one_step_agrees_with_connect_the_dots(direction):
  units = unit_profiles(0.1, 0.3, 1.0, 2.0)
  ours = pld.one_step(units, direction, (4.0, 4.0), 0.02)
  theirs = pld_pmf.create_pmf_pessimistic_connect_dots(
      ours.step,
      np.arange(ours.lower, ours.upper + 1),
      np.minimum.accumulate(
          enumerated.profile(units, ours.losses, direction)
      ),
  ).to_dense_pmf()
  np.testing.assert_allclose(ours.probs, theirs._probs, atol=1e-11)
  for epsilon in (0.0, 0.1, 1.0, 2.5):
    assert ours.delta(epsilon) == pytest.approx(
        theirs.get_delta_for_epsilon(epsilon), abs=1e-12
    )


def test_ratios_of_probabilities_are_charged_to_epsilon():
  units, steps, delta = unit_profiles(1.0, 0.1, 1.0, 1.0), 100, 1e-6
  run = (Phase(units, steps),)
  plain = pld.PLD().answer(run, "remove", base.Delta(delta))
  for variation in (1e-9, 1e-3):
    ratio = sampler_error.SamplerError(variation=variation, log_ratio=variation)
    charged = pld.PLD().answer(run, "remove", base.Delta(delta), ratio)
    assert plain < charged <= plain + 4 * variation
    there = base.Epsilon(charged)
    assert pld.PLD().answer(run, "remove", there, ratio) <= delta * 1.001
  unmatched = sampler_error.SamplerError(
      variation=1e-3, tails=1e-3, unmatched=1e-8
  )
  charged = pld.PLD().answer(run, "remove", base.Delta(delta), unmatched)
  left = base.Delta(delta - 1e-8)
  expected = pld.PLD().answer(run, "remove", left)
  assert charged == pytest.approx(expected, rel=1e-3)
  there = base.Epsilon(charged)
  assert pld.PLD().answer(run, "remove", there, unmatched) <= delta * 1.001


def test_every_guess_of_a_delta_is_a_bound_and_the_least_is_told():
  # The last guess, far below, needs a window that the transform has not: it
  # said 1.0, and so did the answer.
  h = plans.tree("unit", 1000)
  release = plans.release(h, plans.sampling(0.005), "unit", 10.0)
  found = [
      accounting.guarantee(
          release, steps=1000, level="unit", epsilon=epsilon
      ).delta
      for epsilon in (0.1, 0.3, 2.0, 5.0)
  ]
  assert found[:2] == sorted(found[:2], reverse=True)
  assert max(found[2:]) < 1e-22


@pytest.mark.parametrize(
    "step,points", [(1e-6, 500), (1e-3, 3000), (0.3, 4000), (35.0, 300)]
)
def test_sums_that_are_kept_are_the_plain_sums(step, points):
  rng = np.random.default_rng(points)
  probs = rng.random(points) * np.exp(
      -rng.random(points) * np.linspace(0, 500, points)
  )
  found = pld.Loss(step, -points // 10, probs / probs.sum(), 1e-9)
  last = float(found.losses[-1])
  for epsilon in (0.0, *rng.uniform(0, last, 20), last, 2 * last):
    above = found.losses > epsilon
    plain = found.infinity - (
        found.probs[above] * np.expm1(epsilon - found.losses[above])
    ).sum()
    assert found.delta(epsilon) == pytest.approx(plain, rel=1e-11)
  for delta in np.exp(rng.uniform(-20, 0, 20)):
    epsilon = found.epsilon(delta)
    assert found.delta(epsilon) <= delta * (1 + 1e-7)
    if epsilon > 0:
      assert found.delta(epsilon - 1e-3 * step) > delta
  assert math.isinf(found.epsilon(1e-10))


# Moments of one step ----------------------------------------------------------


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
@pytest.mark.few(3)
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
    got = amplification.log_hockey_stick(np.asarray([log_alpha]), distance)[0]
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


def ours_and_theirs(p, z):
  run = (Phase(poisson(p, z), 1),)
  curves = [
      moments.RDP(refinements=0).curve(run, d, base.Delta(1e-5))
      for d in amplification.DIRECTIONS
  ]
  place = np.searchsorted(curves[0].orders, ORDERS)
  ours = np.max([curve.rdp[place] for curve in curves], axis=0)
  accountant = rdp_privacy_accountant.RdpAccountant(ORDERS)
  accountant.compose(
      dp_event.PoissonSampledDpEvent(p, dp_event.GaussianDpEvent(z))
  )
  return ours, accountant.rdp


@pytest.mark.parametrize("z", [0.5, 1.0, 3.0, 30.0])
@pytest.mark.parametrize("p", [1e-4, 0.004, 0.3])
@pytest.mark.few(4)
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


# Exchanged units --------------------------------------------------------------


@pytest.mark.parametrize("distance", [1e-6, 1.0, 30.0])
@pytest.mark.few(2)
def test_two_gaussians_in_a_row_are_one_twice_as_far(distance):
  one, two = base.GaussianCurve(distance), base.GaussianCurve(2 * distance)
  both = composition.ReplaceOneCurve(one, one)
  for delta in (1e-2, 1e-12):
    found = both.epsilon(delta)
    assert two.epsilon(delta) * (1 - 1e-9) <= found < math.inf
    # No worse than half of delta for each, at the same epsilon.
    a = one.epsilon(delta / 2)
    assert found <= a + one.epsilon(delta / 2 * math.exp(-a)) + 1e-12
    if found > 0:
      back = both.delta(found)
      assert two.delta(found) * (1 - 1e-6) <= back <= delta * (1 + 1e-6)


def test_the_best_split_is_found():
  # R alone decides where A is nothing beyond a bounded loss.
  both = composition.ReplaceOneCurve(
      base.GaussianCurve(1.0), base.BoundedLoss(0.2, 0.0)
  )
  wanted = base.GaussianCurve(1.0).epsilon(1e-6) + 0.2
  assert both.epsilon(1e-6) == pytest.approx(wanted, rel=1e-6)


@pytest.mark.parametrize("steps", [1, 1000])
@pytest.mark.parametrize("distance", [0.3, 40.0])
def test_moments_bound_it_however_large_epsilon_is(distance, steps):
  unit = amplification.Amplification((), 1.0, (), distance)
  run = (Phase((unit,), steps),)
  truth = base.GaussianCurve(2 * distance * math.sqrt(steps))
  found = composition.by_moments(run)
  for delta in (1e-5, 1e-100):
    assert truth.epsilon(delta) <= found.epsilon(delta)
    assert found.epsilon(delta) <= 6 * truth.epsilon(delta)


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.few(8)
def test_moments_are_near_their_best_order(seed):
  rng = np.random.default_rng(seed)
  q = 1.0 if seed % 2 else 10 ** rng.uniform(-2, -0.3)
  p, z = 10 ** rng.uniform(-3, -0.3), rng.uniform(0.5, 4)
  delta, steps = 10 ** rng.uniform(-9, -3), int(10 ** rng.uniform(0, 3.5))
  kind = amplification.Amplification((q,), p, (rng.choice([1, 2]) / z,), 2 / z)
  run = (Phase((kind,), steps),)
  for accountant in map(get_accountant, ("rdp", "moments")):
    found = accountant.answer(run, "remove", base.Delta(delta))
    low, high, best = (1.0, 256.0, found) if accountant.plain else (
        0.0105, 511.0, found
    )
    for count in (200, 40, 40):
      order = 1 + np.geomspace(low, high, count)
      at = tuple(order.tolist())
      rdp = moments.total_log_moments(run, "remove", at) / (order - 1)
      values = [
          moments.RenyiCurve(*one, accountant.plain).epsilon(delta)
          for one in zip(order[:, None], rdp[:, None], strict=True)
      ]
      least = int(np.argmin(values))
      best = min(best, values[least])
      low, high = (order - 1)[[max(least - 2, 0), min(least + 2, count - 1)]]
    assert found <= 1.001 * best


def test_moments_near_a_phase_change():
  """Another program's test has 3.2392 on fine orders."""
  kind = amplification.Amplification((), 0.01, (), 1 / 0.7)
  run = (Phase((kind,), 120),)
  assert moments.RDP().answer(run, "remove", base.Delta(1e-5)) < 3.2392
