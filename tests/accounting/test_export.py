"""Curves and single numbers of a guarantee: closed forms, never optimistic."""

import math

import numpy as np
import pytest
from scipy import special

from episodic_dp import accounting
from episodic_dp import plan
from episodic_dp.accounting import concentrated
from episodic_dp.accounting import export
from episodic_dp.accounting import foreign
from episodic_dp.accounting.accountants.phases import Phase
from episodic_dp.accounting.profiles import amplification
from episodic_dp.accounting.profiles import gaussian
from episodic_dp.accounting.profiles import laplace

H = plan.Hierarchy.regular((1000, 10), levels=("user", "record"))


def run(stage, z, steps):
  return accounting.Ledger().add(
      plan.Release(
          H,
          plan.SamplingPlan((stage, plan.All())),
          plan.Mechanism(clip_unit="user", noise_multiplier=z),
      ),
      steps,
  )


def test_gaussians_have_their_own_mu_and_rho():
  z, steps = 8.0, 16
  data = export.export(run(plan.All(), z, steps), "user", delta=1e-6)
  mu = math.sqrt(steps) / z
  assert mu <= data["gaussian"]["mu"] <= mu * (1 + 1e-6)
  assert mu <= data["gaussian"]["mu_every_error"] <= mu * (1 + 1e-6)
  rho = steps / (2 * z**2)
  assert rho <= data["zcdp"]["rho"] <= rho * (1 + 1e-6)
  for row in data["zcdp"]["truncated"]:
    assert rho * (1 - 1e-9) <= row["rho"] <= rho * (1 + 1e-6)
  for epsilon, delta in data["epsilon_delta"]:
    true = gaussian.analytic_epsilon(1 / mu, delta)
    assert true * (1 - 1e-6) <= epsilon <= 1.01 * true + 1e-9
  alpha, beta = np.asarray(data["trade_off"]).T
  true = export.gaussian_trade_off(mu, alpha)
  assert np.all(beta <= true + 1e-9)
  inner = (alpha > 1e-3) & (alpha < 0.9)
  assert np.all(beta[inner] >= true[inner] - 3e-3)


def mixture(alpha, rate):
  """The trade-off of (1 - p) N(0) + p N(d) against N(0), d = 1."""
  t = -special.ndtri(alpha)
  return (1 - rate) * special.ndtr(t) + rate * special.ndtr(t - 1.0)


def test_one_sampled_step_has_a_trade_off_below_the_true_one():
  rate = 0.2
  data = export.export(run(plan.Poisson(rate), 1.0, 1), "user", delta=1e-5)
  alpha, beta = np.asarray(data["trade_off"]).T
  some = (alpha > 0) & (alpha < 1)
  assert np.all(beta[some] <= mixture(alpha[some], rate) + 1e-9)
  middle = (alpha > 0.05) & (alpha < 0.2)
  assert np.all(beta[middle] >= mixture(alpha[middle], rate) - 0.02)
  found = data["gaussian"]
  assert found["mu"] < 0.8 < found["mu_every_error"]
  inner = (alpha >= 1e-5) & (beta >= 1e-5)
  gaussians = export.gaussian_trade_off(found["mu"], alpha[inner])
  assert np.all(gaussians <= beta[inner] * (1 + 1e-6) + 1e-9)


def test_mu_is_above_what_any_error_needs():
  # A few points of a Gaussian's curve: between them its lines lie below it.
  epsilons = np.asarray([0.0, 0.5, 1.0, 2.0, 4.0])
  points = export.Points(
      epsilons,
      np.asarray([gaussian.analytic_delta(1.0, e) for e in epsilons]),
  )
  alpha = np.geomspace(1e-4, 0.3, 4001)
  needed = (
      -special.ndtri(alpha) - special.ndtri(export.trade_off(points, alpha))
  )
  mu = export.least_mu(points, 1e-4)
  assert mu >= needed.max() * (1 - 1e-9)
  assert mu == pytest.approx(needed.max(), rel=1e-3) and mu >= 1.0


def test_where_errors_can_be_small_mu_is_that_of_the_least_two():
  # Both errors may be 0.2, and only those of 0.3 and more are asked for.
  points = export.Points(np.asarray([0.0]), np.asarray([0.6]))
  mu = export.least_mu(points, 0.3)
  least = export.gaussian_trade_off(mu, np.asarray([0.3]))[0]
  assert least == pytest.approx(0.3) and least <= 0.3


def test_mu_is_the_limit_of_the_points():
  values = []
  for count in (5, 40, 300):
    epsilons = np.concatenate([[0.0], np.geomspace(0.01, 6, count)])
    deltas = np.asarray([gaussian.analytic_delta(1.0, e) for e in epsilons])
    values.append(export.least_mu(export.Points(epsilons, deltas), 1e-5))
  assert values[0] > values[1] > values[2] >= 1.0
  assert values[2] == pytest.approx(1.0, abs=1e-3)


def test_trade_offs_are_symmetric_and_convex():
  points = export.Points(
      np.asarray([0.0, 0.3, 1.2]), np.asarray([0.4, 0.25, 0.02])
  )
  alpha = np.linspace(0, 1, 2001)
  f = export.trade_off(points, alpha)
  assert np.all(np.diff(f, 2) >= -1e-12) and np.all(np.diff(f) <= 1e-12)
  again = export.trade_off(points, f[f > 0])
  np.testing.assert_allclose(again, alpha[f > 0], atol=1e-9)
  assert np.all(f <= 1 - alpha + 1e-12)


def one(unit, times=1):
  return (Phase((unit,), times),)


