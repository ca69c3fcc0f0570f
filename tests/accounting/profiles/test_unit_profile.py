"""Chords of slow profiles: never below them, and hardly above."""

import numpy as np
import pytest

from episodic_dp import plan
from episodic_dp.accounting import sensitivity
from episodic_dp.accounting.profiles import amplification
from episodic_dp.accounting.profiles import unit_profile

USERS = ("user", "example")


def drawn(hierarchy, first, last, z):
  """Users and their examples by Poisson, clipped one by one."""
  return plan.Release(
      hierarchy,
      plan.SamplingPlan((plan.Poisson(first), plan.Poisson(last))),
      plan.Mechanism(clip_unit="example", noise_multiplier=z),
  )


def one_size(z=1.0, users=1000, examples=100, first=0.01, last=0.05):
  h = plan.Hierarchy.regular((users, examples), levels=USERS)
  return drawn(h, first, last, z)


def recurring(copies, z):
  h = plan.Hierarchy.regular(
      (4000, 5, 4), levels=("participant", "class", "image"), copies=True,
      most_copies={"class": copies, "image": copies},
  )
  stages = (plan.Poisson(0.02), plan.FixedSize(5), plan.FixedSize(2))
  mechanism = plan.Mechanism(clip_unit="participant", noise_multiplier=z)
  return plan.Release(h, plan.SamplingPlan(stages), mechanism)


def kinds_of(size):
  """Kinds of units none of which is above another."""
  shares = np.linspace(0.1, 0.9, size)
  return tuple(
      amplification.Amplification((0.1,), float(p), (1.0,), float(1.5 - p))
      for p in shares
  )


SLOW = {
    "average": lambda: sensitivity.unit_profiles(one_size(), "example"),
    "recurring": lambda: sensitivity.unit_profiles(
        recurring(50, 10.0), "image"
    ),
    "kinds": lambda: kinds_of(24),
}


@pytest.mark.parametrize("direction", amplification.DIRECTIONS)
@pytest.mark.parametrize("name", SLOW)
def test_chords_are_above_and_near(name, direction):
  units = SLOW[name]()
  x = np.geomspace(1e-7, 40, 999)
  x = np.concatenate([-x[::-1], [0.0], x])
  exact = unit_profile.excess(units, x, direction)
  for least, share in ((1e-30, 2 * unit_profile.TOLERANCE), (1e-100, 1e-3)):
    found = unit_profile.bounded_excess(units, x, direction, least)
    assert (found >= exact * (1 - 1e-12)).all()
    some = exact > least
    assert (found[some] <= exact[some] * (1 + share)).all()


def test_quick_profiles_are_computed_as_they_are():
  units = kinds_of(2)
  x = np.linspace(-3, 3, 100)
  np.testing.assert_array_equal(
      unit_profile.bounded_excess(units, x, "add", 1e-30),
      unit_profile.excess(units, x, "add"),
  )
