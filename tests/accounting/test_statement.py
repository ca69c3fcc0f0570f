"""Privacy statements: what holds, what is false, what is damaged."""

import dataclasses
import json
import math

import pytest

from episodic_dp import accounting
from episodic_dp import plan
from episodic_dp.accounting import report
from episodic_dp.accounting import statement
from episodic_dp.accounting.report import RELATIONS
from tests import plans
from tests.damage import changed
from tests.refusals import assert_refused

LEVELS = ("unit", "class", "record")
REGULAR = plans.tree(LEVELS, 200, 8, 5)
RAGGED = plans.nested(LEVELS, [[4, 2, 3], [5] * 20])
COPIES = plans.tree(LEVELS, 200, 8, 5, copies=True)
POISSON = plans.sampling(0.05, 2, 2)
FIXED = plans.sampling(1, 2, 1)


def noisy(z=1.5, **fields):
  return plan.Mechanism(clip_unit="unit", noise_multiplier=z, **fields)


def stated(hierarchy=REGULAR, stages=POISSON, mechanism=None, **options):
  ledger = accounting.Ledger().add(
    plan.Release(hierarchy, stages, mechanism or noisy()),
    options.pop("steps", 20),
    continued=False,
  )
  data = accounting.run_statement(ledger, delta=1e-5, **options)
  return statement.loads(json.dumps(data, allow_nan=False))


COUNTED = plans.tree(LEVELS, 200, 8, 5, copies=True, most_copies={"record": 4})
CLASSES = plans.tree("class record", 60, 20)
INDEPENDENT = plans.sampling(
    5, 3, way=5, shot=1, query=2, form="independent", tasks=3
)
ONCE = plans.sampling(plan.RandomAllocation(4), 2, 1)
EPISODE = plan.Mechanism(clip_unit="episode", noise_multiplier=4.0)
TWO = accounting.Ledger().add(plan.Release(REGULAR, POISSON, noisy()), 20).add(
    plan.Release(REGULAR, FIXED, noisy(4.0)), 5
)


@pytest.mark.parametrize(
    "make,levels,refused",
    [
        (lambda: stated(), LEVELS, ()),
        (lambda: stated(RAGGED, FIXED), LEVELS, ()),
        (lambda: stated(COPIES), ("unit",), ("class", "record")),
        (lambda: stated(COUNTED), ("unit", "record"), ("class",)),
        (
            lambda: stated(CLASSES, INDEPENDENT, EPISODE),
            ("class", "record"),
            (),
        ),
        (lambda: stated(REGULAR, ONCE, steps=6), LEVELS, ()),
        (lambda: stated(accountant="rdp"), LEVELS, ()),
        (lambda: stated(accountant="moments"), LEVELS, ()),
        (lambda: stated(mechanism=noisy(0.0, clip_norm=math.inf)), LEVELS, ()),
        (lambda: stated(fixed_seed=True, planned_steps=50), LEVELS, ()),
        (lambda: accounting.run_statement(TWO, delta=1e-6), LEVELS, ()),
    ],
)
def test_what_was_written_holds(make, levels, refused):
  data = make()
  found = accounting.verify(data)
  assert found.differences == ()
  assert [row[0] for row in found.rows()] == list(levels)
  assert {row[3] for row in found.rows()} == {"holds"}
  assert tuple(data["no_guarantee"]) == refused


def G(*path):
  return ["guarantees", "class", *path]


