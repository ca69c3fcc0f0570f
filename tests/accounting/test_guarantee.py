"""The public functions: what they report, and what they refuse."""

import dataclasses
import math
import pathlib
import subprocess
import sys
import tracemalloc

import numpy as np
import pytest

from episodic_dp import accounting
from episodic_dp import plan
from episodic_dp.accounting import report
from tests import plans
from tests.refusals import assert_refused
from tests.stored import through_json

PARTICIPANTS = plans.tree("participant class image", 400_000, 5, 10)
POISSON = plans.sampling(0.004, 5, 2, way=5, shot=1, query=1)
TASKS = plan.Mechanism(clip_unit="participant", noise_multiplier=1.0)
RELEASE = plan.Release(PARTICIPANTS, POISSON, TASKS)


def guarantee(
    level="participant", h=PARTICIPANTS, p=POISSON, m=TASKS, **options
):
  options = dict(steps=250, delta=1e-6) | options
  return accounting.guarantee(plan.Release(h, p, m), level=level, **options)


def test_one_run_gives_every_level_its_guarantee():
  found = accounting.guarantees(RELEASE, steps=250, delta=1e-6)
  assert list(found) == ["participant", "class", "image"]
  assert found["participant"].epsilon == pytest.approx(0.498, rel=3e-3)
  assert found["class"].epsilon == pytest.approx(0.618, rel=3e-3)
  assert found["image"].epsilon == pytest.approx(0.1116, rel=3e-2)
  assert found["image"].inclusion_rate == pytest.approx(0.004 * 0.2)
  for level, g in found.items():
    assert g.level == level
    assert g.neighbours == f"add or remove one {level}"
    assert g.epsilon == max(g.epsilons.values()) == g.epsilons[g.direction]
    assert g.accountant == "pld" and g.steps == 250 and g.delta == 1e-6
    assert set(report.ASSUMED_THROUGHOUT) <= set(g.assumptions)


def test_no_noise_is_infinite():
  none = plan.Mechanism(
      clip_unit="participant", noise_multiplier=0.0, clip_norm=math.inf
  )
  g = guarantee(m=none)
  assert math.isinf(g.epsilon) and "no formal guarantee" in str(g)
  data = through_json(g.as_dict())
  assert data["epsilon"] == "inf"
  options = dict(delta=1e-6, level="participant")
  assert not accounting.max_steps(
      RELEASE.replace(mechanism=none), target_epsilon=8.0, **options
  )


def test_text_and_json():
  g = guarantee()
  text = str(g)
  assert "\n" not in text
  for part in ("participant", "0.498", "1e-06", "steps=250", "add or remove"):
    assert part in text
  data = through_json(g.as_dict())
  assert data == g.as_dict()
  assert data["epsilon"] == g.epsilon
  assert data["assumptions"] == list(g.assumptions)


@pytest.mark.parametrize(
    "epsilon,text",
    [(0.49831, "0.4984"), (0.0, "0"), (31.37, "31.37"), (31.3700001, "31.38"),
     (123456.0, "123500"), (1.2e-7, "0.00000012"), (math.inf, "inf")],
)
def test_epsilon_is_rounded_up(epsilon, text):
  shown = report.rounded_up(epsilon)
  assert float(shown) >= epsilon and float(shown) == pytest.approx(float(text))
  assert "e" not in shown.lower()


@pytest.mark.parametrize(
    "delta,text",
    [(1e-5, "1e-05"), (0.0049205906, "0.0049206"), (0.0, "0"), (1.0, "1"),
     (1.0000001e-6, "1.00001e-06"), (0.00082938019, "0.000829381")],
)
def test_delta_is_rounded_up(delta, text):
  assert report.rounded_delta(delta) == text
  assert f"at delta {text} (" in str(
      dataclasses.replace(guarantee(), delta=delta)
  )


def test_a_lower_bound_is_rounded_down():
  assert report.rounded_down(1.23458) == "1.234"
  assert float(report.rounded_down(0.0)) == 0


