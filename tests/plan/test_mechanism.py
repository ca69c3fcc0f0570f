"""Mechanisms: what is accepted and what is refused."""

import math

import pytest

from episodic_dp import plan


def make(**options):
  return plan.Mechanism(
      **(dict(clip_unit="task", noise_multiplier=1.0) | options)
  )


def test_defaults():
  m = make()
  assert (m.clip_norm, m.clip_by, m.order, m.inner_steps) == (
      1.0, "global", None, None,
  )
  assert plan.EPISODE == "episode"
  off = make(noise_multiplier=0, clip_norm=math.inf)
  assert math.isinf(off.clip_norm)


INNER = dict(
    inner_clip_norm=0.5, inner_noise_multiplier=2.0, inner_steps=3,
    order="first",
)


def test_noisy_inner_steps():
  assert make(**INNER).noisy_inner_steps
  assert not make(order="first", inner_steps=3).noisy_inner_steps


@pytest.mark.parametrize(
    "options,match",
    [
        (dict(noise_multiplier=-1.0), "-1.0"),
        (dict(noise_multiplier=math.nan), "nan"),
        (dict(noise_multiplier=math.inf), "inf"),
        (dict(noise_multiplier="1"), "'1'"),
        (dict(clip_norm=0.0), "0.0"),
        (dict(clip_norm=math.nan), "nan"),
        (dict(clip_norm=math.inf), "finite clip_norm"),
        (dict(clip_by="value"), "'value'"),
        (dict(order="third"), "'third'"),
        (dict(inner_steps=0), "inner_steps 0"),
        (dict(inner_clip_norm=1.0), "inner_noise_multiplier None.*both"),
        (dict(inner_noise_multiplier=1.0), "inner_clip_norm is None.*both"),
        (dict(INNER, inner_clip_norm=0.0), "inner_clip_norm 0.0"),
        (dict(INNER, inner_clip_norm=math.inf), "inner_clip_norm inf"),
        (dict(INNER, inner_noise_multiplier=0.0), "inner_noise_multiplier 0.0"),
        (dict(INNER, inner_noise_multiplier="1"), "multiplier '1'"),
        (dict(INNER, inner_steps=None), "inner_steps is None.*give them"),
        (dict(INNER, order=None), "order None.*give them"),
    ],
)
def test_values_out_of_range(options, match):
  with pytest.raises(plan.PlanError, match=match):
    make(**options)
