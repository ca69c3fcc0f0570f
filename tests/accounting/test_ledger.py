"""The ledger: merging, composition of different steps, speed, storage."""

import math

import numpy as np
import pytest

from episodic_dp import accounting
from episodic_dp import plan
from episodic_dp.accounting import ledger as ledger_lib
from episodic_dp.accounting import report
from episodic_dp.accounting.accountants import base
from episodic_dp.plan import sampler_error
from tests import plans
from tests.accounting import enumerated
from tests.refusals import assert_refused

LEVELS = ("unit", "class", "record")
H = plans.tree(LEVELS, 500, 8, 5)
P = plans.sampling(0.05, 2, 2)
FULL = plans.sampling(plan.All(), plan.All(), plan.All())


def noisy(z=1.5):
  return plan.Mechanism(clip_unit="unit", noise_multiplier=z)


M = noisy()
RELEASE = plan.Release(H, P, M)


def ledger(*steps):
  """One entry per (noise, steps), in order."""
  result = accounting.Ledger()
  for z, count in steps:
    result = result.add(plan.Release(H, P, noisy(z)), count)
  return result


def repeated(release, times, steps=1, **options):
  """A ledger to which the same steps were added several times."""
  found = accounting.Ledger()
  for _ in range(times):
    found = found.add(release, steps, **options)
  return found


def test_equal_steps_are_one_entry_and_cost_what_they_cost_at_once():
  found = repeated(RELEASE, 30)
  assert len(found.entries) == 1 and found.steps == 30
  for level in LEVELS:
    expected = accounting.guarantee(
        RELEASE, steps=30, delta=1e-5, level=level
    )
    assert found.guarantee(level, delta=1e-5) == expected
  assert found.guarantees(delta=1e-5) == accounting.guarantees(
      RELEASE, steps=30, delta=1e-5
  )


@pytest.mark.parametrize("delta", [1e-3, 1e-6, 1e-10])
def test_different_phases_compose_as_their_gaussians_do(delta):
  # Nothing is sampled: distances add up in squares.
  found, squares = accounting.Ledger(), 0.0
  for z, steps in ((2.0, 3), (7.0, 20), (0.8, 1)):
    found = found.add(plan.Release(H, FULL, noisy(z)), steps)
    squares += steps / z**2
  exact = base.GaussianCurve(math.sqrt(squares)).epsilon(delta)
  epsilon = found.epsilon("unit", delta)
  assert exact <= epsilon <= 1.003 * exact


def test_errors_of_all_samplers_add_up(monkeypatch):
  error = sampler_error.SamplerError(
      variation=1e-7, tails=1e-7, unmatched=math.inf
  )
  monkeypatch.setattr(sampler_error, "sampling_error", lambda h, p: error)
  found = ledger((100.0, 10), (50.0, 20))
  one = accounting.Ledger(found.entries[1:])
  # (1 + e^epsilon) x error is charged: at least 2e-7 a step.
  assert math.isfinite(one.epsilon("unit", 4.5e-6))
  charged = found.guarantee("unit", delta=4.5e-6)
  assert math.isinf(charged.epsilon)
  assert "in total variation" in charged.caveat
  assert math.isfinite(found.epsilon("unit", 6.5e-6))


def test_a_level_that_an_entry_lacks_is_named():
  other = plans.tree("unit day record", 500, 8, 5)
  found = ledger((1.5, 3)).add(plan.Release(other, P, M))
  assert found.epsilon("unit", 1e-5) > ledger((1.5, 3)).epsilon("unit", 1e-5)
  with pytest.raises(plan.PlanError, match="unknown level 'class'"):
    found.guarantee("class", delta=1e-5)
  stated = accounting.run_statement(found, delta=1e-5)
  assert list(stated["guarantees"]) == ["unit", "record"]
  assert "'class' is not a level of every" in stated["no_guarantee"]["class"]


PASS = 40
ONCE = plan.Release(
    H, plans.sampling(plan.RandomAllocation(PASS), 2, 2), M
)


