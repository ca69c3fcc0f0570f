"""One pass over the units: exact integration, sampling, and its properties."""


import numpy as np
import pytest

from episodic_dp import plan
from episodic_dp.accounting.accountants import base
from episodic_dp.accounting.guarantee import get_accountant
from episodic_dp.accounting.profiles import allocation
from episodic_dp.accounting.profiles import amplification
from episodic_dp.accounting.profiles import unit_profile

Allocation = allocation.Allocation
EPSILONS = np.array([0.0, 0.05, 0.2, 0.6, 1.5])


def divergence(kind, epsilon, direction):
  return kind.divergence(np.atleast_1d(epsilon), direction)


def two_steps(d, shift, observed=2):
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
  if observed == 1:
    return p.sum(axis=1), q.sum(axis=1)
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
    f = unit_profile.profile((kind,), around, direction)
    assert violation_of_convexity(around, f).max() < 1e-12


def epsilon(kind, times, delta):
  pld = get_accountant("pld")
  return {
      direction: pld.epsilon(
          (base.Phase((kind,), times),), direction, delta
      )
      for direction in amplification.DIRECTIONS
  }


def test_published_values():
  """Brackets by the algorithm of arXiv:2602.17284 (PLD_accounting 2.0)."""
  for steps, low, high in ((20, 2.0276, 2.0372), (250, 0.4490, 0.4587)):
    one_pass = epsilon(Allocation(steps, steps, 1.0), 1, 1e-6)
    assert low <= max(one_pass.values()) <= high


@pytest.mark.parametrize("name", ["rdp", "moments"])
def test_other_accountants_are_looser_but_of_use(name):
  """Their moments read the profile far beyond what decides a delta."""
  run = (base.Phase((Allocation(250, 250, 1.0),), 1),)
  for direction, pld, limit in (("remove", 0.4525, 1.6), ("add", 0.3053, 1.0)):
    value = get_accountant(name).epsilon(run, direction, 1e-6)
    assert pld <= value < limit


@pytest.mark.parametrize("steps,observed", [(5, 0), (5, 6)])
def test_impossible_passes_are_refused(steps, observed):
  with pytest.raises(plan.PlanError, match=f"observed={observed}.*steps=5"):
    Allocation(steps, observed, 1.0)
