"""Groups of k units: enumerated, against Gaussians, and what is refused."""

import math

import numpy as np
import pytest

from episodic_dp import accounting
from episodic_dp import plan
from episodic_dp.accounting import group_privacy
from episodic_dp.accounting.accountants import chain
from episodic_dp.accounting.accountants import curves
from episodic_dp.accounting.reference import exact
from episodic_dp.accounting.reference import worst_case

LEVELS = ("unit", "record")


def release(sizes, stages, z=1.0, clip="record"):
  if isinstance(sizes, tuple):
    h = plan.Hierarchy.regular(sizes, levels=LEVELS[-len(sizes):])
  else:
    h = plan.Hierarchy.from_sizes(sizes, levels=LEVELS)
  return plan.Release(
      h,
      plan.SamplingPlan(stages, allow_short_units=True),
      plan.Mechanism(clip_unit=clip, noise_multiplier=z)
  )


def divergences(r, level, units, gradient, epsilon):
  """The truth for all the units in against all of them out."""
  whole = exact.tree(r.hierarchy)
  less = whole
  for unit in units:
    less = exact.without(less, level, unit)
  clip = r.clip_level
  drawn = tuple(
      exact.samples(node, r.plan.stages, clip=clip) for node in (whole, less)
  )
  z = r.mechanism.noise_multiplier
  return exact.divergences(drawn, clip, gradient, epsilon, z)


def larger(r, level, units, gradient, epsilon):
  return max(divergences(r, level, units, gradient, epsilon).values())


def bound(r, level, group, epsilon):
  return accounting.guarantee(
      r, steps=1, level=r.hierarchy.levels[level], epsilon=epsilon, group=group
  ).delta


def aligned(r, level, units, rest):
  """+1 for whatever touches a unit of the group."""

  def gradient(node):
    if node[0] <= level:
      mine = any(exact.holds(node, level, unit) for unit in units)
    else:
      mine = worst_case.ancestor(r.hierarchy, node[0], node[1], level) in units
    return 1.0 if mine else rest

  return gradient


def scattered(random):
  """Any number for each drawn subtree."""
  values = {}

  def gradient(node):
    return values.setdefault(node, float(random.uniform(-1, 1)))

  return gradient


@pytest.mark.parametrize("group", [2, 3, 5])
@pytest.mark.parametrize("stage", [plan.Poisson(0.3), plan.All()])
def test_an_aligned_group_of_primary_units_attains_the_bound(group, stage):
  r = release((6,), (stage,), z=1.3)
  for epsilon in (0.0, 0.4, 1.5):
    true = larger(
        r, 0, range(group), lambda node: float(node[1] < group), epsilon
    )
    assert true <= bound(r, 0, group, epsilon) <= 1.001 * true


@pytest.mark.parametrize("group", [2, 3])
def test_a_group_of_a_fixed_size_is_replaced_by_others(group):
  r = release((6,), (plan.FixedSize(2),), z=2.0)
  for epsilon in (0.0, 0.4, 1.5):
    true = larger(
        r, 0, range(group), lambda node: 1.0 if node[1] < group else -1.0,
        epsilon,
    )
    assert true <= bound(r, 0, group, epsilon) <= 1.001 * true


def test_a_group_draws_the_sum_of_its_random_numbers():
  r = release((4, 2), (plan.Poisson(0.3), plan.Poisson(0.4)), z=1.3)
  for epsilon in (0.0, 0.4, 1.5):
    true = larger(r, 0, (0, 1), aligned(r, 0, (0, 1), 0.0), epsilon)
    assert true <= bound(r, 0, 2, epsilon) <= 1.001 * true


@pytest.mark.parametrize(
    "count", [6, pytest.param(250, marks=pytest.mark.slow)]
)
def test_random_plans_are_never_worse_than_a_group_is_told(count):
  random = np.random.default_rng(0)
  smallest = math.inf
  for _ in range(count):
    sizes = random.choice([0, 1, 2, 3], size=random.integers(2, 4)).tolist()
    sizes[0] += 1
    stages = tuple(
        (
            plan.Poisson(float(random.uniform(0.1, 0.9))),
            plan.FixedSize(int(random.integers(1, 3))),
            plan.All(),
        )[random.integers(3)]
        for _ in LEVELS
    )
    r = release(
        sizes, stages, z=float(random.uniform(0.4, 3)),
        clip=str(random.choice(LEVELS)),
    )
    level = int(random.integers(2))
    units = r.hierarchy.num_units(level)
    group = int(random.integers(2, 4))
    if group > units:
      continue
    epsilon = float(random.uniform(0, 2))
    told = bound(r, level, group, epsilon)
    units = random.choice(units, size=group, replace=False).tolist()
    for gradient in (
        aligned(r, level, units, float(random.choice([-1, 0]))),
        scattered(random),
    ):
      true = larger(r, level, units, gradient, epsilon)
      assert true <= told * (1 + 1e-6) + 1e-12, (sizes, stages, level, units)
      if true > 1e-3:
        smallest = min(smallest, told / true)
  assert smallest < 1.05 or count < 100