def test_steps_of_one_pass_are_told_from_steps_of_two():
  one = repeated(ONCE, 4, PASS // 4, continued=True)
  assert [e.steps for e in one.entries] == [PASS]
  expected = accounting.guarantee(
      ONCE, steps=PASS, delta=1e-5, level="unit"
  )
  assert one.guarantee("unit", delta=1e-5) == expected
  # Two runs that stop in the middle of a pass: a unit may be in both.
  two = repeated(ONCE, 2, PASS // 2, continued=False)
  assert [e.steps for e in two.entries] == [PASS // 2] * 2
  assert two.epsilon("unit", 1e-5) > 1.05 * one.epsilon("unit", 1e-5)
  again = accounting.Ledger.from_dict(two.as_dict())
  assert again.epsilon("unit", 1e-5) == two.epsilon("unit", 1e-5)


def test_a_step_of_a_pass_must_say_whether_it_goes_on():
  # Counted as a fresh pass each, the steps of a pass were claimed to cost less
  # than they do: 0.732, where a pass of two steps costs 0.9724.
  h = plans.tree("unit", 1000)
  release = plan.Release(
      h, plans.sampling(plan.RandomAllocation(2)), noisy(0.2)
  )
  for found in (
      accounting.Ledger(), accounting.Ledger().add(release, continued=False)
  ):
    with pytest.raises(plan.PlanError, match="continued=True") as e:
      found.add(release)
    assert "continued=False" in str(e.value) and "\n" not in str(e.value)
  one = repeated(release, 2, continued=True)
  two = repeated(release, 2, continued=False)
  delta = one.guarantee("unit", epsilon=1.0).delta
  assert delta == pytest.approx(0.9724, abs=1e-4)
  assert two.guarantee("unit", epsilon=1.0).delta == pytest.approx(
      0.732, abs=1e-3
  )


def test_a_pass_cannot_be_continued_by_another_plan():
  found = ledger((1.5, 3))
  with pytest.raises(plan.PlanError, match="last entry, which has another"):
    found.add(ONCE, continued=True)
  fresh = found.add(ONCE, continued=False)
  assert [e.steps for e in fresh.entries] == [3, 1]
  # Steps without passes are merged wherever they come.
  assert [
      e.steps for e in found.add(RELEASE, continued=True).entries
  ] == [4]


@pytest.mark.parametrize("data", [None, [], {}, {"entries": 1}, "entries"])
def test_other_data_is_no_ledger(data):
  with pytest.raises(plan.PlanError, match="expected an? (object|list)"):
    accounting.Ledger.from_dict(data)


@pytest.mark.parametrize(
    "level,asked",
    [
        ("unit", {}),
        ("record", {"neighbours": "replace-one"}),
        ("record", {"group": 2}),
    ],
)
@pytest.mark.few(1)
def test_order_is_nothing_and_a_run_more_never_costs_less(level, asked):
  def epsilon(runs):
    found = accounting.Ledger()
    for release, steps in runs:
      found = found.add(release, steps, continued=False)
    return found.guarantee(level, delta=1e-5, **asked).epsilon

  below = (plan.All(), 0.4)
  trees = (  # The same units, also where they belong to days.
      ((50, 8, 5), LEVELS, (0.1, *below)),
      ((50, 8, 5), LEVELS, (plan.RandomAllocation(5), *below)),
      ((10, 5, 8, 5), ("day", *LEVELS),
       (plan.RandomAllocation(2), 0.01, *below)),
  )
  runs = [
      (
          plan.Release(
              plans.tree(levels, *sizes), plans.sampling(*stages), noisy(6.0)
          ),
          10,
      )
      for sizes, levels, stages in trees
  ]
  whole = epsilon(runs)
  assert epsilon(runs[::-1]) == pytest.approx(whole, rel=1e-6)
  assert epsilon(runs[:2]) <= whole
  release, steps = runs[1]  # In passes of their own.
  assert epsilon([(release, steps)] * 3) == epsilon([(release, 3 * steps)])


def test_a_unit_may_be_of_another_kind_in_another_tree():
  """A patient of a small ward in one run and of a large one in the other."""
  wards = [[3] * 5, [7] * 25]  # Records of each patient.
  found, shown = accounting.Ledger(), []
  for sizes, patients, records in ((wards, 5, 3), (wards[::-1], 25, 7)):
    h = plans.nested("ward patient record", sizes)
    p = plans.sampling(plan.All(), 4, plan.All())
    release = plans.release(h, p, "record", 11.5)
    found = found.add(release, 2)
    rate = 4 / patients
    pair = [
        (np.asarray([0.0, 2.0 * records]), np.asarray([1 - p, p]))
        for p in (rate, 0.0)
    ]
    shown += [[enumerated.cells(pair, 11.5)]] * 2
  truth = enumerated.composed(shown, 3.0)
  assert truth > 4e-4  # More than the 3.57e-4 of one kind in both runs.
  assert truth <= found.guarantee("patient", epsilon=3.0).delta


# Several runs -----------------------------------------------------------------


def run_of(sizes=(400, 10), levels=("user", "record"), stage=None, steps=20):
  return accounting.Ledger().add(
      plans.release(
          plan.Hierarchy.regular(sizes, levels=levels),
          plans.sampling(stage or 0.02, plan.All()), levels[0],
          2.0,
      ),
      steps,
      continued=False,
  )


def statement_of(*args, fixed_seed=False, start=None, **kwargs):
  return accounting.run_statement(
      run_of(*args, **kwargs), delta=1e-5, fixed_seed=fixed_seed, start=start
  )


def test_equal_runs_are_composed_and_not_taken_for_one():
  both = ledger_lib.compose({"a": statement_of(), "b": statement_of()})
  assert both.ledger.steps == 40 and both.levels == ("user", "record")
  for level in both.levels:
    found = both.guarantee(level, delta=1e-5)
    assert found.epsilon == run_of(steps=40).epsilon(level, 1e-5)
    assert "same units" in found.assumptions[0]
  once = run_of(stage=plan.RandomAllocation(20)).as_dict()
  passes = ledger_lib.compose({"a": once, "b": once})
  assert [e.steps for e in passes.ledger.entries] == [20, 20]


def assert_compose_refused(match, *arguments, **options):
  """Require one sentence that says what is wrong."""
  assert_refused(
      plan.PlanError, match, ledger_lib.compose, *arguments, **options
  )


@pytest.mark.parametrize(
    "one,other,match",
    [
        (["1"], ["1"], "a and b are of one run"),
        (["1", "2", "3"], ["1", "2"], "are of one run"),
        (["1", "2"], ["1", "3"], "of copies of it"),
        (["1", "2"], ["2"], "of copies of it"),
        (["1", "2"], ["3", "2"], "of copies of it"),
        (("1", "2"), ["1"], "are of one run"),
        (("1", "2"), ("2",), "of copies of it"),
        (["1"], ["2"], None),
    ],
)
def test_one_run_and_its_copies_are_not_taken_for_two(one, other, match):
  described = {
      "a": statement_of() | {"lineage": one},
      "b": statement_of() | {"lineage": other},
  }
  if match is None:
    assert ledger_lib.compose(described).ledger.steps == 40
    return
  assert_compose_refused(match, described)


def test_other_trees_are_refused_until_a_level_is_named():
  described = {"a": statement_of(), "b": statement_of(sizes=(400, 12))}
  assert_compose_refused("--same_level=user", described)
  both = ledger_lib.compose(described, same_levels=["user"])
  assert both.levels == ("user",)
  with pytest.raises(plan.PlanError, match="not known to have the same"):
    both.guarantee("record", delta=1e-5)
  # So are those of a ledger that was composed before, in either place.
  joint = {"c": both.ledger.as_dict(), "d": statement_of()}
  assert_compose_refused("the runs in c have different", joint)
  assert_compose_refused("d and c have", dict(reversed(joint.items())))
  assert_compose_refused("--same_level=week", described, same_levels=["week"])
  described["b"] = statement_of(levels=("person", "photo"))
  assert_compose_refused("no level of a has the same name", described)


def test_one_seed_is_said_and_two_are_refused():
  seeded = statement_of(fixed_seed=True)
  plain = statement_of(start="ab") | {"backbone": "cd"}
  found = ledger_lib.compose({"a": seeded, "b": plain})
  reported = found.guarantee("user", delta=1e-5)
  assert reported.caveat.startswith(report.SEEDED)
  for sentence in (report.STARTED, report.EMBEDDED):
    assert f"b: {sentence}" in reported.assumptions
  assert_compose_refused("a and b fix private_seed", {"a": seeded, "b": seeded})


@pytest.mark.parametrize("data", [{}, 5, {"entries": [5]}, {"entries": []}])
def test_what_is_no_ledger_is_named(data):
  assert_compose_refused("^b: ", {"a": statement_of(), "b": data})