def test_no_level_with_a_guarantee_says_why():
  h = plans.tree("class image", 10, 20)
  p = plans.sampling(5, 2, way=5, shot=1, query=1, form="independent", tasks=4)
  with pytest.raises(plan.UnsoundPlanError, match="clip_unit='episode'"):
    accounting.guarantees(plans.release(h, p, "class"), steps=1, delta=1e-6)


@pytest.mark.parametrize(
    "name, value",
    [
        ("steps", 0), ("steps", 2.5), ("steps", True), ("delta", True),
        ("delta", 0.0), ("delta", 1.0), ("delta", math.nan),
        ("accountant", "renyi"), ("neighbours", "replace"),
    ],
)
def test_a_value_out_of_range_is_named(name, value):
  said = f"{name}={value!r}"
  assert_refused(plan.PlanError, said, guarantee, **{name: value})


def test_bare_formula():
  common = dict(steps=250, delta=1e-6)
  both = accounting.epsilon(0.004, 0.2, (1.0, 2.0), **common)
  each = [
      accounting.epsilon(0.004, 0.2, (1.0, 2.0), direction=d, **common)
      for d in ("remove", "add")
  ]
  assert both == max(each) == pytest.approx(guarantee("image").epsilon)
  assert accounting.epsilon(1.0, 0.004, 1.0, **common) == pytest.approx(
      guarantee().epsilon
  )
  assert accounting.epsilon(0.5, 0.0, 1.0, **common) == 0
  assert math.isinf(accounting.epsilon(0.5, 0.1, math.inf, **common))


@pytest.mark.parametrize(
    "q,p,distances,direction,match",
    [
        (1.5, 0.1, 1.0, None, "q=1.5"),
        (0.5, -0.1, 1.0, None, "p=-0.1"),
        (0.5, 0.1, (1.0, 2.0, 3.0), None, "distances"),
        (0.5, 0.1, -1.0, None, "distances"),
        (0.5, 0.1, True, None, "distances"),
        (True, 0.1, 1.0, None, "q=True"),
        (0.5, True, 1.0, None, "p=True"),
        (0.5, 0.1, 1.0, "up", "direction='up'"),
    ],
)
def test_wrong_values_of_the_bare_formula(q, p, distances, direction, match):
  with pytest.raises(plan.PlanError, match=match):
    accounting.epsilon(q, p, distances, 250, 1e-6, direction=direction)


@pytest.mark.parametrize(
    "target,options,most",
    [(0.01, {}, 0), (5, dict(limit=7), 7), (math.inf, dict(limit=9), 9)],
)
def test_max_steps_at_its_ends(target, options, most):
  assert accounting.max_steps(
      RELEASE, target_epsilon=target, delta=1e-6, level="participant", **options
  ) == most


@pytest.mark.parametrize("epsilon", [0.05, 1.5, 20.0])
@pytest.mark.parametrize("start", [0.0, 1.0, 30.0])
@pytest.mark.few(4)
def test_calibration_is_within_one_percent(epsilon, start):
  options = dict(steps=250, delta=1e-6, level="image")
  m = plan.Mechanism(
      clip_unit="participant", noise_multiplier=start, clip_norm=0.5
  )
  got = accounting.calibrate(
      RELEASE.replace(mechanism=m), epsilon=epsilon, **options
  )
  assert got.clip_norm == 0.5 and got.clip_unit == "participant"
  reached = guarantee(m=got, **options).epsilon
  assert 0.99 * epsilon <= reached <= epsilon


@pytest.mark.parametrize("target", [0.1, 0.6])
def test_most_tasks_per_step_of_a_rate(target):
  options = dict(steps=250, delta=1e-6, level="participant")
  got = accounting.max_tasks(RELEASE, target_epsilon=target, **options)
  assert got.stages[1:] == POISSON.stages[1:]
  reached = guarantee(p=got, **options).epsilon
  assert 0.99 * target <= reached <= target


