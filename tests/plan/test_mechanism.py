"""Mechanisms: what is accepted and what is refused."""

import ast
import math
import re

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


QUANTILE = dict(
    clipping="private_quantile", clip_quantile=0.5, clip_rate=0.2,
    count_noise=0.75,
)
WINDOW = dict(
    clipping="percentile_window", clip_percentile=90, clip_window=3200
)


def test_noise_of_the_gradients():
  assert make().gradient_noise_multiplier == 1.0
  assert make(**WINDOW).gradient_noise_multiplier == 1.0
  m = make(**QUANTILE)
  assert m.gradient_noise_multiplier == pytest.approx(
      (1 - (2 * 0.75) ** -2) ** -0.5, rel=1e-12
  )
  assert make(
      **(QUANTILE | dict(noise_multiplier=0.0))
  ).gradient_noise_multiplier == 0


def test_what_reaches_the_release_without_noise():
  assert make().guaranteed and make(**QUANTILE).guaranteed
  assert not make(**WINDOW).guaranteed
  assert not make(noise_multiplier=0.0).guaranteed


@pytest.mark.parametrize(
    "options,match",
    [
        (dict(clipping="adaptive"), "clipping='adaptive'"),
        (dict(clip_rate=0.2), "clip_rate is 0.2 with clipping='fixed'"),
        (dict(WINDOW, count_noise=1.0), "goes with clipping='private_quant"),
        (dict(QUANTILE, clip_window=2), "goes with clipping='percentile_win"),
        (dict(QUANTILE, clip_rate=None), "clip_rate is missing"),
        (dict(WINDOW, clip_window=None), "clip_window is missing"),
        (dict(QUANTILE, clip_quantile=0.0), "clip_quantile=0.0"),
        (dict(QUANTILE, clip_quantile=1), "clip_quantile=1"),
        (dict(QUANTILE, clip_quantile="half"), "clip_quantile='half'"),
        (dict(QUANTILE, clip_rate=0.0), "clip_rate=0.0"),
        (dict(QUANTILE, clip_rate=math.nan), "clip_rate=nan"),
        (dict(QUANTILE, count_noise=0.0), "count_noise=0.0"),
        (dict(QUANTILE, count_noise=math.inf), "count_noise=inf"),
        (dict(QUANTILE, count_noise=0.5), "0.5 spends all.*more than 0.5"),
        (
            dict(QUANTILE, noise_multiplier=0.0, clip_norm=math.inf),
            "finite clip_norm",
        ),
        (dict(WINDOW, clip_percentile=0), "clip_percentile=0"),
        (dict(WINDOW, clip_percentile=101.0), "clip_percentile=101.0"),
        (dict(WINDOW, clip_window=0), "clip_window=0"),
        (dict(WINDOW, clip_window=7), "clip_window=7"),
        (dict(WINDOW, clip_window=8.0), "clip_window=8.0"),
    ],
)
def test_adaptive_clipping_out_of_range(options, match):
  with pytest.raises(plan.PlanError, match=match):
    make(**options)


@pytest.mark.parametrize("adaptive", [QUANTILE, WINDOW])
def test_what_adaptive_clipping_lacks_is_said_with_values(adaptive):
  clipping, (first, *others) = adaptive["clipping"], list(adaptive)[1:]
  for given in ({}, {first: adaptive[first]}):
    with pytest.raises(plan.PlanError) as e:
      make(clipping=clipping, **given)
    said = re.findall(r"--config\.mechanism\.(\w+)=([\d.]+)", str(e.value))
    assert [name for name, _ in said] == [first, *others][len(given) :]
    added = {name: ast.literal_eval(value) for name, value in said}
    make(clipping=clipping, **given, **added)


@pytest.mark.parametrize(
    "options,match",
    [
        (dict(noise_multiplier=-1.0), "-1.0"),
        (dict(noise_multiplier=math.nan), "nan"),
        (dict(noise_multiplier=math.inf), "noise_multiplier=inf"),
        (dict(noise_multiplier=1e-300), "noise_multiplier=1e-300"),
        (dict(noise_multiplier=1e300), "noise_multiplier=1e.300"),
        (dict(noise_multiplier="1"), "'1'"),
        (dict(clip_norm=0.0), "clip_norm=0.0"),
        (dict(clip_norm=math.nan), "nan"),
        (dict(clip_norm=math.inf), "finite clip_norm"),
        (dict(clip_by="value"), "'value'"),
        (dict(order="third"), "'third'"),
        (dict(inner_steps=0), "inner_steps=0"),
        (dict(inner_clip_norm=1.0), "inner_noise_multiplier None.*both"),
        (dict(inner_noise_multiplier=1.0), "inner_clip_norm is None.*both"),
        (dict(INNER, inner_clip_norm=0.0), "inner_clip_norm=0.0"),
        (dict(INNER, inner_clip_norm=math.inf), "inner_clip_norm=inf"),
        (dict(INNER, inner_noise_multiplier=0.0), "inner_noise_multiplier=0.0"),
        (dict(INNER, inner_noise_multiplier=1e-300), "multiplier=1e-300"),
        (dict(INNER, inner_noise_multiplier="1"), "multiplier='1'"),
        (dict(INNER, inner_steps=None), "inner_steps is None.*give them"),
        (dict(INNER, order=None), "order None.*give them"),
    ],
)
def test_values_out_of_range(options, match):
  with pytest.raises(plan.PlanError, match=match):
    make(**options)
