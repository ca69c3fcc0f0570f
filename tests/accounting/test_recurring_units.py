"""Units that a step may draw several times, where it seldom does."""

import dataclasses
import math

import numpy as np
import pytest

from episodic_dp import accounting
from episodic_dp import plan
from episodic_dp.accounting.accountants import base
from episodic_dp.accounting.guarantee import get_accountant
from episodic_dp.accounting.profiles import amplification
from episodic_dp.accounting.profiles import counts

LEVELS = ("participant", "class", "image")
TASK = plan.Episode(way=5, shot=1, query=5)


def synthetic(copies, first=None, z=1.0, most_copies=True):
  h = plan.Hierarchy.regular(
      (1000, 8, 20), levels=LEVELS, copies=most_copies,
      most_copies=(
          {"class": copies, "image": copies} if most_copies else None
      ),
  )
  p = plan.SamplingPlan(
      (first or plan.Poisson(0.02), plan.FixedSize(5), plan.FixedSize(6)),
      episode=TASK,
  )
  m = plan.Mechanism(clip_unit="participant", noise_multiplier=z)
  return plan.Release(h, p, m)


def independent(tasks, z=1.0, form="independent"):
  h = plan.Hierarchy.regular((1000, 20), levels=("class", "image"))
  p = plan.SamplingPlan(
      (plan.FixedSize(5), plan.FixedSize(6)),
      episode=dataclasses.replace(
          TASK, form=form, tasks=tasks if form == "independent" else None
      ),
  )
  m = plan.Mechanism(clip_unit="episode", noise_multiplier=z)
  return plan.Release(h, p, m)


def epsilon_of(kind, steps, delta):
  run = (base.Phase((kind,), steps),)
  return max(
      get_accountant("pld").epsilon(run, d, delta)
      for d in amplification.DIRECTIONS
  )


@pytest.mark.parametrize("level,epsilon", [("class", 2.202), ("image", 0.626)])
def test_at_most_one_copy_is_a_tree(level, epsilon):
  """With J revealed these were infinity and 20.97."""
  found = accounting.guarantee(
      synthetic(1), steps=300, delta=1e-6, level=level
  )
  assert found.epsilon == pytest.approx(epsilon, rel=1e-3)
  assert accounting.unit_profiles(
      synthetic(1), level
  ) == accounting.unit_profiles(synthetic(1, most_copies=False), level)


@pytest.mark.parametrize("level", ["class", "image"])
def test_one_independent_task_is_a_disjoint_one(level):
  """With J revealed an image paid four times as much."""
  options = dict(steps=1000, delta=1e-6, level=level)
  one = accounting.guarantee(independent(1), **options).epsilon
  tree = accounting.guarantee(
      independent(None, form="disjoint"), **options
  ).epsilon
  assert one == pytest.approx(tree, rel=1e-3)
  if level == "image":
    (kind,) = accounting.unit_profiles(independent(1), level)
    revealed = dataclasses.replace(kind, outer_distances=(math.inf,))
    assert epsilon_of(revealed, 1000, 1e-6) > 4 * one


@pytest.mark.parametrize(
    "release,steps,before,epsilon",
    [
        (synthetic(10, z=2.0), 300, 15.93, 11.32),
        (independent(4), 1000, None, 21.16),
        pytest.param(
            synthetic(10), 100, 37.19, 30.61, marks=pytest.mark.slow
        ),
    ],
)
def test_only_what_recurs_is_revealed(release, steps, before, epsilon):
  (kind,) = accounting.unit_profiles(release, "image")
  found = epsilon_of(kind, steps, 1e-5)
  assert found == pytest.approx(epsilon, rel=2e-3)
  revealed = epsilon_of(dataclasses.replace(kind, outer=()), steps, 1e-5)
  assert revealed > 1.2 * found
  if before is not None:
    assert revealed == pytest.approx(before, rel=2e-3)


@pytest.mark.parametrize("first", [plan.Poisson(0.02), plan.FixedSize(20)])
@pytest.mark.parametrize("level", ["class", "image"])
def test_paths_break_as_all_holders_do(first, level):
  """The shares of `outer`, from the joint law of drawn holders."""
  copies = 3
  (kind,) = accounting.unit_profiles(synthetic(copies, first), level)
  inner = 1.0 if level == "class" else 5 / 8
  number, probs = (
      counts.binomial(copies, 0.02)
      if isinstance(first, plan.Poisson)
      else counts.hypergeometric(1000, copies, 20)
  )
  none = probs * (1 - inner) ** number  # J = 0
  drawn = float(none @ number) / copies / float(none.sum())
  shares = [share for share, _ in kind.outer]
  wanted = [1 - drawn] if level == "class" else [1 - drawn, drawn]
  np.testing.assert_allclose(shares, wanted, rtol=1e-12)
  one = float(
      probs @ (number * inner * (1 - inner) ** np.maximum(number - 1, 0))
  )
  chance, tree = kind.once
  assert chance == pytest.approx(one + none.sum())
  assert tree.parent_rate == pytest.approx(one / (one + none.sum()))
  np.testing.assert_allclose(
      tree.outer_weights, np.asarray(shares) * (1 - tree.parent_rate)
  )


@pytest.mark.parametrize("accountant", ["pld", "rdp"])
def test_many_holders_have_an_epsilon(accountant):
  """RDP refused more than 32 of them, for a tail that was cut."""
  release = synthetic(60, plan.FixedSize(2), z=40.0)
  for level in ("class", "image"):
    found = accounting.guarantee(
        release, steps=100, delta=1e-6, level=level, accountant=accountant
    )
    assert found.epsilon < 10


def test_hopeless_noise_is_finite():
  release = synthetic(3, plan.FixedSize(20), z=1e-3)
  for level in LEVELS:
    found = accounting.guarantee(release, steps=10, delta=1e-6, level=level)
    assert 1e4 < found.epsilon < math.inf


def test_many_copies_with_little_noise_are_finite():
  """Infinite where the sampler's error was charged times e^epsilon only."""
  found = accounting.guarantee(
      synthetic(10), steps=300, delta=1e-6, level="class"
  )
  assert 30 < found.epsilon < math.inf
