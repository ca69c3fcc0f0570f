"""User-level guarantees of training that clips and draws examples."""

import numpy as np
import pytest
from scipy import stats

from episodic_dp import accounting
from episodic_dp import plan
from episodic_dp.accounting import distances
from episodic_dp.accounting import recurrence
from episodic_dp.accounting.accountants import base
from episodic_dp.accounting.profiles import amplification
from episodic_dp.accounting.profiles import counts
from episodic_dp.accounting.profiles import random_count
from tests import plans

DEEP = ("user", "group", "example")


def release(hierarchy, *stages, clip=None, z=1.0):
  return plans.release(
      hierarchy, plans.sampling(*stages), clip or hierarchy.levels[-1], z
  )


def users(count, examples):
  return plans.tree("user example", count, examples)


# Numbers ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "rates,z,user",
    [
        ((0.01, 0.05), 10.0, 0.5348),
        ((1.0, 0.01), 30.0, 3.522),
    ],
)
@pytest.mark.slow
def test_users_of_example_level_training(rates, z, user):
  """Infinite when a user counted as all of his examples."""
  r = release(users(1000, 100), *rates, z=z)
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
  h = plans.tree(DEEP, 20, 3, 4)
  r = release(h, 0.5, 0.2, 0.7)
  row = row_of(r, "user")
  inner = 0.2 * stats.binom.pmf(range(5), 4, 0.7)
  inner[0] += 0.8
  wanted = np.convolve(np.convolve(inner, inner), inner)
  assert row.number.values.tolist() == list(range(13))
  np.testing.assert_allclose(row.number.probs, wanted, rtol=1e-9)
  assert (row.rates, row.others) == ((0.5,), ())
  assert row.instead == counts.constant(0)
  group = row_of(r, "group")  # A level between.
  np.testing.assert_allclose(
      group.number.probs, stats.binom.pmf(range(5), 4, 0.7)
  )
  # Where the user is not drawn, two other groups are not either.
  assert (group.rates, group.others) == ((0.5, 0.2), (8.0,))


@pytest.mark.parametrize("first", [0.4, 1])
def test_copies_whose_clip_units_are_drawn_below(first):
  """One class under two participants, its images clip units."""
  h = plans.tree(
      "participant class image", 3, 2, 2, copies=True, most_copies={"class": 2}
  )
  r = release(h, first, 1, 0.5, z=1.5)
  (unit,) = accounting.unit_profiles(r, "class")
  assert isinstance(unit, recurrence.Recurrence)
  assert unit.number == unit.instead
  assert unit.number.values.tolist() == [0, 1, 2]


def test_copies_that_move_the_sum_unequally_are_refused():
  h = plans.tree(
      "participant class image", 3, 2, 2, copies=True, most_copies={"image": 2}
  )
  r = release(
      h, 1, plan.All(), plan.All(), clip="participant"
  )
  found = distances.paths(r, 2)
  recurrence.copied(r, found, ())
  both = distances.Paths(*(np.concatenate([part, part]) for part in found))
  both.own[1, 0] += 1
  with pytest.raises(plan.UnsoundPlanError, match="of different sizes"):
    recurrence.copied(r, both, ())


def test_a_class_that_5000_participants_hold_costs_what_is_drawn_of_it():
  """About 20 of them are drawn in a step, each a clip unit that changes."""
  h = plans.tree(
      "participant class image", 400_000, 5, 10, copies=True,
      most_copies={"class": 5000},
  )
  r = release(
      h, 0.004, 5, 2,
      clip="participant", z=4.0,
  )
  found = accounting.guarantee(r, steps=250, delta=1e-6, level="class").epsilon
  drawn = base.GaussianCurve(20 * 2 / 4 * 250**0.5).epsilon(1e-6)
  assert 0.9 * drawn < found < 1.3 * drawn


# Siblings ---------------------------------------------------------------------


def test_examples_are_averaged_over_what_siblings_draw():
  """If all siblings were drawn with a user, an example paid six times that."""
  r = release(users(1000, 100), 0.01, 0.05, z=10.0)
  (kind,) = accounting.unit_profiles(r, "example")
  assert isinstance(kind, random_count.RandomType) and len(kind.parts) <= 41
  assert sum(chance for chance, _ in kind.parts) == pytest.approx(1)
  # 99 others at most, rounded up from 99 * 0.05.
  tree = amplification.Amplification((0.01,), 0.05, (10.0,), 0.1)
  assert kind.parts[-1][1] == tree
  mean = sum(chance * u.outer_distances[0] for chance, u in kind.parts)
  assert 0.1 + 0.495 <= mean < 0.1 + 0.55
  found = accounting.guarantee(r, steps=500, delta=1e-6, level="example")
  assert found.epsilon < 0.00745  # 0.048 with all of them


def test_levels_below_the_clip_units_stay_trees():
  h = plans.tree(DEEP, 10, 4, 6)
  stages = (0.5,) * 3
  r = release(h, *stages, clip="group")
  (kind,) = accounting.unit_profiles(r, "example")
  assert isinstance(kind, amplification.Amplification)
  r = release(h, plan.All(), 0.5, 0.5)
  (kind,) = accounting.unit_profiles(r, "group")  # The path never breaks.
  assert isinstance(kind, random_count.RandomCount)


@pytest.mark.parametrize("steps", [1, 5])
@pytest.mark.few(1)
def test_a_user_of_many_far_examples_counts_those_drawn(steps):
  """With all of the 1000 examples it would be 502 199."""
  release = plans.release(
      plans.tree("user image", 10_000, 1000), plans.sampling(1e-4, 0.2),
      "image",
  )
  found = accounting.guarantee(release, steps=steps, level="user", delta=1e-5)
  number = np.arange(1001)
  chances = stats.binom.pmf(number, 1000, 0.2)
  # One step with the user loses about K^2 / 2 + K x, at a normal number x.
  x = np.linspace(-6, 6, 2001)
  loss = number[:, None] ** 2 / 2 + number[:, None] * x
  lost = (loss > 1.02 * found.epsilon) * chances[:, None] * stats.norm.pdf(x)
  assert 1e-4 * lost.sum() * (x[1] - x[0]) < 1e-5
  assert found.epsilons["add"] < 1e-2 and found.epsilon < 26_500
