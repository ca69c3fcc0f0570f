"""Selection among runs: against its exact law, and against other bounds."""

import math

import numpy as np
import pytest
from scipy import special

from episodic_dp.accounting import private_selection
from episodic_dp.accounting import run_counts
from episodic_dp.accounting.accountants import rdp
from episodic_dp.accounting.accountants.phases import Phase
from episodic_dp.accounting.profiles import amplification

COUNTS = [
    run_counts.geometric(10.0),
    run_counts.logarithmic(0.02),
    run_counts.TruncatedNegativeBinomial(shape=-0.5, gamma=0.01),
    run_counts.PoissonRuns(mean=5.0),
    run_counts.PoissonRuns(mean=0.3),
]
ORDERS = (1.5, 2.0, 5.0)
X = np.linspace(-12, 14, 100_001)


def slope(count, x):
  """f'(x) of the generating function of the number of runs."""
  if isinstance(count, run_counts.PoissonRuns):
    return count.mean * np.exp(count.mean * (x - 1))
  s, g = count.shape, count.gamma
  return count.mean * (g / (1 - (1 - g) * x)) ** (s + 1)


def chosen(count, centre, sign):
  """The density of the best of K unit Gaussians, the largest or smallest."""
  density = np.exp(-((X - centre) ** 2) / 2) / math.sqrt(2 * math.pi)
  return density * slope(count, special.ndtr(sign * (X - centre)))


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("distance", [0.2, 1.0])
def test_the_bounds_are_above_the_exact_law(count, distance):
  run = (Phase((amplification.Amplification((), 1.0, (), distance),), 1),)
  selection = private_selection.PrivateSelection(((run,),), count)
  step = X[1] - X[0]
  none = 0.0
  if isinstance(count, run_counts.PoissonRuns):
    none = math.exp(-count.mean)
  epsilons = np.asarray([0.0, 0.2, 0.7, 1.5, 3.0])
  for sign in (1, -1):
    with_unit, without = (chosen(count, d, sign) for d in (distance, 0.0))
    assert with_unit.sum() * step + none == pytest.approx(1, abs=1e-6)
    for direction, p, q in (
        ("remove", with_unit, without), ("add", without, with_unit)
    ):
      told = selection.divergence(epsilons, direction)
      true = [np.maximum(p - math.exp(e) * q, 0).sum() * step for e in epsilons]
      assert np.all(np.asarray(true) <= told + 1e-9)
      told = selection.log_moments(direction, ORDERS)
      true = [
          math.log(none + (p**n * q ** (1 - n)).sum() * step) for n in ORDERS
      ]
      assert np.all(np.asarray(true) <= told + 1e-6)


def test_a_single_run_is_told_to_be_little_worse_than_itself():
  # The geometric number of mean 1 + 1e-3 is nearly always 1.
  run = (Phase((amplification.Amplification((), 1.0, (), 0.3),), 1),)
  selection = private_selection.PrivateSelection(
      ((run,),), run_counts.geometric(1.001)
  )
  epsilons = np.asarray([0.2, 0.5, 1.0])
  plain = amplification.hockey_stick(epsilons, 0.3)
  told = selection.divergence(epsilons, "remove")
  assert np.all(plain <= told) and np.all(told <= 1.05 * plain)


def test_theorem_two_of_papernot_and_steinke_is_the_bound_by_moments():
  distance, count = 0.3, run_counts.geometric(20.0)
  run = (Phase((amplification.Amplification((), 1.0, (), distance),), 1),)
  selection = private_selection.PrivateSelection(((run,),), count)
  orders = (2.0, 8.0, 32.0)
  other = np.asarray(rdp.orders(512))
  renyi = other * distance**2 / 2
  shift = ((1 - 1 / other) * renyi + math.log(20) / other).min()
  for order, found in zip(orders, selection.log_moments("add", orders)):
    theirs = order * distance**2 / 2 + 2 * shift + math.log(20) / (order - 1)
    assert found / (order - 1) == pytest.approx(theirs, rel=2e-3)
    assert found / (order - 1) >= theirs * (1 - 1e-9)


def test_the_worst_candidate_and_the_best_way_count():
  near, far = (
      (Phase((amplification.Amplification((), 1.0, (), d),), 1),)
      for d in (0.2, 0.4)
  )
  count = run_counts.geometric(5.0)
  epsilons = np.asarray([0.5, 1.0, 2.0])

  def told(*candidates):
    return private_selection.PrivateSelection(candidates, count).divergence(
        epsilons, "add"
    )

  assert np.all(told((near,), (far,)) >= told((far,)) * (1 - 1e-9))
  np.testing.assert_allclose(told((near, far)), told((near,)), rtol=1e-2)


def test_mean_numbers_of_runs_are_those_of_the_distributions():
  k = np.arange(1, 4000)
  weights = {
      0.0: 0.98**k / k,
      1.0: 0.98**k,
      2.0: 0.98**k * (k + 1),
  }
  for shape, weight in weights.items():
    count = run_counts.TruncatedNegativeBinomial(shape=shape, gamma=0.02)
    true = (k * weight).sum() / weight.sum()
    assert count.mean == pytest.approx(true, rel=1e-9)
  assert run_counts.geometric(50.0).mean == pytest.approx(50)
  assert run_counts.logarithmic(0.02).shape == 0
