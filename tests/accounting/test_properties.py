"""Random plans through the public objects: what may only rise, and agree."""

import dataclasses
import functools
import math

from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
import numpy as np
import pytest

from episodic_dp import accounting
from episodic_dp import plan
from episodic_dp.accounting.accountants import base
from episodic_dp.accounting.guarantee import ACCOUNTANTS
from episodic_dp.accounting.guarantee import get_accountant
from episodic_dp.accounting.profiles import amplification
from episodic_dp.accounting.profiles import unit_profile
from tests import plans
from tests.accounting import enumerated

LEVELS = ("hospital", "patient", "record")
LOSSES = np.concatenate([[0.0], np.geomspace(1e-6, 8.0, 25)])
# What grids may add to an epsilon, and chords to a profile that is tabulated.
GRID = 2e-3
CHORD = 1e-4


@st.composite
def hierarchies(draw):
  """Ragged trees of one to three levels with up to five children a unit."""
  depth = draw(st.integers(1, 3))

  def sizes(levels):
    return (
        draw(st.integers(1, 5))
        if levels == 1
        else [sizes(levels - 1) for _ in range(draw(st.integers(1, 3)))]
    )

  return plans.nested(LEVELS[:depth], sizes(depth))


def stages():
  return st.one_of(
      st.integers(1, 4).map(plan.FixedSize),
      st.floats(1e-3, 1.0).map(plan.Poisson),
      st.just(plan.All()),
  )


@st.composite
def runs(draw):
  """(hierarchy, plan, mechanism, level) without an episode."""
  h = draw(hierarchies())
  p = plan.SamplingPlan(
      tuple(draw(stages()) for _ in h.levels), allow_short_units=True
  )
  m = plan.Mechanism(
      clip_unit=draw(st.sampled_from(h.levels)),
      noise_multiplier=draw(st.floats(0.5, 50.0)),
  )
  return h, p, m, draw(st.sampled_from(h.levels))


def profiles_of(run):
  return accounting.unit_profiles(plan.Release(*run[:3]), run[3])


def slack(*all_unit_profiles):
  """The relative error of what is exact, or else of what is tabulated."""
  exact = all(
      isinstance(kind, amplification.Amplification)
      for unit_profiles in all_unit_profiles
      for kind in unit_profiles
  )
  return 1e-9 if exact else CHORD


def never_above(low, high):
  """Return whether a run's profiles lie below another's everywhere."""
  low, high = profiles_of(low), profiles_of(high)
  factor = 1 + slack(low, high)
  return all(
      (
          unit_profile.excess(low, LOSSES, d)
          <= unit_profile.excess(high, LOSSES, d) * factor + 1e-14
      ).all()
      for d in amplification.DIRECTIONS
  )


def more_often(stage, by):
  """The stage with a larger rate."""
  if isinstance(stage, plan.FixedSize):
    return plan.FixedSize(stage.n + 1)
  return (
      plan.Poisson(min(1.0, stage.p * by))
      if isinstance(stage, plan.Poisson)
      else stage
  )


@settings(max_examples=60, deadline=None)
@given(runs(), st.floats(1.0, 4.0))
def test_profiles_rise_with_one_over_z(run, by):
  h, p, m, level = run
  more = dataclasses.replace(m, noise_multiplier=m.noise_multiplier * by)
  assert never_above((h, p, more, level), run)


@settings(max_examples=60, deadline=None)
@given(runs(), st.integers(0, 2), st.floats(1.0, 4.0))
def test_profiles_rise_with_every_rate(run, which, by):
  h, p, m, level = run
  changed = list(p.stages)
  which %= len(changed)
  changed[which] = more_often(changed[which], by)
  more = dataclasses.replace(p, stages=tuple(changed))
  if isinstance(p.stages[which], plan.FixedSize):
    # At rate 1 nothing is replaced any more, and distances may halve.
    counts = h.child_counts(which)
    if (counts <= changed[which].n).any():
      return
  assert never_above(run, (h, more, m, level))


@settings(max_examples=40, deadline=None)
@given(runs())
def test_profiles_are_profiles(run):
  unit_profiles = profiles_of(run)
  log_alpha = np.linspace(-5, 5, 201)
  alpha = np.exp(log_alpha)
  for direction in amplification.DIRECTIONS:
    f = enumerated.profile(unit_profiles, log_alpha, direction)
    assert (f >= np.maximum(1 - alpha, 0) - 1e-14).all() and (f <= 1).all()
    slope = np.diff(f) / np.diff(alpha)
    assert (slope <= 1e-12).all() and (np.diff(slope) >= -1e-9).all()
  # The two directions are one pair of outputs, read from either side.
  back = enumerated.profile(unit_profiles, log_alpha, "remove")
  forth = enumerated.profile(unit_profiles, -log_alpha, "add")
  np.testing.assert_allclose(
      back, 1 - alpha + alpha * forth, rtol=slack(unit_profiles), atol=1e-12
  )


@functools.cache
def epsilon(name, phases, direction, delta):
  return get_accountant(name).answer(phases, direction, base.Delta(delta))


@settings(max_examples=12, deadline=None)
@given(runs(), st.integers(1, 60), st.integers(1, 60))
def test_accountants_on_random_plans(run, steps, more):
  unit_profiles = accounting.unit_profiles(plan.Release(*run[:3]), run[3])
  delta = 1e-6
  for direction in amplification.DIRECTIONS:
    found = {}
    for name in ACCOUNTANTS:
      shorter = epsilon(
          name, (base.Phase(unit_profiles, steps),), direction, delta
      )
      whole = epsilon(
        name, (base.Phase(unit_profiles, steps + more),), direction, delta
      )
      parts = epsilon(
        name,
        (
          base.Phase(unit_profiles, steps),
          base.Phase(unit_profiles, more),
        ),
        direction,
        delta,
      )
      assert math.isfinite(whole)
      assert shorter <= whole * (1 + GRID) + 1e-12
      # Each of the two parts is rounded up to a grid of its own.
      assert parts == pytest.approx(whole, rel=3 * GRID, abs=1e-9)
      found[name] = whole
    assert found["pld"] <= found["rdp"] * (1 + GRID) + 1e-9
    assert found["rdp"] <= found["moments"] * (1 + 1e-9)
