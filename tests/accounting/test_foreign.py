"""Queries and selections in a ledger: composed, stored, refused."""

import json
import math

import pytest

from episodic_dp import accounting
from episodic_dp import plan
from episodic_dp.accounting import queries
from episodic_dp.accounting.accountants import curves
from episodic_dp.accounting.profiles import gaussian

LEVELS = ("user", "record")
H = plan.Hierarchy.regular((400, 10), levels=LEVELS)
DELTA = 1e-6


def release(stage=None, z=2.0):
  return plan.Release(
      H,
      plan.SamplingPlan((stage or plan.Poisson(0.02), plan.All())),
      plan.Mechanism(clip_unit="user", noise_multiplier=z),
  )


RUN = accounting.Ledger().add(release(), 50)


def normal(distance, *, level="user", times=1):
  return accounting.GaussianQuery(
      level=level, sensitivity=2 * distance, noise_scale=2.0, times=times
  )


def laplace(distance, *, times=1):
  return accounting.LaplaceQuery(
      level="user", sensitivity=distance, noise_scale=1.0, times=times
  )


def test_gaussian_queries_are_gaussian_steps():
  found = accounting.Ledger().add_foreign(normal(0.1, times=9), normal(0.4))
  true = gaussian.analytic_epsilon(2.0, DELTA)  # sqrt(0.09 + 0.16) = 1 / 2.
  assert true <= found.epsilon("user", DELTA) <= 1.002 * true
  noisy = accounting.Ledger().add(release(plan.All(), z=2.0), 4)
  true = gaussian.analytic_epsilon(1 / math.sqrt(1 + 0.25), DELTA)
  found = noisy.add_foreign(normal(0.5)).epsilon("user", DELTA)
  assert true <= found <= 1.002 * true
  # Inside a user its record is changed: out and in again.
  true = gaussian.analytic_epsilon(1 / math.sqrt(4 + 1), DELTA)
  found = noisy.add_foreign(normal(0.5)).epsilon("record", DELTA)
  assert true <= found <= 1.002 * true


def test_a_guarantee_says_what_was_composed():
  asked = accounting.Ledger().add_foreign(normal(0.1, times=2), laplace(0.1))
  assert "user; 3 queries; " in str(asked.guarantee("user", delta=DELTA))
  chosen = accounting.Selection(
      candidates=(RUN,), runs=accounting.geometric(10.0)
  )
  study = RUN.add_foreign(laplace(0.1), chosen)
  found = study.guarantee("user", delta=DELTA)
  assert "user; 50 steps, 1 query, 1 selection; " in str(found)
  assert found.as_dict()["steps"] == 50
  assert found.as_dict()["others"] == "1 query, 1 selection"
  alone = RUN.guarantee("user", delta=DELTA)
  assert "user; 50 steps; " in str(alone) and "others" not in alone.as_dict()


def test_one_laplace_query_has_its_epsilon_and_no_delta():
  found = accounting.Ledger().add_foreign(laplace(0.3))
  assert found.epsilon("user", 1e-12) == pytest.approx(0.3, rel=1e-3)
  assert found.epsilon("user", 1e-12) <= 0.3 * 1.001
  many = accounting.Ledger().add_foreign(laplace(0.1, times=20))
  pld, rdp = (
      many.epsilon("user", DELTA, accountant) for accountant in ("pld", "rdp")
  )
  assert 1.5 < pld < rdp < 2.0


def test_queries_cost_something_beside_a_run_and_no_more_than_their_sum():
  for more, alone in (
      (normal(0.1), gaussian.analytic_epsilon(10.0, DELTA / 2)),
      (laplace(0.2), 0.2),
  ):
    run = RUN.epsilon("user", DELTA)
    both = RUN.add_foreign(more).epsilon("user", DELTA)
    assert run < both <= RUN.epsilon("user", DELTA / 2) + alone + 1e-6


@pytest.mark.parametrize("count", [
    accounting.geometric(10.0),
    accounting.logarithmic(0.05),
    accounting.PoissonRuns(mean=10.0),
])
def test_the_best_of_many_costs_more_than_one_and_less_than_all(count):
  found = accounting.Ledger().add_foreign(
      accounting.Selection(candidates=(RUN,), runs=count)
  )
  one = RUN.epsilon("user", DELTA)
  all_ten = accounting.Ledger().add(release(), 500).epsilon("user", DELTA)
  both = {
      accountant: found.epsilon("user", DELTA, accountant)
      for accountant in ("pld", "rdp")
  }
  assert one < both["pld"] <= both["rdp"]
  assert both["pld"] < 4 * one
  assert all_ten > one
  mixed = found.add_foreign(laplace(0.2)).joined(RUN)
  assert (
      both["pld"]
      < mixed.epsilon("user", DELTA)
      <= mixed.epsilon("user", DELTA, "rdp")
  )


def test_who_is_replaced_moves_a_query_twice():
  found = accounting.Ledger().add_foreign(normal(0.2)).guarantee(
      "user", delta=DELTA, neighbours="replace-one"
  )
  true = gaussian.analytic_epsilon(1 / 0.4, DELTA)
  assert true <= found.epsilon <= 1.05 * true


def test_what_is_at_least_lost_is_no_more_than_what_is_told():
  for study in (RUN, accounting.Ledger()):
    found = study.add_foreign(normal(0.2)).guarantee("user", delta=DELTA)
    assert 0 <= found.lower <= found.epsilon
    assert str(found).startswith("user: ")
    found = study.add_foreign(normal(0.2)).guarantee(
        "user", delta=DELTA, group=2
    )
    assert 0 <= found.lower <= found.epsilon


