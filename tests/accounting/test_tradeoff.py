"""What an attacker gains: never below the truth, and near it."""

import math
import pickle

from dp_accounting.pld import privacy_loss_distribution
import numpy as np
import pytest
from scipy import optimize
from scipy import stats

from episodic_dp import accounting
from episodic_dp import plan
from episodic_dp.accounting.accountants import base
from tests import plans
from tests.refusals import assert_refused

phi, quantile = stats.norm.cdf, stats.norm.ppf


def guarantee(stage, z, steps=1, delta=1e-5, **options):
  release = plans.release(
      plans.tree("user", 1000), plans.sampling(stage), "user", z
  )
  return accounting.guarantee(
      release, steps=steps, delta=delta, level="user", **options
  )


@pytest.mark.parametrize("z", [0.5, 1.0, 20.0])
def test_one_gaussian_has_its_own_curve(z):
  found = guarantee(plan.All(), z)
  for rate in (1e-4, 0.01, 0.3):
    attack = found.attack(rate)
    exact = phi(quantile(rate) + 1 / z)
    assert exact <= attack.true_positive_rate <= 1.001 * exact
  assert 1 / z <= attack.gaussian_mu <= 1.001 / z
  assert attack.gaussian_delta == 1e-5


@pytest.mark.parametrize("p, z", [(0.3, 0.7), (0.01, 1.0)])
def test_one_sampled_step_has_the_power_of_the_best_test(p, z):
  """By Neyman and Pearson, for attackers who guess presence or absence."""
  attack = guarantee(plan.Poisson(p), z).attack(0.05)

  def with_unit(x):
    return (1 - p) * phi(x) + p * phi(x - 1 / z)

  presence = 1 - with_unit(-quantile(0.05))
  absence = phi(optimize.brentq(lambda x: with_unit(x) - 0.05, -9, 9))
  exact = max(presence, absence)
  assert exact <= attack.true_positive_rate <= 1.002 * exact


def of_dp_accounting(p, z, steps, interval, pessimistic):
  """Epsilons, and deltas of both directions there."""
  run = privacy_loss_distribution.from_gaussian_mechanism(
      z, sampling_prob=p, pessimistic_estimate=pessimistic,
      value_discretization_interval=interval, use_connect_dots=pessimistic,
  ).self_compose(steps)
  epsilons = np.linspace(0, 20, 4001)
  return epsilons, *(
      np.asarray(side.get_delta_for_epsilon(epsilons))
      for side in (run._pmf_remove, run._pmf_add)
  )


def gain(epsilons, remove, add, rate):
  alpha = np.exp(epsilons)
  return max(
      min(
          (alpha * rate + first).min(),
          (1 - (1 - rate - second) / alpha).min(),
      )
      for first, second in ((remove, add), (add, remove))
  )


@pytest.mark.slow
@pytest.mark.parametrize("p, z, steps", [(0.01, 1.0, 1000), (0.1, 0.8, 20)])
def test_sampled_steps_agree_with_dp_accounting(p, z, steps):
  delta = 1e-6
  attack = guarantee(plan.Poisson(p), z, steps, delta).attack()
  found = attack.true_positive_rate
  curve = of_dp_accounting(p, z, steps, 1e-4, True)
  assert found == pytest.approx(gain(*curve, 0.01), rel=3e-3)
  epsilons, *sides = curve
  most = np.max(sides, axis=0)
  some = most >= delta

  def covers(mu):
    gaussian = base.GaussianCurve(mu)
    deltas = np.asarray([gaussian.delta(e) for e in epsilons[some]])
    return (most[some] <= deltas * (1 + 1e-4)).all()

  assert covers(attack.gaussian_mu) and not covers(0.99 * attack.gaussian_mu)
  if steps < 100:  # Its optimistic curve is below the truth, and near it.
    below = gain(*of_dp_accounting(p, z, steps, 1e-4, False), 0.01)
    assert 0.99 * found < below * (1 + 1e-6) <= found


@pytest.mark.parametrize(
    "options, stage, mu",  # mu: of the exact curve, 0 if it is unknown.
    [
        (dict(neighbours="replace-one"), plan.All(), 1.0),
        (dict(group=2), plan.All(), 1.0),
        (dict(accountant="rdp"), plan.All(), 0.5),
        (dict(accountant="moments"), 0.1, 0),
        (dict(), 100, 0),
    ],
)
def test_other_relations_and_accountants_are_covered_too(options, stage, mu):
  found = guarantee(stage, 4.0, 4, **options)
  attack = found.attack()
  # The guarantee itself is a point of the curve.
  assert attack.true_positive_rate <= (
      math.exp(found.epsilon) * 0.01 + found.delta
  )
  curve = base.GaussianCurve(attack.gaussian_mu)
  assert curve.epsilon(found.delta) >= 0.999 * found.epsilon
  assert mu <= attack.gaussian_mu < 1.5
  assert attack.true_positive_rate >= phi(quantile(0.01) + mu)


def test_what_has_no_guarantee_has_no_bound():
  attack = guarantee(0.5, 0.0).attack()
  assert (attack.true_positive_rate, attack.gaussian_mu) == (1.0, math.inf)
  assert attack.as_dict()["gaussian_mu"] == "inf"


def test_the_uncovered_delta_is_said():
  """A unit that is seldom sampled may be revealed whole, at this delta."""
  found = guarantee(1e-4, 0.01, delta=1e-3)
  attack = found.attack()
  assert found.epsilon == attack.gaussian_mu == 0
  assert attack.gaussian_delta == 1e-3
  assert 0.0101 <= attack.true_positive_rate < 0.01011


def test_the_curve_goes_with_the_guarantee_and_not_into_its_data():
  found = guarantee(0.1, 1.0)
  assert "costs" not in found.as_dict()
  again = pickle.loads(pickle.dumps(found.of_run(seeded=True)))
  attack = again.attack()
  assert attack.assumptions == again.assumptions != found.assumptions
  assert attack.true_positive_rate == found.attack().true_positive_rate
  for rate in (0.0, 1.0, 2):
    assert_refused(plan.PlanError, "false_positive_rate", found.attack, rate)