def test_most_tasks_per_step_of_a_number():
  h = plans.tree("class image", 1000, 20)
  p = plans.sampling(10, 2, way=5, shot=1, query=1, form="disjoint")
  m = plan.Mechanism(clip_unit="episode", noise_multiplier=3.0)
  options = dict(steps=20, delta=1e-5, level="class")
  got = accounting.max_tasks(
    plan.Release(h, p, m), target_epsilon=1.0, **options
  )
  n = got.stages[0].n
  assert n % 5 == 0 and n > 5
  more = dataclasses.replace(got, stages=(plan.FixedSize(n + 5), p.stages[1]))
  assert accounting.guarantee(plan.Release(h, got, m), **options).epsilon <= 1.0
  assert accounting.guarantee(plan.Release(h, more, m), **options).epsilon > 1.0


FEW = plans.tree("participant image", 2, 3)
ASKED = dict(steps=250, delta=1e-6, level="image")


@pytest.mark.parametrize(
    "function,release,options,match",
    [
        (accounting.guarantee, RELEASE, dict(steps=10**13),
         "steps=.*from 1 to 1000000000000"),
        (accounting.guarantee, RELEASE, dict(level="person"),
         "unknown level 'person'"),
        (accounting.guarantee, RELEASE, dict(delta=None, epsilon=True),
         "epsilon=True"),
        (accounting.guarantee, RELEASE, dict(delta=None), "give one of them"),
        (accounting.guarantee, RELEASE, dict(epsilon=1.0), "give one of them"),
        (accounting.guarantee, RELEASE, dict(delta=None, epsilon=math.inf),
         "epsilon=inf"),
        *(
            (accounting.calibrate, RELEASE, dict(epsilon=value), "epsilon=")
            for value in (0.0, -1.0, math.nan, math.inf)
        ),
        (accounting.calibrate, RELEASE, dict(epsilon=1.0, delta=1e-25),
         "larger delta"),
        (
            accounting.max_tasks,
            RELEASE.replace(hierarchy=FEW, plan=plans.sampling(1, 2)),
            dict(target_epsilon=0.01, steps=10**6),
            "with the fewest tasks",
        ),
        (
            accounting.max_tasks,
            RELEASE.replace(hierarchy=FEW, plan=plans.sampling(plan.All(), 2)),
            dict(target_epsilon=0.01),
            "no number of tasks to choose",
        ),
    ],
)
def test_what_cannot_be_is_refused(function, release, options, match):
  assert_refused(plan.PlanError, match, function, release, **(ASKED | options))


@pytest.mark.parametrize(
    "options,match",
    [
        (dict(target_epsilon=-1), "target_epsilon=-1"),
        (dict(target_epsilon=True), "target_epsilon=True"),
        (dict(limit=True), "limit=True"),
    ],
)
def test_limits_that_are_no_numbers_of_steps(options, match):
  options = dict(target_epsilon=1.0, delta=1e-6, level="image") | options
  with pytest.raises(plan.PlanError, match=match):
    accounting.max_steps(RELEASE, **options)


@pytest.mark.parametrize(
    "make",
    [
        lambda: accounting.Ledger().add(RELEASE, True),
        lambda: plan.FixedSize(True),
        lambda: plan.Poisson(True),
        lambda: plan.RandomAllocation(True),
        lambda: plan.Episode(way=True, shot=1, query=1),
        lambda: plan.Hierarchy(levels=("a",), sizes=(True,)),
        lambda: plans.nested("a b", [True]),
        *(
            lambda fields=fields: plan.Mechanism(**(
                dict(clip_unit="a", noise_multiplier=1.0) | fields
            ))
            for fields in (
                dict(noise_multiplier=True), dict(noise_multiplier=False),
                dict(clip_norm=True), dict(inner_steps=True),
                dict(order="first", inner_steps=1, inner_clip_norm=1.0,
                     inner_noise_multiplier=True),
            )
        ),
    ],
)
def test_a_boolean_is_no_number(make):
  assert_refused(plan.PlanError, "True|False", make)


