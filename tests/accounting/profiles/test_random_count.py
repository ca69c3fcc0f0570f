"""Units that draw a random number of clip units: mixtures on a line."""

import dataclasses
import math

import mpmath
import numpy as np
import pytest

from episodic_dp.accounting.profiles import amplification
from episodic_dp.accounting.profiles import counts
from episodic_dp.accounting.profiles import random_count

BOTH = amplification.DIRECTIONS
LOSSES = np.asarray([0.0, 0.01, 0.1, 0.7, 2.0, 6.0])
Number = random_count.Number


def kind(
    rates=(), rate=0.3, outer=(), number=(10, 0.2), instead=None, distance=0.5
):
  return random_count.RandomCount(
      outer_rates=rates,
      rate=rate,
      outer_distances=outer,
      number=Number.of(counts.binomial(*number)),
      instead=(
          Number.of(counts.binomial(*instead))
          if instead
          else random_count.NOTHING
      ),
      distance=distance,
  )


def oracle(unit, log_alpha, direction):
  """The divergence of the outputs on the line, in 40 digits."""
  with mpmath.workdps(40):
    q, p = mpmath.fprod(unit.outer_rates), mpmath.mpf(unit.rate)
    alpha, d = mpmath.exp(mpmath.mpf(log_alpha)), mpmath.mpf(unit.distance)
    seen = [
        (q * p * mpmath.mpf(w), k * d)
        for k, w in zip(unit.number.values, unit.number.probs)
    ]
    instead = [
        (q * mpmath.mpf(w), -k * d)
        for k, w in zip(unit.instead.values, unit.instead.probs)
    ]
    side = -1 if direction == "remove" else 1
    broken, path = [], mpmath.mpf(1)
    for r, m in zip(unit.outer_rates, unit.outer_distances):
      broken.append((path * (1 - mpmath.mpf(r)), side * mpmath.mpf(m)))
      path *= mpmath.mpf(r)
    with_it = broken + seen + [(w * (1 - p), at) for w, at in instead]
    without = broken + instead
    if direction == "add":  # Mirrored, so that the first rises to the right.
      with_it, without = (
          [(w, -at) for w, at in part] for part in (without, with_it)
      )
    terms = with_it + [(-alpha * w, at) for w, at in without]

    def density(x):
      return mpmath.fsum(
          w * mpmath.exp(at * x - at * at / 2) for w, at in terms
      )

    low, high = mpmath.mpf(-200), mpmath.mpf(200)
    if density(high) <= 0:
      return mpmath.mpf(0)
    for _ in range(140):
      middle = (low + high) / 2
      low, high = (
          (low, middle) if density(middle) > 0 else (middle, high)
      )
    return mpmath.fsum(w * mpmath.ncdf(at - low) for w, at in terms)


UNITS = [
    kind(),
    kind(rate=1.0, number=(40, 0.05)),
    kind(rate=1e-6, number=(3, 0.9), distance=2.0),
    kind(rates=(0.2,), outer=(1.5,)),
    kind(rates=(0.2, 0.7), outer=(3.0, 0.4), rate=0.9, number=(4, 0.5)),
    kind(instead=(10, 0.2)),
    kind(instead=(3, 0.6), number=(6, 0.1), distance=1.0, rate=0.05),
    kind(rates=(0.4,), outer=(2.0,), instead=(5, 0.5), number=(5, 0.5)),
    kind(rates=(0.01,), outer=(math.inf,), number=(5, 0.5)),
    kind(number=(30, 0.5), distance=0.01),
]


@pytest.mark.parametrize("direction", BOTH)
@pytest.mark.parametrize("unit", UNITS)
def test_the_divergence_on_the_line_in_high_precision(unit, direction):
  known = dataclasses.replace(
      unit, outer_distances=tuple(min(m, 1e3) for m in unit.outer_distances)
  )
  bounds = unit.divergence(LOSSES, direction)
  for log_alpha, bound in zip(LOSSES, bounds):
    truth = float(oracle(known, float(log_alpha), direction))
    assert truth * (1 - 1e-9) - 1e-14 <= bound
    assert bound <= truth * (1 + 2e-5) + 1e-15


@pytest.mark.parametrize("direction", BOTH)
def test_a_known_number_is_a_tree(direction):
  """With point masses both formulas are the same, `FixedSize` or not."""
  for instead in (random_count.NOTHING, Number((2,), (1.0,))):
    unit = dataclasses.replace(
        kind(rates=(0.3,), outer=(2.0,)),
        number=Number((3,), (1.0,)), instead=instead,
    )
    # A tree's outer distance is that to what is positive in the direction.
    ahead = unit.number if direction == "remove" else instead
    tree = dataclasses.replace(
        unit.at_most, outer_distances=(2.0 + ahead.most * unit.distance,)
    )
    assert unit.at_most.unit_sensitivity == (3 + instead.most) * 0.5
    np.testing.assert_allclose(
        unit.divergence(LOSSES, direction),
        tree.divergence(LOSSES, direction),
        rtol=3e-5, atol=1e-15,
    )
