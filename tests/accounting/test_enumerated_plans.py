"""Random plans of every kind, each enumerated: no bound is below the truth.

A plan is drawn from `SEED` and its number, which a failure names. The truth is
the divergence of one step (of a pass of two, for one kind) for gradients on a
line, random ones and the worst that are known. Where a kind is said to be tight
(`accounting/README.md`, "Where one step is the truth"), the largest of them is
within 1 % of the bound.
"""

from collections.abc import Callable
import itertools
import math

import numpy as np
import pytest

from episodic_dp.accounting import sensitivity
from episodic_dp.accounting.profiles import amplification
from episodic_dp.plan import release as release_lib
from tests.accounting import enumerated
from tests.accounting import random_plans as plans
from tests.accounting import random_tasks
from tests.accounting import random_trees
from tests.oracles import exact

SEED, PLANS, QUICK = 14, 2000, 60

KINDS: list[Callable[..., plans.Case]] = [
    random_trees.tree,
    random_trees.inside_clip_units,
    random_trees.copies,
    random_tasks.disjoint,
    random_trees.whole_clusters,
    random_tasks.independent,
    random_trees.tree,
    random_trees.records_of_clusters,
    random_trees.copies,
    random_tasks.participants,
    random_trees.one_step_of_a_pass,
    random_tasks.sample_level,
    random_trees.tree,
    random_trees.inside_clip_units,
    random_trees.whole_pass,
    random_tasks.groups,
]


def drawn_case(number):
  """The plan of a number; the first that can be enumerated."""
  kind = KINDS[number % len(KINDS)]
  for attempt in itertools.count():
    rng = np.random.default_rng([SEED, number, attempt])
    try:
      case = kind(rng)
      plans.refuse_unproved(case.release, case.level)
      return case._replace(pairs=list(case.pairs)), rng
    except plans.TryAgainError:
      continue


def check_plan(number):
  case, rng = drawn_case(number)
  epsilon = float(rng.choice([0.0, 0.03, 0.2, 0.7]))
  alpha, z = math.exp(epsilon), float(case.release.mechanism.noise_multiplier)
  routes = sensitivity.routes(
      (sensitivity.Entry(case.release, case.steps),), case.level
  )
  reported = f"plan {number} of seed {SEED}: {case.release}, {case.level}"
  divergence = (
      exact.plane_hockey_stick if case.steps == 2 else exact.hockey_stick
  )
  for direction in amplification.DIRECTIONS:
    bounds = [
        float(enumerated.profile(
            phase.unit_profiles, np.asarray([epsilon]), direction
        )[0])
        for (phase,) in routes
    ]
    truth = max(
        (
            divergence(
                *(pair if direction == "remove" else pair[::-1]), alpha, z
            )
            for pair in case.pairs
        ),
        default=0.0,
    )
    slack = 1e-3 if case.steps == 2 else 1e-9  # The plane is a grid.
    assert truth <= min(bounds) * (1 + slack) + 1e-9, (reported, direction)
    if case.tight:
      assert truth >= min(bounds) / 1.01 - 1e-9, (reported, direction, epsilon)


@pytest.mark.parametrize("first", range(0, QUICK, 15))
def test_the_truth_lies_under_the_bound(first):
  for number in range(first, first + 15):
    check_plan(number)


def test_a_rule_that_is_left_out_shows(monkeypatch):
  monkeypatch.setattr(release_lib, "_check_regrouping", lambda r, k: None)
  with pytest.raises(AssertionError, match="plan 1359 of seed"):
    check_plan(1359)


@pytest.mark.slow  # About two minutes.
@pytest.mark.parametrize("first", range(QUICK, PLANS, 97))
def test_the_truth_lies_under_the_bound_of_two_thousand_plans(first):
  for number in range(first, min(first + 97, PLANS)):
    check_plan(number)
