"""Units that draw a random number of clip units: mixtures on a line."""

import dataclasses
import math

import mpmath
import numpy as np
import pytest

from episodic_dp import accounting
from episodic_dp.accounting.profiles import amplification
from episodic_dp.accounting.profiles import counts
from episodic_dp.accounting.profiles import line_mixture
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


@pytest.mark.parametrize("direction", BOTH)
@pytest.mark.parametrize("unit", UNITS)
def test_convex_falling_and_below_the_largest_number(unit, direction):
  log_alpha = np.concatenate([np.linspace(0, 3, 400), np.geomspace(3.1, 60)])
  value = unit.divergence(log_alpha, direction)
  slopes = np.diff(value) / np.diff(np.exp(log_alpha))
  assert (slopes <= 1e-15).all()
  assert (np.diff(slopes) >= -1e-12 * np.abs(slopes[1:]) - 1e-15).all()
  whole = unit.at_most.divergence(log_alpha, direction)
  assert (value <= whole * (1 + 3e-4) + 1e-35).all()
  weight, distance = unit.tail
  above = weight * amplification.hockey_stick(log_alpha, distance)
  assert (value <= above * (1 + 3e-4) + 1e-35).all()


@pytest.mark.slow  # Fifty tables.
@pytest.mark.parametrize("direction", BOTH)
@pytest.mark.parametrize("unit", UNITS)
def test_larger_numbers_rates_and_distances_cost_more(unit, direction):
  value = unit.divergence(LOSSES, direction)
  larger = [
      dataclasses.replace(unit, rate=min(1.0, 1.1 * unit.rate)),
      dataclasses.replace(unit, distance=1.1 * unit.distance),
      dataclasses.replace(
          unit,
          number=Number(
              tuple(v + 1 for v in unit.number.values), unit.number.probs
          ),
      ),
      dataclasses.replace(
          unit, instead=Number((unit.instead.most + 1,), (1.0,))
      ),
      dataclasses.replace(
          unit, outer_distances=tuple(2 * m for m in unit.outer_distances)
      ),
  ]
  for other in larger:
    found = other.divergence(LOSSES, direction)
    assert (found >= value * (1 - 3e-5) - 1e-15).all()


def test_what_is_far_off_is_finite():
  """Tables end; what lies beyond counts as moved as far as anything."""
  for distance in (1e-9, 1.0, 50.0, 1e6):
    unit = kind(number=(50, 0.01), distance=distance)
    for direction in BOTH:
      d = unit.tail[1]
      value = unit.divergence(
          np.asarray([0.0, d * d / 2, d * d + 100 * d]), direction
      )
      assert (np.diff(value) <= 0).all() and value[-1] < 1e-30
      assert value[0] <= unit.tail[0]


def test_plain_data_is_complete():
  found = kind(rates=(0.5,), outer=(1.0,), number=(2, 0.5)).as_dict()
  assert found == {
      "kind": "random count", "parent_rate": 0.5, "own_rate": 0.3,
      "outer_rates": [0.5], "outer_distances": [2.0], "own_distance": 1.0,
      "clip_unit_distance": 0.5,
      "number": {"values": [0, 1, 2], "probs": [0.25, 0.5, 0.25]},
      "instead": {"values": [0], "probs": [1.0]},
  }
  assert hash(kind()) == hash(kind()) and kind() == kind()
  assert isinstance(kind().at_most, accounting.Amplification)


def test_curves_of_several_rows_are_those_of_each():
  seen = np.asarray([[0.5, 0.5, 0.0], [0.1, 0.2, 0.7]])
  at = np.asarray([0.0, 0.8, 1.6])
  for direction in BOTH:
    both = line_mixture.curves(line_mixture.Line(seen, at), direction)
    for row, curve in zip(seen, both):
      (alone,) = line_mixture.curves(
          line_mixture.Line(row[None], at), direction
      )
      np.testing.assert_allclose(curve(LOSSES), alone(LOSSES), rtol=1e-6)


def test_a_sum_of_curves_is_what_they_add_up_to():
  seen = np.asarray([[0.5, 0.5, 0.0], [0.1, 0.2, 0.7]])
  # With a row that goes farther than a table does.
  at, weights = np.asarray([0.0, 0.8, 5e3]), [0.3, 0.05]
  losses = np.concatenate([LOSSES, np.linspace(0, 3e7, 5000)])
  for direction in BOTH:
    parts = line_mixture.curves(line_mixture.Line(seen, at), direction)
    assert parts[1].far
    expected = sum(w * part(losses) for w, part in zip(weights, parts))
    found = line_mixture.Sum(weights, parts)(losses)
    np.testing.assert_allclose(found, expected, rtol=1e-12)