def test_units_that_leave_raise_the_rate_of_those_that_stay():
  # FixedSize(1) of 3 without two of them, far apart: chaining the rate 1/3
  # would give 1/3 where the truth is 1/2.
  r = release((3,), (plan.FixedSize(1),), z=0.05)
  true = divergences(
      r, 0, (0, 1), lambda node: 1.0 if node[1] < 2 else -1.0, math.log(1.5)
  )
  assert true["add"] == pytest.approx(0.5)
  one = accounting.guarantee(
      r, steps=1, level="record", epsilon=math.log(1.5)
  )
  assert one.delta < true["add"] <= bound(r, 0, 2, math.log(1.5))


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_a_chain_of_gaussians_is_near_the_gaussian_k_times_as_far(size):
  link = curves.GaussianCurve(0.2)
  chained = chain.Chained(link, size)
  whole = curves.GaussianCurve(0.2 * size)
  for delta in (0.3, 1e-2, 1e-6):
    true = whole.epsilon(delta)
    assert true <= chained.epsilon(delta) <= 1.01 * true + 1e-9
    if true > 0:
      assert chained.delta(true) >= delta * (1 - 1e-6)
      # Equal links alone are a bound too, and none that is better.
      ways = sum(math.exp(i * true / size) for i in range(size))
      assert chained.delta(true) <= ways * link.delta(true / size) * 1.001


def test_epsilon_and_delta_of_a_group_agree_and_grow_with_it():
  r = release((400, 8), (plan.Poisson(0.02), plan.FixedSize(2)), clip="unit")
  before = {}
  for group in (1, 3):
    for level in LEVELS:
      g = accounting.guarantee(
          r, steps=20, level=level, delta=1e-6, group=group
      )
      assert g.epsilon > before.get(level, 0.0)
      before[level] = g.epsilon
      again = accounting.guarantee(
          r, steps=20, level=level, epsilon=g.epsilon, group=group
      )
      assert 0.9e-6 < again.delta < 1.001e-6
  assert "up to 3 units of level 'record' together" in g.neighbours
  assert set(accounting.guarantees(
      r, steps=20, delta=1e-6, group=2
  )) == set(LEVELS)


def test_one_mixture_is_tighter_than_a_chain():
  r = release((1000,), (plan.Poisson(0.004),))
  entries = [accounting.Ledger().add(r, 250).entries[0]]
  told = accounting.guarantee(
      r, steps=250, level="record", delta=1e-6, group=4
  ).epsilon
  assert told == pytest.approx(2.168, abs=2e-3)
  assert group_privacy.chained(entries, (), "record", 4)
  # Inside other units no proof says where a group would lie worst.
  inside = release((1000, 3), (plan.Poisson(0.004), plan.All()))
  assert group_privacy.together(
      accounting.Ledger().add(inside, 1).entries, (), "record", 4
  ) is None


def test_a_pass_over_the_units_chains_too():
  r = release((400,), (plan.RandomAllocation(20),))
  values = [
      accounting.guarantee(
          r, steps=20, level="record", delta=1e-6, group=group
      ).epsilon
      for group in (1, 2)
  ]
  assert 2 * values[0] < values[1] < 3 * values[0]


def test_no_noise_is_no_guarantee_for_a_group():
  r = release((40,), (plan.Poisson(0.1),), z=0.0)
  g = accounting.guarantee(r, steps=2, level="record", delta=1e-6, group=3)
  assert math.isinf(g.epsilon)


@pytest.mark.parametrize("group", [0, -1, 1.5, True, 10**7])
def test_a_group_is_a_whole_number(group):
  r = release((40,), (plan.Poisson(0.1),))
  with pytest.raises(plan.PlanError, match="group .* whole number"):
    accounting.guarantee(r, steps=2, level="record", delta=1e-6, group=group)


def test_what_is_not_proved_for_a_group_is_refused():
  r = release((40,), (plan.FixedSize(4),))
  with pytest.raises(plan.UnsoundPlanError, match="replaced together"):
    accounting.guarantee(
        r, steps=2, level="record", delta=1e-6, group=2,
        neighbours="replace-one",
    )
  h = plan.Hierarchy.regular((6, 5), levels=("class", "image"))
  tasks = plan.Release(
      h,
      plan.SamplingPlan(
          (plan.FixedSize(4), plan.FixedSize(2)),
          plan.Episode(way=2, shot=1, query=1, form="disjoint"),
      ),
      plan.Mechanism(clip_unit="episode", noise_multiplier=1.0),
  )
  assert accounting.guarantee(
      tasks, steps=2, level="class", delta=1e-3, group=2
  ).epsilon > 0
  with pytest.raises(plan.UnsoundPlanError, match="would not be filled"):
    accounting.guarantee(tasks, steps=2, level="class", delta=1e-3, group=3)