@pytest.mark.parametrize(
    "path,value,where,false",
    [
        (G("epsilon"), lambda e: e * (1 - 1e-6), "epsilon", True),
        (G("epsilon"), lambda e: e * 1.01, "epsilon", False),
        (G("epsilon"), "inf", "epsilon", False),
        (G("epsilons", "add"), lambda e: e / 2, "add", True),
        (G("delta"), 1e-6, "delta", False),
        (G("assumptions", 2), "The keys are published.", "2", False),
        (G("assumptions"), lambda a: a[1:], "0", False),
        (G("caveat"), "Perfectly safe.", "caveat", False),
        (G("direction"), "none, epsilon is 0", "direction", False),
        (G("extra"), None, "extra", False),
        (["guarantees", "planet"], {"epsilon": None}, "planet", False),
        (["guarantees", "class"], KeyError, "class", False),
        (["guarantees", "planet"], {"epsilon": 0.1}, "planet", True),
        (["entries", 0, "steps"], 21, "epsilon", True),
        (["entries", 0, "steps"], 19, "epsilon", False),
        (["entries", 0, "mechanism", "noise_multiplier"], 1.4, "epsilon", True),
        (["entries", 0, "plan", "stages", 0], "Poisson(0.06)", "epsilon", True),
        (["entries", 0, "hierarchy", "copies"], True, "class", True),
        (["delta"], 1e-6, "epsilon", True),
        (["fixed_seed"], True, "caveat", False),
    ],
)
def test_what_was_changed_is_named(path, value, where, false):
  found = accounting.verify(changed(stated(), path, value))
  assert where in {name for d in found.differences for name in d.where}
  assert any(d.false for d in found.differences) == false
  # What is false comes first, in one short sentence.
  assert found.differences[0].false == false
  text = str(found.differences[0])
  assert "\n" not in text and len(text) < 400
  if path[:2] == G():
    assert {row[3] for row in found.rows() if row[0] != "class"} == {"holds"}


def test_an_infinite_epsilon_cannot_be_stated_as_finite():
  data = stated(mechanism=noisy(0.0))
  found = accounting.verify(changed(data, G("epsilon"), 3.0))
  assert found.differences[0].false


@pytest.mark.parametrize(
    "path,value,match",
    [
        (["schema"], 1, "schema 1,.*'episodic_dp "),
        (["schema"], KeyError, "is not a privacy statement"),
        (["entries"], [], "has no steps"),
        (["entries", 0], 5, r"entries\[0\]=5: expected an object"),
        (["entries", 0, "steps"], 0, "steps"),
        (["entries", 0, "steps"], 10**13, "from 1 to"),
        (["entries", 0, "mechanism", "sigma"], 1, "sigma"),
        (["delta"], 0.0, "delta"),
        (["accountant"], "magic", "accountant"),
        (["neighbours"], "friends", "neighbours"),
        (["fixed_seed"], 0, "fixed_seed"),
        (["planned_steps"], "all", "planned_steps"),
        (["private_key"], "00", "private_key"),
    ],
)
def test_damage_is_one_sentence(path, value, match):
  said = assert_refused(
      plan.PlanError, match, accounting.verify, changed(stated(), path, value)
  )
  assert len(said) < 500


@pytest.mark.parametrize(
    "text,match",
    [
        (json.dumps(stated())[:300], "perhaps cut short"),
        ('{"epsilon": NaN}', "the number NaN"),
        ('{"a": {"epsilon": 0.1, "epsilon": 3}}', "twice in one object"),
        ("[" * 10**5, "not JSON"),
    ],
)
def test_text_is_read_strictly(text, match):
  assert_refused(plan.PlanError, match, statement.loads, text)


def nested(depth):
  return [nested(depth - 1)] if depth else list(range(10_000))


@pytest.mark.parametrize("field, value, match", [
    ("guarantees", {"unit": {"a": nested(200)}}, "levels of brackets"),
    ("guarantees", {"unit": {"a": [[]] * 30_000}}, "more than 20000 values"),
    ("no_guarantee", {"x" * 10**6: 3}, "no_guarantee"),
])
def test_the_work_and_the_words_for_a_statement_are_bounded(
    tmp_path, field, value, match
):
  path = tmp_path / "statement.json"
  path.write_text(json.dumps(stated() | {field: value}))
  said = assert_refused(plan.PlanError, match, statement.verify_file, path)
  assert len(said) < 1200


@pytest.mark.parametrize("value", [None, 5, [], "x", {}, {"epsilon": 1}])
def test_other_json_is_no_statement(value):
  with pytest.raises(plan.PlanError, match="is not a privacy statement"):
    accounting.verify(value)


