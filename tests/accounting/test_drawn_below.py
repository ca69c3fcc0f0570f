"""User-level guarantees of training that clips and draws examples."""

import math

import numpy as np
import pytest
from scipy import stats

from episodic_dp import accounting
from episodic_dp import plan
from episodic_dp.accounting import distances
from episodic_dp.accounting.profiles import amplification
from episodic_dp.accounting.profiles import random_count
from episodic_dp.accounting.profiles import recurrence
from episodic_dp.accounting.profiles import unit_profile
from tests.oracles import exact
from tests.oracles import worst_case

DEEP = ("user", "group", "example")


def release(hierarchy, *stages, clip=None, z=1.0, **options):
  return plan.Release(
      hierarchy,
      plan.SamplingPlan(stages, **options),
      plan.Mechanism(
          clip_unit=clip or hierarchy.levels[-1], noise_multiplier=z
      ),
  )


def users(count, examples):
  return plan.Hierarchy.regular((count, examples), levels=("user", "example"))


# Numbers ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "rates,z,user",
    [
        ((0.01, 0.05), 10.0, 0.5348),
        pytest.param((1.0, 0.01), 30.0, 3.522, marks=pytest.mark.slow),
    ],
)
def test_users_of_example_level_training(rates, z, user):
  """Infinite when a user counted as all of his examples."""
  r = release(users(1000, 100), *map(plan.Poisson, rates), z=z)
  found = accounting.guarantees(r, steps=500, delta=1e-6)
  assert list(found) == ["user", "example"]  # Both from one run.
  assert found["user"].epsilon == pytest.approx(user, rel=1e-3)
  assert found["example"].epsilon < 0.1 * user
  least = accounting.lower_bound(r, steps=500, delta=1e-6, level="user")
  assert found["user"].epsilon <= 1.01 * least


# Laws -------------------------------------------------------------------------


def row_of(r, level):
  (row,) = distances.random_paths(r, r.hierarchy.level_index(level))
  return row


def test_numbers_are_compounds_of_binomials():
  h = plan.Hierarchy.regular((20, 3, 4), levels=DEEP)
  r = release(h, plan.Poisson(0.5), plan.Poisson(0.2), plan.Poisson(0.7))
  row = row_of(r, "user")
  inner = 0.2 * stats.binom.pmf(range(5), 4, 0.7)
  inner[0] += 0.8
  wanted = np.convolve(np.convolve(inner, inner), inner)
  assert row.number.values == tuple(range(13))
  np.testing.assert_allclose(row.number.probs, wanted, rtol=1e-9)
  assert (row.rates, row.others) == ((0.5,), ())
  assert row.instead == random_count.NOTHING
  group = row_of(r, "group")  # A level between.
  np.testing.assert_allclose(
      group.number.probs, stats.binom.pmf(range(5), 4, 0.7)
  )
  # Where the user is not drawn, two other groups are not either.
  assert (group.rates, group.others) == ((0.5, 0.2), (8.0,))


# Enumeration ------------------------------------------------------------------


def random_release(rng):
  """A tiny ragged tree with a Poisson stage above its clip units, or None."""
  depth = int(rng.integers(2, 4))

  def sizes(left):
    many = int(rng.integers(1, 4 if depth == 2 else 3))
    return many if left == 1 else [sizes(left - 1) for _ in range(many)]

  def stage():
    return (
        plan.FixedSize(int(rng.integers(1, 3))), plan.All(),
        plan.Poisson(float(rng.uniform(0.1, 1))),
        plan.Poisson(float(rng.uniform(0.1, 1))),
    )[rng.integers(4)]

  h = plan.Hierarchy.from_sizes(sizes(depth), levels=DEEP[-depth:])
  clip = int(rng.integers(1, depth))
  level = int(rng.integers(0, clip + 1))
  r = release(
      h, *(stage() for _ in range(depth)), clip=h.levels[clip],
      z=float(rng.uniform(0.5, 4)), allow_short_units=True,
  )
  return (r, level) if distances.draws_random_number(r, level) else None


