"""Several runs on the same people: what is composed, and what is refused."""

import json

import pytest

from episodic_dp import accounting
from episodic_dp import plan
from episodic_dp.accounting import privacy_statement
from episodic_dp.accounting import studies

LEVELS = ("user", "record")
DELTA = 1e-5


def ledger(sizes=(400, 10), levels=LEVELS, stage=None, steps=20):
  return accounting.Ledger().add(
      plan.Release(
          plan.Hierarchy.regular(sizes, levels=levels),
          plan.SamplingPlan((stage or plan.Poisson(0.02), plan.All())),
          plan.Mechanism(clip_unit=levels[0], noise_multiplier=2.0),
      ),
      steps,
      continued=False,
  )


def statement(*args, fixed_seed=False, delta=DELTA, **kwargs):
  data = accounting.run_statement(
      ledger(*args, **kwargs), delta=delta, fixed_seed=fixed_seed
  )
  return json.loads(json.dumps(data))


QUERIES = (
    accounting.Ledger()
    .add_foreign(
        accounting.LaplaceQuery(
            level="user", sensitivity=1.0, noise_scale=10.0
        )
    )
    .as_dict()
)


def test_runs_and_queries_on_one_tree_cost_what_their_ledger_costs():
  study = studies.compose(
      {"q": QUERIES, "a": statement(), "b": statement(stage=plan.All())}
  )
  whole = (
      ledger()
      .joined(ledger(stage=plan.All()))
      .joined(accounting.Ledger.from_dict(QUERIES))
  )
  assert study.levels == LEVELS and study.delta == DELTA
  for level in LEVELS:
    found = study.guarantee(level, delta=DELTA)
    assert found.epsilon == whole.epsilon(level, DELTA)
    assert found.assumptions[0] == study.assumption
    for name, part in study.parts.items():
      assert part.epsilon(level if name != "q" else "user", DELTA) < (
          found.epsilon
      )
  assert "q, a, b" in study.assumption and "same units" in study.assumption


def test_equal_runs_are_composed_and_not_taken_for_one():
  study = studies.compose({"a": statement(), "b": statement()})
  assert study.ledger.steps == 40
  once = ledger(stage=plan.RandomAllocation(20), steps=20)
  passes = studies.compose({"a": once.as_dict(), "b": once.as_dict()})
  assert [e.steps for e in passes.ledger.entries] == [20, 20]


@pytest.mark.parametrize(
    "one,other,match",
    [
        (["1"], ["1"], "a and b are of one run, which is counted once"),
        (["1", "2", "3"], ["1", "2"], "are of one run"),
        (["1", "2"], ["1", "3"], "a and b are copies of one run"),
        (["1", "2", "4"], ["1", "3"], "may share noise"),
    ],
)
def test_one_run_and_its_copies_are_not_taken_for_two(one, other, match):
  statements = [dict(statement(), lineage=x) for x in (one, other)]
  with pytest.raises(plan.PlanError, match=match):
    studies.compose(dict(zip("ab", statements)))


@pytest.mark.parametrize("one,other", [(["1"], ["2", "1"]), ([], []), ("x", 5)])
def test_other_lineages_are_other_runs(one, other):
  statements = [dict(statement(), lineage=x) for x in (one, other)]
  assert studies.compose(dict(zip("ab", statements))).ledger.steps == 40


def test_other_trees_are_refused_until_a_level_is_named():
  parts = {"a": statement(), "b": statement(sizes=(400, 11))}
  with pytest.raises(plan.PlanError, match="--same_level=user") as error:
    studies.compose(parts)
  assert "a and b" in str(error.value) and "\n" not in str(error.value)
  study = studies.compose(parts, same_levels=["user"])
  assert study.levels == ("user",)
  assert study.guarantee("user", delta=DELTA).epsilon > (
      ledger().epsilon("user", DELTA)
  )
  with pytest.raises(plan.PlanError, match="'record' is not said"):
    study.guarantee("record", delta=DELTA)
  with pytest.raises(plan.PlanError, match="--same_level=week"):
    studies.compose(parts, same_levels=["week"])
  named = {"a": statement(), "c": statement(levels=("person", "record"))}
  with pytest.raises(plan.PlanError, match="--same_level=record"):
    studies.compose(named)
  with pytest.raises(plan.PlanError, match="level of c: name one of record$"):
    studies.compose(named, same_levels=["user"])
  nothing = {"a": statement(), "d": statement(levels=("person", "picture"))}
  for same_levels in ([], ["user"]):
    with pytest.raises(plan.PlanError, match="each alone, as --ledger=a$"):
      studies.compose(nothing, same_levels=same_levels)


def test_one_seed_is_said_and_two_are_refused():
  study = studies.compose({"a": statement(fixed_seed=True), "b": statement()})
  found = study.guarantee("user", delta=DELTA)
  assert "no guarantee against anyone who knows the seed" in found.caveat
  with pytest.raises(plan.PlanError, match="a and b fix private_seed"):
    studies.compose(
        {"a": statement(fixed_seed=True), "b": statement(fixed_seed=True)}
    )


def test_runs_that_begin_with_given_weights_are_named():
  begun = statement() | {"start": "ab12"}
  study = studies.compose({"a": begun, "b": statement()})
  assert f"a: {privacy_statement.STARTED}" in study.assumption
  found = study.guarantee("user", delta=DELTA)
  assert any(privacy_statement.STARTED in s for s in found.assumptions)
  plain = studies.compose({"a": statement(), "b": statement()})
  assert privacy_statement.STARTED not in plain.assumption


def test_a_study_of_studies_is_at_the_levels_that_they_were_at():
  trees = {"a": statement(), "b": statement(sizes=(400, 11))}
  first = studies.compose(trees, same_levels=["user"])
  saved = first.ledger.as_dict() | {"levels": list(first.levels)}
  again = studies.compose({"all": saved})
  assert again.levels == ("user",)
  both = studies.compose({"c": statement(), "all": saved})
  assert both.levels == ("user",)
  with pytest.raises(plan.PlanError, match="of all: name one of user$"):
    studies.compose({"c": statement(), "all": saved}, same_levels=["record"])


def test_statements_with_several_deltas_have_none():
  study = studies.compose({"a": statement(), "b": statement(delta=1e-6)})
  assert study.delta is None


@pytest.mark.parametrize("data", [None, 3, [], {"entries": 1}])
def test_what_is_no_ledger_is_named(data):
  with pytest.raises(plan.PlanError, match="^x: "):
    studies.compose({"a": statement(), "x": data})
  with pytest.raises(plan.PlanError, match="--ledger"):
    studies.compose({})


def test_groups_of_a_study():
  study = studies.compose({"a": statement(), "q": QUERIES})
  one, two = (
      study.guarantee("user", delta=DELTA, group=group).epsilon
      for group in (1, 2)
  )
  assert two > 1.8 * one