@pytest.mark.parametrize(
    "name,value,said",
    [
        ("fixed_seed", True, report.SEEDED),
        ("start", "ab12", report.STARTED),
        ("backbone", "ab12", report.EMBEDDED),
    ],
)
def test_what_weakens_a_statement_is_confessed_at_every_level(
    name, value, said
):
  plain, weaker = stated(), stated(**{name: value})
  assert "seed" not in json.dumps(plain).replace("fixed_seed", "")
  assert not plain.get(name) and weaker[name] == value
  assert not accounting.verify(weaker).differences
  for level, entry in weaker["guarantees"].items():
    assert said in entry["caveat"] and said in entry["assumptions"]
    assert plain["guarantees"][level]["caveat"] == ""
    assert entry["epsilon"] == plain["guarantees"][level]["epsilon"]
  assert accounting.verify(weaker | {name: plain.get(name)}).differences


# Clip norms that are adapted --------------------------------------------------


HIERARCHY = plans.tree("participant class image", 400, 5, 10)
TASK = plan.Episode(way=5, shot=1, query=1)
BY_RATE, BY_NUMBER = (
    plans.sampling(first, 5, 2, episode=TASK)
    for first in (0.05, 20)
)
PLAIN = plan.Mechanism(
    clip_unit="participant", noise_multiplier=2.0, clip_norm=0.5
)
QUANTILE = dataclasses.replace(
    PLAIN, clipping="private_quantile", clip_quantile=0.5, clip_rate=0.2,
    count_noise=10.0,
)
WINDOW = dataclasses.replace(
    PLAIN, clipping="percentile_window", clip_percentile=90, clip_window=40
)
SPENT = dict(steps=50, delta=1e-5)


@pytest.mark.parametrize("sampling", [BY_RATE, BY_NUMBER])
def test_a_private_quantile_costs_exactly_what_a_fixed_norm_does(sampling):
  fixed = accounting.guarantees(
    plan.Release(HIERARCHY, sampling, PLAIN), **SPENT
  )
  found = accounting.guarantees(
    plan.Release(HIERARCHY, sampling, QUANTILE), **SPENT
  )
  assert list(found) == list(fixed) == list(HIERARCHY.levels)
  for level, guarantee in found.items():
    assert guarantee.epsilon == fixed[level].epsilon < math.inf
    (extra,) = set(guarantee.assumptions) - set(fixed[level].assumptions)
    assert "noised counts of earlier steps" in extra


def test_no_epsilon_holds_for_a_percentile_of_raw_norms():
  for relation in RELATIONS:
    found = accounting.guarantee(
      plan.Release(HIERARCHY, BY_NUMBER, WINDOW),
      level="participant",
      neighbours=relation,
      **SPENT,
    )
    assert math.isinf(found.epsilon)
    for text in (found.caveat, str(found), " ".join(found.assumptions)):
      assert "un-noised percentile clipping" in text
  found = accounting.guarantee(
    plan.Release(HIERARCHY, BY_RATE, WINDOW),
    level="image",
    steps=1,
    epsilon=5.0,
  )
  assert found.delta == 1.0


def test_one_such_step_voids_a_whole_ledger_and_its_statement():
  ledger = accounting.Ledger().add(
    plan.Release(HIERARCHY, BY_RATE, QUANTILE), 20
  )
  assert math.isfinite(ledger.epsilon("participant", 1e-5))
  ledger = ledger.add(plan.Release(HIERARCHY, BY_RATE, WINDOW), 1)
  assert math.isinf(ledger.epsilon("participant", 1e-5))
  stated = statement.run_statement(ledger, delta=1e-5)
  stated = statement.loads(json.dumps(stated, allow_nan=False))
  for guarantee in stated["guarantees"].values():
    assert guarantee["epsilon"] == "inf"
    assert guarantee["caveat"].startswith("No formal guarantee")
  assert not statement.verify(stated).differences
  stated["entries"][1]["mechanism"]["clipping"] = "fixed"
  with pytest.raises(plan.PlanError, match="clip_percentile=90.0"):
    statement.verify(stated)