def check_release(r, level):
  """Nothing above the bound; and how near it comes."""
  z, reached = r.mechanism.noise_multiplier, 0.0
  units = accounting.unit_profiles(r, r.levels[level])
  for unit in range(r.hierarchy.num_units(level)):
    drawn = exact.pair(r.hierarchy, r.plan, level, unit)
    for gradient in worst_case.gradients(r.hierarchy, level, unit):
      for epsilon in (0.02, 0.5, 2.0):
        truth = exact.divergences(drawn, r.clip_level, gradient, epsilon, z)
        for direction, value in truth.items():
          (bound,) = unit_profile.profile(
              units, np.asarray([epsilon]), direction
          )
          assert value <= bound + 1e-9, (r, level, unit, epsilon, direction)
          reached = max(reached, value / max(float(bound), 1e-300))
  return reached


@pytest.mark.parametrize("seed", range(3))
def test_random_plans_are_never_above_the_bound(seed):
  rng = np.random.default_rng(seed)
  found = 0
  while found < 3:
    made = random_release(rng)
    if made is not None and exact.num_samples(
        exact.tree(made[0].hierarchy), made[0].plan.stages
    ) < 500:
      check_release(*made)
      found += 1


@pytest.mark.slow  # Many enumerations.
def test_many_random_plans_are_never_above_the_bound():
  rng = np.random.default_rng(100)
  found = 0
  while found < 300:
    made = random_release(rng)
    if made is not None and exact.num_samples(
        exact.tree(made[0].hierarchy), made[0].plan.stages
    ) < 3000:
      check_release(*made)
      found += 1


@pytest.mark.parametrize("first", [plan.Poisson(0.4), plan.FixedSize(1)])
def test_copies_whose_clip_units_are_drawn_below(first):
  """One class under two participants, its images clip units."""
  h = plan.Hierarchy.regular(
      (3, 2, 2), levels=("participant", "class", "image"), copies=True,
      most_copies={"class": 2},
  )
  r = release(h, first, plan.FixedSize(1), plan.Poisson(0.5), z=1.5)
  (unit,) = accounting.unit_profiles(r, "class")
  assert isinstance(unit, recurrence.Recurrence)
  assert unit.number.values == (0, 1, 2) == unit.instead.values
  places = (0, 2)
  root = smaller = exact.tree(h)
  for place in places:
    smaller = exact.without(smaller, 1, place)
  for elsewhere in (-1.0, 0.0, 1.0):
    def gradient(node, elsewhere=elsewhere):
      owner = node[1] // 2
      if owner in places:
        return 1.0
      return -1.0 if owner in (1, 3) else elsewhere

    larger, less = (
        exact.mixture(exact.samples(part, r.plan.stages), 2, gradient)
        for part in (root, smaller)
    )
    for epsilon in (0.05, 0.3, 1.0):
      for direction in ("remove", "add"):
        pair = (larger, less) if direction == "remove" else (less, larger)
        truth = exact.hockey_stick(*pair, math.exp(epsilon), 1.5)
        (bound,) = unit_profile.profile(
            (unit,), np.asarray([epsilon]), direction
        )
        assert truth <= bound + 1e-9


# Siblings ---------------------------------------------------------------------


def test_examples_are_averaged_over_what_siblings_draw():
  """If all siblings were drawn with a user, an example paid six times that."""
  r = release(users(1000, 100), plan.Poisson(0.01), plan.Poisson(0.05), z=10.0)
  (kind,) = accounting.unit_profiles(r, "example")
  assert isinstance(kind, random_count.Averaged) and len(kind.parts) <= 41
  assert sum(chance for chance, _ in kind.parts) == pytest.approx(1)
  # 99 others at most, rounded up from 99 * 0.05.
  tree = amplification.Amplification((0.01,), 0.05, (10.0,), 0.1)
  assert kind.at_most == tree
  mean = sum(chance * u.outer_distances[0] for chance, u in kind.parts)
  assert 0.1 + 0.495 <= mean < 0.1 + 0.55
  found = accounting.guarantee(r, steps=500, delta=1e-6, level="example")
  assert found.epsilon < 0.00745  # 0.048 with all of them


def test_levels_below_the_clip_units_stay_trees():
  h = plan.Hierarchy.regular((10, 4, 6), levels=DEEP)
  stages = (plan.Poisson(0.5),) * 3
  r = release(h, *stages, clip="group")
  (kind,) = accounting.unit_profiles(r, "example")
  assert isinstance(kind, amplification.Amplification)
  r = release(h, plan.All(), plan.Poisson(0.5), plan.Poisson(0.5))
  (kind,) = accounting.unit_profiles(r, "group")  # The path never breaks.
  assert isinstance(kind, random_count.RandomCount)