def test_an_environment_with_numpy_and_scipy_suffices(tmp_path):
  """Also for the sampler for other frameworks."""
  packages = pathlib.Path(np.__file__).parents[1]
  root = pathlib.Path(accounting.__file__).parents[2]
  for path in (*packages.glob("numpy*"), *packages.glob("scipy*")):
    (tmp_path / path.name).symlink_to(path)
  code = (
      "import episodic_dp.sampling.numpy_sampler;"
      "from episodic_dp import accounting, plan;"
      "r = plan.Release(plan.Hierarchy.regular((9,), levels=('a',)),"
      " plan.SamplingPlan((plan.Poisson(0.5),)),"
      " plan.Mechanism(clip_unit='a', noise_multiplier=2.0));"
      "print(*[accounting.guarantee(r, steps=9, delta=1e-5, level='a',"
      " accountant=name).epsilon for name in ('pld', 'rdp', 'moments')])"
  )
  done = subprocess.run(
      [sys.executable, "-S", "-c", code], capture_output=True, text=True,
      check=True, env=dict(PYTHONPATH=f"{tmp_path}:{root}"),
  )
  assert all(float(epsilon) > 0 for epsilon in done.stdout.split())


# Most steps -------------------------------------------------------------------


HIERARCHY = plans.tree("user class x", 500, 5, 4)
PLAN = plans.sampling(0.1, 3, 2)


def release_of(first=PLAN.stages[0]):
  return plans.release(
      HIERARCHY, plans.sampling(first, *PLAN.stages[1:]), "user"
  )


def _most(release, target, level="user"):
  return accounting.max_steps(
      release, target_epsilon=target, delta=1e-5, level=level
  )


def epsilon_of(steps, level="user", release=None):
  return accounting.guarantee(
      release or release_of(), steps=steps, level=level, delta=1e-5
  ).epsilon


@pytest.mark.parametrize("level", ["user", "class"])
def test_one_more_step_passes_the_target(level):
  steps = _most(release_of(), 2.0, level)
  reached, passed = (epsilon_of(n, level) for n in (steps, steps + 1))
  assert 1 <= steps < 1000
  assert reached <= 2.0 < passed


def test_a_budget_may_end_inside_a_pass():
  """Each user once in 20 steps: two passes, and a part of the third."""
  passes = release_of(plan.RandomAllocation(20))
  two, part, three = (epsilon_of(n, release=passes) for n in (40, 50, 60))
  assert _most(passes, part) == 50
  assert two < part < three


# Units that are seldom sampled ------------------------------------------------


def users_of(units, stages, z, clip="user"):
  levels = ("user", "image")[: len(units)]
  return plans.release(
      plans.tree(levels, *units), plans.sampling(*stages),
      clip, z,
  )


FAR = users_of((100_000, 1000), (10, plan.All()), 1.0, "image")
SELDOM = users_of((10**6,), (1,), 0.001)
HARDLY = users_of((10, 10), (plan.All(), 1e-15), 0.05, "image")


@pytest.mark.parametrize("accountant", ("pld", "rdp", "moments"))
@pytest.mark.parametrize("neighbours", report.RELATIONS)
def test_delta_is_at_most_the_chance_to_be_sampled(accountant, neighbours):
  asked = dict(level="user", accountant=accountant, neighbours=neighbours)
  never = (1 - 1e-4) ** 1000
  for epsilon in (0.0, 1.0, 100.0):
    found = accounting.guarantee(FAR, steps=1000, epsilon=epsilon, **asked)
    assert found.delta == pytest.approx(1 - never, rel=1e-6)
  found = accounting.guarantee(SELDOM, steps=100, delta=1e-4, **asked)
  assert found.epsilon == 0.0
  found = accounting.guarantee(HARDLY, steps=10**8, epsilon=1.0, **asked)
  assert 1e-6 * (1 - 1e-6) < found.delta < 2.01e-6
  once = accounting.Ledger().add(SELDOM, 60)
  other = SELDOM.replace(
      mechanism=plan.Mechanism(clip_unit="user", noise_multiplier=0.002)
  )
  both = once.add(other, 40)
  assert both.guarantee(delta=1e-4, **asked).epsilon == 0.0
  assert both.add(other, 2).guarantee(delta=1e-4, **asked).epsilon > 100


