"""Chords of slow profiles: never below them, hardly above, and asked less."""

import numpy as np
import pytest

from episodic_dp import accounting
from episodic_dp import plan
from episodic_dp.accounting import run_phases
from episodic_dp.accounting import sensitivity
from episodic_dp.accounting.accountants import loss_distribution
from episodic_dp.accounting.accountants import pld
from episodic_dp.accounting.accountants import registry
from episodic_dp.accounting.profiles import amplification
from episodic_dp.accounting.profiles import tabulated
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
  found = tabulated.excess(units, x, direction, 1e-30)
  assert (found >= exact * (1 - 1e-12)).all()
  some = exact > 1e-30
  assert (found[some] <= exact[some] * (1 + 2 * tabulated.TOLERANCE)).all()


@pytest.mark.parametrize("name", SLOW)
def test_a_lower_floor_reaches_smaller_values(name):
  units = SLOW[name]()
  x = np.linspace(0.1, 60, 400)
  exact = unit_profile.excess(units, x, "remove")
  found = tabulated.excess(units, x, "remove", 1e-100)
  some = (exact > 1e-100) & (exact < 1e-50)
  assert (found[some] >= exact[some] * (1 - 1e-12)).all()
  assert (found[some] <= exact[some] * (1 + 1e-3)).all()


def test_quick_profiles_are_computed_as_they_are():
  units = kinds_of(2)
  x = np.linspace(-3, 3, 100)
  np.testing.assert_array_equal(
      tabulated.excess(units, x, "add", 1e-30),
      unit_profile.excess(units, x, "add"),
  )


def forget():
  for module in (pld, loss_distribution):
    for function in vars(module).values():
      if hasattr(function, "cache_clear"):
        function.cache_clear()


def random_release(rng):
  z = float(np.exp(rng.uniform(np.log(0.7), np.log(20))))
  if rng.integers(2):
    sizes = rng.integers(2, 60, rng.integers(2, 40)).tolist()
    h = plan.Hierarchy.from_sizes(sizes, levels=USERS)
    return drawn(h, float(rng.choice([0.01, 0.2])), 0.1, z)
  return recurring(int(rng.integers(2, 30)), z)


@pytest.mark.parametrize("seed", range(6))
def test_epsilon_is_what_the_profiles_themselves_give(seed, monkeypatch):
  """Chords, and stopping at kinds that need less, against neither of them."""
  rng = np.random.default_rng(seed)
  release, steps = random_release(rng), int(rng.choice([1, 30, 1000]))
  level = str(rng.choice(release.levels))
  (run,) = run_phases.routes((run_phases.Entry(release, steps),), level)
  accountant = registry.get("pld")
  found = accounting.guarantee(
      release, steps=steps, delta=1e-6, level=level
  ).epsilons

  def direct(units, log_alpha, direction, least):
    del least
    return unit_profile.excess(units, log_alpha, direction)

  monkeypatch.setattr(tabulated, "excess", direct)
  forget()
  for direction in amplification.DIRECTIONS:
    exact = max(
        accountant.epsilon(part, direction, 1e-6)
        for part in run_phases.apart(run)
    )
    assert found[direction] >= exact * (1 - 3e-4)
    if max(found.values()) < 20:  # Above, the sampler's error counts.
      assert found[direction] <= exact * (1 + 3e-4) + 1e-12
  forget()


def test_a_kind_that_needs_less_is_not_looked_at_closely(monkeypatch):
  asked = []
  original = loss_distribution.compose

  def compose(*args, **kwargs):
    asked.append(args[0])
    return original(*args, **kwargs)

  monkeypatch.setattr(loss_distribution, "compose", compose)
  worst, least = kinds_of(2)[::-1]
  least = amplification.Amplification((0.001,), 0.1, (1.0,), 1.0)
  accountant = registry.get("pld")

  def run(unit):
    return (run_phases.Phase((unit,), 1713),)

  value = accountant.epsilon(run(worst), "remove", 1e-6)
  assert len(asked) > 1
  asked.clear()
  assert accountant.epsilon(run(least), "remove", 1e-6, enough=value) <= value
  assert len(asked) <= 1
