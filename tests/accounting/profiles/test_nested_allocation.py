"""Units inside the primary units of a pass, against integrals in two steps."""

import dataclasses
import itertools
import math

import numpy as np
import pytest

from episodic_dp import accounting
from episodic_dp import plan
from episodic_dp.accounting import sensitivity
from episodic_dp.accounting.guarantee import compose_guarantee
from episodic_dp.accounting.guarantee import get_accountant
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


def test_more_is_lost_with_every_rate_and_distance():
  log_alpha = np.linspace(0, 2, 21)
  for direction in amplification.DIRECTIONS:
    base = kind(1.0, 0.5, 0.3).divergence(log_alpha, direction)
    for more in (kind(1.1, 0.5, 0.3), kind(1, 0.6, 0.3), kind(1, 0.5, 0.4)):
      assert (base <= more.divergence(log_alpha, direction) + 1e-12).all()


HIERARCHY = plan.Hierarchy.regular(
    (400_000, 5, 10), levels=("participant", "class", "image")
)
TASKS = plan.Mechanism(clip_unit="participant", noise_multiplier=1.0)


def passes(steps, last):
  p = plan.SamplingPlan(
      (plan.RandomAllocation(250), plan.FixedSize(5), plan.FixedSize(last))
  )
  return sensitivity.Entry(plan.Release(HIERARCHY, p, TASKS), steps)


def test_participants_of_a_pass_beside_poisson_ones():
  one = compose_guarantee([passes(250, 2)], level="participant", delta=1e-6)
  assert one.epsilon == pytest.approx(0.4525, rel=3e-3)
  assert one.assumptions[0].startswith("Every pass of 250 steps uses each")
  poisson = accounting.epsilon(1.0, 1 / 250, 1.0, steps=250, delta=1e-6)
  assert one.epsilon < poisson


def test_images_of_a_pass_are_amplified_by_their_own_rate():
  values = [
      compose_guarantee([passes(250, n)], level="image", delta=1e-6).epsilon
      for n in (1, 2, 10)
  ]
  assert values == sorted(values) and values[0] < 0.2 * values[2]
  # Every image of the participant: as if the participant were exchanged, which
  # is at most twice what the participant costs, at a smaller delta.
  twice = 2 * compose_guarantee(
      [passes(250, 10)], level="participant", delta=2.5e-7
  ).epsilon
  assert values[2] < twice


def test_passes_that_were_cut_short():
  values = [
      compose_guarantee([passes(t, 2)], level=level, delta=1e-6).epsilon
      for level in ("participant", "image")
      for t in (1, 100, 250, 251, 500)
  ]
  assert values[:5] == sorted(values[:5]) and values[5:] == sorted(values[5:])
  (short,) = sensitivity.phases_of(passes(100, 2), "participant")
  whole, rest = sensitivity.phases_of(passes(600, 2), "participant")
  assert short.unit_profiles == (allocation.Allocation(250, 100, 1.0),)
  assert (whole.times, rest.times) == (2, 1)
  assert rest.unit_profiles == short.unit_profiles


def test_a_step_that_is_known_may_be_the_better_bound():
  # Little noise hides too little to make the way round pay.
  p = plan.SamplingPlan(
      (plan.RandomAllocation(2), plan.FixedSize(5), plan.FixedSize(10))
  )
  loud = dataclasses.replace(TASKS, noise_multiplier=0.1)
  entry = sensitivity.Entry(plan.Release(HIERARCHY, p, loud), 2)
  known, by_way = (
    get_accountant("pld").epsilon(
      sensitivity.phases_of(entry, "image", condition_on_step=r), "remove", 1e-6
    )
    for r in (True, False)
  )
  got = compose_guarantee([entry], level="image", delta=1e-6).epsilon
  assert known < by_way
  assert got == pytest.approx(known, rel=1e-6)


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