def test_groups_move_queries_as_often():
  found = accounting.Ledger().add_foreign(normal(0.1), laplace(0.1))
  assert found.guarantee(
      "user", delta=DELTA, group=3
  ).epsilon == pytest.approx(
      accounting.Ledger()
      .add_foreign(normal(0.3), laplace(0.3))
      .epsilon("user", DELTA),
      rel=1e-3,
  )
  chosen = accounting.Ledger().add_foreign(
      accounting.Selection(candidates=(RUN,), runs=accounting.geometric(5.0))
  )
  two = chosen.guarantee("user", delta=DELTA, group=2).epsilon
  assert two > 2 * chosen.epsilon("user", DELTA)


def test_a_ledger_with_all_of_them_is_read_back_and_its_statement_holds():
  study = RUN.add_foreign(
      normal(0.1, times=2),
      laplace(0.2),
      accounting.Selection(
          candidates=(RUN, RUN.add_foreign(laplace(0.1))),
          runs=accounting.TruncatedNegativeBinomial(shape=0.5, gamma=0.1),
      ),
  )
  data = json.loads(json.dumps(study.as_dict()))
  again = accounting.Ledger.from_dict(data)
  assert again.as_dict() == study.as_dict()
  assert again.epsilon("user", DELTA) == study.epsilon("user", DELTA)
  statement = accounting.run_statement(study, delta=DELTA)
  assert set(statement["guarantees"]) == set(LEVELS)
  said = " ".join(statement["guarantees"]["user"]["assumptions"])
  for part in ("Laplace noise of scale 1", "Gaussian noise of scale 2, 2 times",
               "only the best is released", "same units in every run"):
    assert part in said
  fresh = json.loads(json.dumps(statement))
  assert not accounting.verify(fresh).differences
  fresh["foreign"] = fresh["foreign"][:1]
  assert accounting.verify(fresh).differences
  only = accounting.Ledger().add_foreign(normal(0.1))
  assert set(accounting.run_statement(only, delta=DELTA)["guarantees"]) == {
      "user"
  }


def test_a_run_without_noise_cannot_be_made_good_by_selection():
  loud = accounting.Ledger().add(release(z=0.0), 1)
  found = accounting.Ledger().add_foreign(
      accounting.Selection(candidates=(loud,), runs=accounting.geometric(5.0))
  )
  assert math.isinf(found.epsilon("user", DELTA))


def test_errors_of_the_sampler_are_charged_for_every_run(monkeypatch):
  error = plan.SamplerError(variation=1e-8, tails=1e-8, unmatched=0.0)
  monkeypatch.setattr(plan, "sampling_error", lambda h, p: error)
  chosen = accounting.Ledger().add_foreign(
      accounting.Selection(candidates=(RUN,), runs=accounting.geometric(10.0))
  )
  # 50 steps of 10 runs: 2 x 5e-6 at least.
  assert math.isinf(chosen.epsilon("user", 9e-6))
  assert math.isfinite(chosen.epsilon("user", 1e-4))


@pytest.mark.parametrize(
    "make,part",
    [
        (lambda: normal(0.0), "sensitivity 0.0"),
        (lambda: normal(0.1, times=0), "times 0"),
        (lambda: normal(0.1, level=""), "level ''"),
        (lambda: laplace(math.nan), "sensitivity nan"),
        (lambda: accounting.geometric(0.5), "mean 0.5"),
        (lambda: accounting.PoissonRuns(mean=0), "mean 0"),
        (
            lambda: accounting.TruncatedNegativeBinomial(shape=-1, gamma=0.5),
            "shape -1",
        ),
        (
            lambda: accounting.Selection(
                candidates=(accounting.Ledger(),),
                runs=accounting.geometric(5.0),
            ),
            "at least one candidate",
        ),
        (
            lambda: accounting.Ledger.from_dict({"entries": [], "foreign": 3}),
            "foreign is 3",
        ),
        (lambda: queries.from_dict({"kind": "magic"}, None), "magic"),
        (lambda: queries.from_dict({"kind": "selection"}, None), "fields"),
    ],
)
def test_what_makes_no_sense_is_refused_in_a_sentence(make, part):
  with pytest.raises(plan.PlanError, match=part) as error:
    make()
  assert "\n" not in str(error.value)


def test_levels_that_a_query_says_nothing_about_are_refused():
  found = RUN.add_foreign(normal(0.1, level="record"))
  with pytest.raises(plan.UnsoundPlanError, match="sensitivity at level"):
    found.guarantee("user", delta=DELTA)
  assert list(found.guarantees(delta=DELTA)) == ["record"]
  nested = accounting.Selection(
      candidates=(RUN,), runs=accounting.geometric(5.0)
  )
  with pytest.raises(plan.PlanError, match="among selections"):
    accounting.Selection(
        candidates=(RUN.add_foreign(nested),), runs=accounting.geometric(5.0)
    )


def test_the_profile_of_a_query_is_no_worse_than_its_curve():
  found = accounting.Ledger().add_foreign(normal(0.5))
  told = found.guarantee("user", epsilon=1.0).delta
  assert told == pytest.approx(curves.GaussianCurve(0.5).delta(1.0), rel=1e-3)


@pytest.mark.parametrize(
    "z", [1e-3, *(pytest.param(z, marks=pytest.mark.slow) for z in (1e-6, 1e8))]
)
def test_extremes_have_a_bound_or_none_and_no_traceback(z):
  run = accounting.Ledger().add(release(z=z), 10**6)
  for study in (
      run.add_foreign(laplace(1e-9), normal(1e6)),
      accounting.Ledger().add_foreign(
          accounting.Selection(
              candidates=(run,), runs=accounting.geometric(1e6)
          )
      ),
  ):
    for delta in (1e-300, 0.9):
      assert study.epsilon("user", delta) >= 0