def test_a_bounded_loss_is_gaussian_at_three_points_and_below_between():
  for loss in (0.1, 1.0, 5.0):
    found = concentrated.of(one(laplace.Laplace(loss)))
    points = export.Points(np.asarray([0.0, loss]), np.asarray([1.0, 0.0]))
    alpha = np.linspace(0, 1, 1001)
    below = export.gaussian_trade_off(found.mu, alpha)
    assert np.all(below <= export.trade_off(points, alpha) + 1e-9)
    middle = 1 / (1 + math.exp(loss))
    at = export.gaussian_trade_off(found.mu, np.asarray([middle]))[0]
    assert at == pytest.approx(middle, rel=1e-6)
    assert found.rho == pytest.approx(loss**2 / 2)
    rho = concentrated.truncated_rho(one(laplace.Laplace(loss)))
    orders = np.linspace(1.001, 64, 2000)
    moments = laplace.Laplace(loss).log_moments("add", tuple(orders))
    true = (moments / (orders - 1) / orders).max()
    assert true <= rho[concentrated.ORDERS.index(64)] <= 1.01 * true


def test_rho_up_to_an_order_is_above_all_orders_between():
  unit = amplification.Amplification((), 0.01, (), 0.5)
  phases = one(unit, 30)
  for order, rho in zip(
      concentrated.ORDERS, concentrated.truncated_rho(phases)
  ):
    at = np.linspace(1.01, order, 37)
    # The moments of the mixture, by a sum over a fine grid.
    x = np.arange(-12, 80, 0.005)
    log_ratio = np.log1p(0.01 * np.expm1(0.5 * x - 0.125))
    logs = at[:, None] * log_ratio - x * x / 2 - math.log(2 * math.pi) / 2
    moments = np.logaddexp.reduce(logs, axis=1) + math.log(0.005)
    assert rho >= (30 * moments / (at - 1) / at).max() * (1 - 1e-6)
  assert rho <= 30 * 0.125 * (1 + 1e-6)


def test_what_has_no_gaussian_tail_has_no_mu_and_rho_for_every_error():
  best = run(plan.Poisson(0.01), 2.0, 20)
  study = accounting.Ledger().add_foreign(
      accounting.Selection(candidates=(best,), runs=accounting.geometric(3.0))
  )
  data = export.export(study, "user", delta=1e-5, deltas=(0.1, 1e-3, 1e-6))
  assert data["gaussian"]["mu_every_error"] is None
  assert data["zcdp"]["rho"] is None and data["gaussian"]["mu"] > 0
  (route,) = foreign.routes((), study.foreign, "user", ("user", "record"))
  assert concentrated.of(route) is None
  assert "GDP for errors" in export.sentence(data)


def test_groups_are_as_many_times_as_far():
  one_unit, three = (
      export.export(
          run(plan.All(), 30.0, 4), "user", delta=1e-4, group=group,
          deltas=(0.1, 1e-2, 1e-3),
      )
      for group in (1, 3)
  )
  assert three["gaussian"]["mu_every_error"] == pytest.approx(
      3 * one_unit["gaussian"]["mu_every_error"]
  )
  assert three["zcdp"]["rho"] == pytest.approx(9 * one_unit["zcdp"]["rho"])
  assert three["zcdp"]["truncated"] is None


def test_no_noise_has_no_curve():
  data = export.export(run(plan.All(), 0.0, 1), "user", delta=1e-5)
  assert data["epsilon"] == data["gaussian"]["mu"] == "inf"
  assert data["zcdp"]["rho"] is None
  assert max(beta for _, beta in data["trade_off"]) == 0


def test_csv_is_read_back_the_same():
  text = export.csv_text(("a", "b"), [[0.1, 1e-300], [1 / 3, 2.0]])
  lines = text.splitlines()
  assert lines[0] == "a,b"
  assert [list(map(float, line.split(","))) for line in lines[1:]] == [
      [0.1, 1e-300], [1 / 3, 2.0]
  ]


def test_errors_from_which_mu_holds_are_in_range():
  points = export.Points(np.asarray([0.0]), np.asarray([0.1]))
  for alpha in (0.0, 0.5, -1):
    with pytest.raises(plan.PlanError, match="alpha_from"):
      export.least_mu(points, alpha)


@pytest.mark.slow  # Forty guarantees of a large plan, and a selection.
def test_numbers_of_the_proof_s_page():
  released = plan.Release(
      plan.Hierarchy.regular((400_000,), levels=("participant",)),
      plan.SamplingPlan((plan.Poisson(0.004),)),
      plan.Mechanism(clip_unit="participant", noise_multiplier=1.0),
  )
  ledger = accounting.Ledger().add(released, 250)
  data = export.export(ledger, "participant", delta=1e-6)
  assert data["gaussian"]["mu"] == pytest.approx(0.1453, abs=1e-4)
  assert data["gaussian"]["mu_every_error"] == pytest.approx(15.81, abs=0.01)
  assert data["zcdp"]["rho"] == pytest.approx(125, abs=0.1)
  (eighth,) = (r for r in data["zcdp"]["truncated"] if r["order"] == 8)
  assert eighth["rho"] == pytest.approx(0.003694, abs=1e-6)
  best = accounting.Ledger().add_foreign(
      accounting.Selection(
          candidates=(ledger,), runs=accounting.geometric(10.0)
      )
  )
  for accountant, told in (("pld", 0.9204), ("rdp", 1.721)):
    found = best.epsilon("participant", 1e-6, accountant)
    assert found == pytest.approx(told, abs=1.5e-3)