def test_a_part_of_a_pass_may_not_use_a_unit():
  release = users_of((1000,), (plan.RandomAllocation(100),), 0.001)
  found = accounting.guarantee(release, steps=5, level="user", epsilon=3.0)
  assert found.delta == pytest.approx(0.05, rel=1e-6)
  assert accounting.epsilon(0.1, 0.1, math.inf, steps=1, delta=0.0101) == 0.0
  assert math.isinf(accounting.epsilon(0.1, 0.1, math.inf, 1, delta=0.0099))


def test_noise_that_would_protect_nobody_is_not_calibrated():
  asked = dict(steps=100, epsilon=1.0, level="user")
  with pytest.raises(plan.PlanError, match="no noise is needed"):
    accounting.calibrate(SELDOM, delta=1e-4, **asked)
  found = accounting.calibrate(
      SELDOM, delta=1e-4, allow_no_noise=True, **asked
  )
  assert found.noise_multiplier < 1e-9


@pytest.mark.parametrize("delta, warned", [(0.9e-3, False), (1e-3, True)])
def test_a_delta_of_one_unit_is_warned_of(delta, warned):
  release = users_of((1000,), (0.1,), 2.0)
  found = accounting.guarantee(release, steps=100, level="user", delta=delta)
  assert warned == ("at least 1 / 1000" in str(found))
  again = accounting.guarantee(
      release, steps=100, level="user", epsilon=found.epsilon * (1 - warned / 9)
  )
  assert warned == ("at least 1 / 1000" in again.caveat)


# Other relations --------------------------------------------------------------


def test_noise_steps_and_tasks_are_found_for_replaced_units():
  release = users_of((1000,), (0.05,), 2.0)
  asked = dict(delta=1e-5, level="user", neighbours="replace-one")

  def spent(release, steps=100):
    return accounting.guarantee(release, steps=steps, **asked).epsilon

  found = accounting.calibrate(release, steps=100, epsilon=2.0, **asked)
  assert 1.98 <= spent(release.replace(mechanism=found)) <= 2.0
  steps = accounting.max_steps(release, target_epsilon=2.0, **asked)
  assert spent(release, steps) <= 2.0 < spent(release, steps + 1)
  tasks = accounting.max_tasks(release, steps=100, target_epsilon=2.0, **asked)
  assert 1.98 <= spent(release.replace(plan=tasks)) <= 2.0
  bare = accounting.epsilon(
      1.0, 0.05, 0.5, steps=100, delta=1e-5, neighbours="replace-one"
  )
  assert bare == pytest.approx(spent(release), rel=1e-3)
  # One whose place another takes is as far from that as from other data.
  placed = release.replace(plan=plans.sampling(50))
  bare = accounting.epsilon(
      1.0, 0.05, (1.0, 1.0, 1.0), steps=100, delta=1e-5,
      neighbours="replace-one",
  )
  assert bare == pytest.approx(spent(placed), rel=1e-3)


def test_the_examples_of_a_ragged_tree_take_no_memory():
  people, classes, images = 2_000, 10, 10_000
  even = plans.tree("participant class image", people, classes, images)
  starts = np.array([0, people]), np.arange(people + 1) * classes
  offsets = (*starts, np.arange(people * classes + 1) * images)
  ragged = dataclasses.replace(even, sizes=None, offsets=offsets)
  tracemalloc.start()
  found = guarantee("image", ragged)
  assert tracemalloc.get_traced_memory()[1] < 10**8  # 200 million images.
  tracemalloc.stop()
  assert found.epsilon == pytest.approx(guarantee("image", even).epsilon)
