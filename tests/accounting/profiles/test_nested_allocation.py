"""Units inside the primary units of a pass, against integrals in two steps."""

import dataclasses
import itertools
import math

import numpy as np
import pytest

from episodic_dp import plan
from episodic_dp.accounting import sensitivity
from episodic_dp.accounting.profiles import allocation
from episodic_dp.accounting.profiles import amplification

_AXIS = np.linspace(-8, 8.0, 201)
_X, _Y = np.meshgrid(_AXIS, _AXIS, indexing="ij")
_CELL = (_AXIS[1] - _AXIS[0]) ** 2 / (2 * math.pi)


def one_pass(position):
  """The density of a pass of two steps that moves one of them so far."""
  return 0.5 * _CELL * (
      np.exp(-((_X - position) ** 2 + _Y**2) / 2)
      + np.exp(-(_X**2 + (_Y - position) ** 2) / 2)
  )


def kind(d, q, p):
  return allocation.NestedAllocation(
      whole=allocation.Allocation(2, 2, d), parent_rate=q, rate=p
  )


@pytest.mark.parametrize("d", [0.7, 1.5])
@pytest.mark.parametrize("q,p", [(1.0, 1.0), (1.0, 0.3), (0.4, 0.5)])
def test_bound_holds_for_every_position(d, q, p):
  log_alpha = np.asarray([0.0, 0.1, 0.5, 1.0])
  bound = {
      direction: kind(d, q, p).divergence(log_alpha, direction)
      for direction in amplification.DIRECTIONS
  }
  reached = 0.0
  for places in itertools.product((-d, 0.0, d), repeat=3):
    not_drawn, without, with_it = map(one_pass, places)
    larger = (1 - q) * not_drawn + q * (1 - p) * without + q * p * with_it
    smaller = (1 - q) * not_drawn + q * without
    for i, alpha in enumerate(np.exp(log_alpha)):
      remove = np.maximum(larger - alpha * smaller, 0).sum()
      add = np.maximum(smaller - alpha * larger, 0).sum()
      assert remove <= bound["remove"][i] + 1e-5
      assert add <= bound["add"][i] + 1e-5
      reached = max(reached, remove / bound["remove"][i])
  assert reached > 0.5  # It is no empty bound.


def test_profile_falls_and_is_convex():
  log_alpha = np.linspace(0, 6, 601)
  alpha = np.exp(log_alpha)
  for direction in amplification.DIRECTIONS:
    value = kind(1.0, 0.5, 0.3).divergence(log_alpha, direction)
    slope = np.diff(value) / np.diff(alpha)
    assert (slope <= 1e-12).all() and (np.diff(slope) >= -1e-9).all()
    assert not kind(1.0, 0.5, 0.0).divergence(log_alpha, direction).any()


HIERARCHY = plan.Hierarchy.regular(
    (400_000, 5, 10), levels=("participant", "class", "image")
)
TASKS = plan.Mechanism(clip_unit="participant", noise_multiplier=1.0)


@pytest.mark.parametrize("steps", [1, 21, 40])
@pytest.mark.parametrize("level", ["participant", "image"])
def test_one_step_alone_is_a_poisson_step(level, steps):
  def phases(first, steps):
    p = plan.SamplingPlan((first, plan.FixedSize(5), plan.FixedSize(2)))
    release = plan.Release(HIERARCHY, p, TASKS)
    return sensitivity.phases_of(sensitivity.Entry(release, steps), level)

  found = phases(plan.RandomAllocation(20), steps)
  one = phases(plan.Poisson(1 / 20), 1)
  assert found[:1] == one if steps % 20 else one[0] not in found
  assert sum(phase.times for phase in found) == -(-steps // 20)
  whole = phases(plan.RandomAllocation(1), steps)
  assert whole == (
      dataclasses.replace(phases(plan.All(), 1)[0], times=steps),
  )
