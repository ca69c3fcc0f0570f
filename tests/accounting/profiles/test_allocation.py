"""One pass over the units: integration, quadrature, and its properties."""

import dataclasses

import numpy as np
import pytest
from scipy import special

from episodic_dp import plan
from episodic_dp.accounting import composition
from episodic_dp.accounting.accountants import base
from episodic_dp.accounting.guarantee import get_accountant
from episodic_dp.accounting.profiles import allocation
from episodic_dp.accounting.profiles import amplification
from tests import plans
from tests.accounting import enumerated

Allocation = allocation.Allocation
EPSILONS = np.array([0.0, 0.05, 0.2, 0.6, 1.5])


def divergence(kind, epsilon, direction):
  return kind.divergence(np.atleast_1d(epsilon), direction)


def two_steps(d, shift):
  """Masses of (P, Q) on a plane of outputs, for two steps of a pass.

  The second step's distance may depend on what the first step released.
  """
  y = np.arange(-8, 8 + d, 0.05)
  first, second = np.meshgrid(y, y, indexing="ij")
  moved = shift(first)
  assert np.abs(moved).max() <= d

  def normal(x):
    return np.exp(-x * x / 2) * 0.05 / np.sqrt(2 * np.pi)

  q = normal(first) * normal(second)
  in_first = normal(first - d) * normal(second)
  in_second = normal(first) * normal(second - moved)
  p = (in_first + in_second) / 2
  return p, q


def exact(p, q, epsilon, direction):
  one, other = (p, q) if direction == "remove" else (q, p)
  return float(np.maximum(one - np.exp(epsilon) * other, 0).sum())


@pytest.mark.parametrize("d", [0.5, 1.0, 2.0])
def test_two_steps_by_exact_integration(d):
  """Equal for the same distance in every step, never above for any other."""
  shifts = (
      lambda y: d * np.ones_like(y),
      lambda y: -d * np.ones_like(y),
      lambda y: d * np.sign(y - d / 2),  # depends on the first release
      lambda y: d * np.where(y > d / 2, 1.0, 0.3),
  )
  kind = Allocation(2, 2, d)
  for direction in amplification.DIRECTIONS:
    bound = divergence(kind, EPSILONS, direction)
    for i, shift in enumerate(shifts):
      p, q = two_steps(d, shift)
      for epsilon, value in zip(EPSILONS, bound):
        truth = exact(p, q, epsilon, direction)
        assert truth <= value * (1 + 1e-5) + 1e-9
        if i < 2:
          assert value == pytest.approx(truth, rel=2e-3, abs=1e-8)
        elif i == 3 and epsilon > 0:
          assert truth < 0.99 * value


def violation_of_convexity(log_alpha, value):
  """Measure how far inner values lie above their neighbours' chord."""
  step = log_alpha[1] - log_alpha[0]
  share = -np.expm1(-step) / (np.expm1(step) - np.expm1(-step))
  return value[1:-1] - (1 - share) * value[:-2] - share * value[2:]


KINDS = [
    Allocation(2, 2, 1.0), Allocation(20, 20, 0.3), Allocation(20, 5, 2.0),
    Allocation(250, 250, 1.0), Allocation(3, 3, 6.0), Allocation(4, 4, 40.0),
]


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_convex_in_alpha_and_below_its_tail(kind):
  """Composition and moments rely on this, also beyond the grid."""
  reach = 2 * kind.distance * 11.5 + kind.distance**2
  log_alpha = np.linspace(0, reach, 40_001)
  weight, distance = kind.tail
  revealed = amplification.hockey_stick(log_alpha, distance)
  for direction in amplification.DIRECTIONS:
    value = divergence(kind, log_alpha, direction)
    assert (value <= weight * revealed).all()
    assert (np.diff(value) <= 1e-12 * value[1:]).all()
    violation = violation_of_convexity(log_alpha, value)
    assert violation.max() < 1e-12
    some = value[1:-1] > 1e-25
    assert (violation[some] / value[1:-1][some]).max() < 1e-9
    # The whole profile, whose one side comes from the other direction.
    around = np.linspace(-1.0, 1.0, 801) * min(reach, 5.0)
    f = enumerated.profile((kind,), around, direction)
    assert violation_of_convexity(around, f).max() < 1e-12


def epsilon(kind, times, delta):
  pld = get_accountant("pld")
  return {
      direction: pld.answer(
          (base.Phase((kind,), times),), direction, base.Delta(delta)
      )
      for direction in amplification.DIRECTIONS
  }


def test_published_values():
  """Brackets by the algorithm of arXiv:2602.17284 (PLD_accounting 2.0)."""
  for z, steps, delta, low, high in (
      (1.0, 20, 1e-6, 2.0276, 2.0372),
      (1.0, 250, 1e-6, 0.4490, 0.4587),
      (1.0, 8, 1e-8, 3.7002, 3.7333),
      (2.0, 64, 1e-8, 0.3233, 0.3362),
      (0.5, 16, 1e-8, 9.9671, 9.9939),
  ):
    one_pass = epsilon(Allocation(steps, steps, 1 / z), 1, delta)
    assert low <= max(one_pass.values()) <= high


@pytest.mark.parametrize("name", ["rdp", "moments"])
def test_other_accountants_are_looser_but_of_use(name):
  """Their moments read the profile far beyond what decides a delta."""
  run = (base.Phase((Allocation(250, 250, 1.0),), 1),)
  for direction, pld, limit in (("remove", 0.4525, 1.6), ("add", 0.3053, 1.0)):
    at = base.Delta(1e-6)
    value = get_accountant(name).answer(run, direction, at)
    assert pld <= value < limit


# Sums of lognormal variables --------------------------------------------------


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
  total = allocation.copies(d, number)
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
  truth = np.log(allocation.copies(d, number).at(number * np.expm1(share)))
  bound = allocation.log_below(d, number, share) + np.log(number)
  assert (bound >= truth - 1e-3).all() and (bound <= truth + 6).all()


# Units inside the primary units of a pass -------------------------------------


def nested(d, q, p):
  return allocation.NestedAllocation(
      whole=allocation.Allocation(2, 2, d), parent_rate=q, rate=p
  )


def test_profile_falls_and_is_convex():
  log_alpha = np.linspace(0, 6, 601)
  alpha = np.exp(log_alpha)
  for direction in amplification.DIRECTIONS:
    value = nested(1.0, 0.5, 0.3).divergence(log_alpha, direction)
    slope = np.diff(value) / np.diff(alpha)
    assert (slope <= 1e-12).all() and (np.diff(slope) >= -1e-9).all()
    assert not nested(1.0, 0.5, 0.0).divergence(log_alpha, direction).any()


HIERARCHY = plans.tree("participant class image", 400_000, 5, 10)
TASKS = plan.Mechanism(clip_unit="participant", noise_multiplier=1.0)


@pytest.mark.parametrize("steps", [1, 21, 40])
@pytest.mark.parametrize("level", ["participant", "image"])
def test_one_step_alone_is_a_poisson_step(level, steps):
  def phases(first, steps):
    p = plans.sampling(first, 5, 2)
    release = plan.Release(HIERARCHY, p, TASKS)
    return composition.phases_of(composition.Entry(release, steps), level)

  found = phases(plan.RandomAllocation(20), steps)
  one = phases(plan.Poisson(1 / 20), 1)
  assert found[:1] == one if steps % 20 else one[0] not in found
  assert sum(phase.times for phase in found) == -(-steps // 20)
  whole = phases(plan.RandomAllocation(1), steps)
  assert whole == (
      dataclasses.replace(phases(plan.All(), 1)[0], times=steps),
  )
