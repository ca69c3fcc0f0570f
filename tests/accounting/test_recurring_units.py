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
