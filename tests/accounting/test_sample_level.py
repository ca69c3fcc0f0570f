"""Sample-level DP-MAML: noisy inner steps and clipped query gradients."""

import dataclasses
import math

import numpy as np
import pytest

from episodic_dp import accounting
from episodic_dp import plan
from episodic_dp.accounting.profiles import amplification
from tests import plans

BOTH = amplification.DIRECTIONS
UNIT = plans.tree("task class image", 1000, 10, 20)


def mechanism(z=2.0, inner=3.0, steps=4, **options):
  return plan.Mechanism(**dict(
      dict(
          clip_unit="image",
          noise_multiplier=z,
          order="first",
          inner_steps=steps,
          inner_clip_norm=1.0,
          inner_noise_multiplier=inner,
      ),
      **options,
  ))


def unit_plan(first=None, last=None, **options):
  first, last = first or 0.01, last or 4
  return plans.sampling(
      first, 5, last, way=5, shot=1, query=3, **options
  )


# Rates and distances ----------------------------------------------------------


@pytest.mark.parametrize(
    "z,inner,steps,own",
    [
        (2.0, 3.0, 4, 2 / 1.5),  # the inner steps decide: 3 / sqrt(4) < 2
        (2.0, 30.0, 4, 2 / 2.0),  # the outer sum decides
        (2.0, 2.0, 1, 2 / 2.0),
    ],
)
def test_example(z, inner, steps, own):
  m = mechanism(z, inner, steps)
  (kind,) = accounting.unit_profiles(
    plan.Release(UNIT, unit_plan(), m), "image"
  )
  assert kind.outer_rates == (0.01, 0.5) and kind.rate == 4 / 20
  assert kind.unit_sensitivity == pytest.approx(own)
  # A task of 5 * 3 query examples is absent, or a class of it is another one.
  assert kind.outer_distances == pytest.approx((15 / z, 2 * 15 / z))
  revealed = dataclasses.replace(kind, outer_distances=(math.inf, math.inf))
  at = np.linspace(0, 3, 7)
  for direction in BOTH:
    assert (
        kind.divergence(at, direction)
        <= revealed.divergence(at, direction) * (1 + 1e-9)
    ).all()


CLASSES = plans.tree("class image", 100, 20)


def grouped(**form):
  return plans.sampling(
      20, 4, episode=plan.Episode(**(dict(way=5, shot=1, query=3) | form))
  )


@pytest.mark.parametrize(
    "h,p,level,expected",
    [
        (UNIT, unit_plan(), "task", ((), 0.01, (), 15 / 2)),
        (UNIT, unit_plan(), "class", ((0.01,), 0.5, (15 / 2,), 30 / 2)),
        (UNIT, unit_plan(10), "task", ((), 0.01, (), 30 / 2)),
        (CLASSES, grouped(form="disjoint"), "class", ((), 0.2, (), 30 / 2)),
    ],
)
def test_levels_above_are_protected_by_the_outer_sum_alone(
    h, p, level, expected
):
  release = plan.Release(h, p, mechanism())
  (kind,) = accounting.unit_profiles(release, level)
  assert kind == amplification.Amplification(*expected)


def test_examples_of_disjoint_tasks():
  release = plan.Release(CLASSES, grouped(form="disjoint"), mechanism())
  (kind,) = accounting.unit_profiles(release, "image")
  assert kind.outer_distances == (30 / 2,)
  assert kind.unit_sensitivity == pytest.approx(2 / 1.5)


# Refusals ---------------------------------------------------------------------

FULL = plans.tree(UNIT.levels, 1000, 10, 4)
SHORT = plans.tree(UNIT.levels, 1000, 10, 3)
COPIES = plan.Hierarchy.regular(
    UNIT.sizes, levels=UNIT.levels, copies=True, most_copies={"image": 7}
)
QUIET = plan.Mechanism(clip_unit="image", noise_multiplier=1.0)


@pytest.mark.parametrize(
    "h,p,m,match",
    [
        (UNIT, unit_plan(), mechanism(order="second"), "second-order leak"),
        (UNIT, unit_plan(), QUIET,
         "inner_clip_norm, inner_noise_multiplier, inner_steps and order"),
        (CLASSES, grouped(form="independent", way=20, tasks=2), mechanism(),
         "form='independent'.*no proof"),
        (COPIES, unit_plan(), mechanism(),
         "copies.*no proof.*clip_unit='task'"),
        (FULL, unit_plan(), mechanism(), "moves another.*FixedSize.3"),
        (FULL, unit_plan(last=plan.All()), mechanism(),
         "moves another.*FixedSize.3"),
        (SHORT, unit_plan(allow_short_units=True), mechanism(),
         "all 3 examples"),
    ],
)
def test_what_has_no_proof_is_refused(h, p, m, match):
  with pytest.raises(plan.UnsoundPlanError, match=match):
    accounting.unit_profiles(plan.Release(h, p, m), "image")


@pytest.mark.parametrize("last", [4, plan.All()])
def test_a_full_last_stage_leaves_the_levels_above(last):
  release = plan.Release(FULL, unit_plan(last=last), mechanism())
  assert accounting.unit_profiles(release, "class")
