"""Profiles of one step, against high precision, and the laws within them."""

import dataclasses
import math

import mpmath
import numpy as np
import pytest
from scipy import stats

from episodic_dp import plan
from episodic_dp.accounting import sensitivity
from episodic_dp.accounting.profiles import amplification
from episodic_dp.accounting.profiles import counts
from episodic_dp.accounting.profiles import random_count
from episodic_dp.accounting.profiles import unit_profile
from tests import plans
from tests.accounting import enumerated
from tests.refusals import assert_refused

# Trees ------------------------------------------------------------------------


def test_a_distance_too_few_is_an_error():
  """Without its stage, epsilon would be smaller."""
  unit = amplification.Amplification((0.5, 0.5), 0.5, (1.0,), 1.0)
  assert_refused(ValueError, "shorter", unit.divergence, np.ones(1), "remove")


def test_ragged_profile_is_the_pointwise_maximum():
  unit_profiles = (
      amplification.Amplification((0.1,), 0.5, (1.0,), 2.0),
      amplification.Amplification((0.5,), 0.1, (1.0,), 2.0),
  )
  log_alpha = np.linspace(-2, 2, 41)
  for direction in amplification.DIRECTIONS:
    each = [
      enumerated.profile((k,), log_alpha, direction) for k in unit_profiles
    ]
    both = enumerated.profile(unit_profiles, log_alpha, direction)
    np.testing.assert_array_equal(both, np.maximum(*each))


class Unheard(amplification.UnitProfile):
  """A type of unit that answers no question."""


def test_a_new_type_of_unit_is_never_composed_as_another(monkeypatch):
  unit, at = Unheard(), np.zeros(1)
  for ask in (
      lambda: unit.tail,
      lambda: unit.inclusion_rate,
      lambda: unit.counting,
      lambda: unit.families,
      lambda: unit.divergence(at, "add"),
      lambda: unit.raised(0.1),
  ):
    with pytest.raises(NotImplementedError):
      ask()
  assert_refused(plan.UnsoundPlanError, "Unheard in a pass", unit.in_known_step)
  monkeypatch.setattr(Unheard, "tail", (0.1, 1.0))
  with pytest.raises(NotImplementedError):
    unit.log_divergence(at, "add")
  monkeypatch.setattr(Unheard, "counting", True)
  with pytest.raises(NotImplementedError):
    unit.raised(0.1)


# Random numbers of clip units -------------------------------------------------


BOTH = amplification.DIRECTIONS
LOSSES = np.asarray([0.0, 0.01, 0.1, 0.7, 2.0, 6.0])


def kind(
    rates=(), rate=0.3, outer=(), number=(10, 0.2), instead=(0, 0.0),
    distance=0.5,
):
  return random_count.RandomCount(
      outer_rates=rates,
      rate=rate,
      outer_distances=outer,
      number=counts.binomial(*number),
      instead=counts.binomial(*instead),
      distance=distance,
  )


def oracle(unit, log_alpha, direction):
  """The divergence of the outputs on the line, in 40 digits."""
  with mpmath.workdps(40):
    q, p = mpmath.fprod(unit.outer_rates), mpmath.mpf(unit.rate)
    alpha, d = mpmath.exp(mpmath.mpf(log_alpha)), mpmath.mpf(unit.distance)
    seen = [
        (q * p * mpmath.mpf(w), k * d)
        for k, w in zip(*map(np.ndarray.tolist, unit.number))
    ]
    instead = [
        (q * mpmath.mpf(w), -k * d)
        for k, w in zip(*map(np.ndarray.tolist, unit.instead))
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
@pytest.mark.few(7)
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
def test_where_only_broken_paths_are_left_is_no_point_of_the_curve(direction):
  unit = dataclasses.replace(
      kind(rates=(0.2,), outer=(90.0,), rate=1e-3, distance=2.0),
      number=counts.binomial(10, 1e-6), instead=counts.constant(6),
      replaced=True,
  )
  with mpmath.workdps(40):  # The total variation; both signs at full length.
    truth = 0.2e-3 * mpmath.fsum(
        w * (2 * mpmath.ncdf(2.0 * k) - 1)
        for k, w in zip(*map(np.ndarray.tolist, unit.number))
    )
  bound = float(unit.divergence(np.zeros(1), direction)[0])
  assert truth * (1 - 1e-9) <= bound <= truth * (1 + 2e-5)


@pytest.mark.parametrize("direction", BOTH)
def test_a_unit_that_is_hardly_ever_drawn_is_not_taken_for_none(direction):
  unit = kind(number=(10, 1e-18))
  assert unit.inclusion_rate == pytest.approx(0.3 * 1e-17)
  with mpmath.workdps(40):
    truth = float(0.3e-17 * (2 * mpmath.ncdf(0.25) - 1))
  assert unit.divergence(np.zeros(1), direction)[0] >= truth * (1 - 1e-9)


@pytest.mark.parametrize("direction", BOTH)
def test_a_known_number_is_a_tree(direction):
  """With point masses both formulas are the same, `FixedSize` or not."""
  for instead in (counts.constant(0), counts.constant(2)):
    unit = dataclasses.replace(
        kind(rates=(0.3,), outer=(2.0,)),
        number=counts.constant(3), instead=instead,
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


# Laws of whole numbers, rounded upwards where they are cut --------------------


def check_tails(found, distribution):
  """Exact where it is likely, above the truth in the upper tail."""
  likely = found.probs > 1e-25
  np.testing.assert_allclose(
      found.probs[likely], distribution.pmf(found.values[likely]), rtol=1e-6
  )
  above = np.cumsum(found.probs[::-1])[::-1]
  truth = distribution.sf(found.values - 1)
  assert (above >= truth * (1 - 1e-6)).all()
  assert distribution.sf(found.most) == 0  # Nothing is left out.
  assert distribution.cdf(found.values[0] - 1) <= 2e-40
  assert found.probs.sum() == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize(
    "n,rate", [(7, 0.3), (1900, 0.004), (10**5, 1e-4), (10**6, 0.5)]
)
def test_binomial_is_exact_but_for_its_tails(n, rate):
  found = counts.binomial(n, rate)
  check_tails(found, stats.binom(n, rate))
  assert found.most == n and found.values.size < 30_000


@pytest.mark.parametrize(
    "population,marked,drawn",
    [(10, 4, 3), (10, 8, 9), (400_000, 1900, 1600), (50, 50, 7), (9, 1, 9),
     (10**6, 20_000, 30_000)],
)
def test_hypergeometric_is_exact_but_for_its_tails(population, marked, drawn):
  found = counts.hypergeometric(population, marked, drawn)
  check_tails(found, stats.hypergeom(population, marked, drawn))


def test_sums_are_compounds():
  part = counts.chosen(counts.constant(3), 4, 0.3)
  np.testing.assert_array_equal(part.values, 3 * np.arange(5))
  np.testing.assert_allclose(part.probs, stats.binom.pmf(range(5), 4, 0.3))
  inner = stats.binom.pmf(range(3), 2, 0.4)
  coin = 0.25 * inner + np.asarray([0.75, 0, 0])
  wanted = np.convolve(np.convolve(coin, coin), coin)
  found = counts.chosen(counts.binomial(2, 0.4), 3, 0.25)
  np.testing.assert_array_equal(found.values, range(7))
  np.testing.assert_allclose(found.probs, wanted, rtol=1e-12)
  whole = counts.times(counts.binomial(30, 0.1), 40)
  likely = whole.probs > 1e-200
  np.testing.assert_allclose(
      whole.probs[likely],
      stats.binom.pmf(whole.values[likely], 1200, 0.1),
      rtol=1e-9,
  )
  kept = counts.thinned(counts.binomial(9, 0.5), 0.5)
  np.testing.assert_allclose(kept.probs, stats.binom.pmf(range(10), 9, 0.25))


def test_coarser_only_rounds_up():
  whole = counts.binomial(3000, 0.3)
  few = counts.coarser(whole, 100)
  assert few.values.size <= 104 and few.most == whole.most
  assert few.probs.sum() == pytest.approx(1)
  above = stats.binom.sf(few.values - 1, 3000, 0.3)
  tail = np.cumsum(few.probs[::-1])[::-1]
  assert (tail >= above * (1 - 1e-6)).all()
  assert 900 <= few.values @ few.probs <= 906
  assert counts.coarser(few, 200) is few


def test_the_larger_of_two_is_above_both_and_no_more():
  first = counts.binomial(10, 0.2)
  second = counts.Counts(np.asarray([1, 3]), np.asarray([0.9, 0.1]))
  found = counts.larger(first, second)
  values = np.arange(12)

  def above(part):
    return np.asarray([part.probs[part.values >= v].sum() for v in values])

  np.testing.assert_allclose(
      above(found), np.maximum(above(first), above(second)), rtol=1e-9
  )


# Chords of slow profiles ------------------------------------------------------


def kinds_of(size):
  """Return kinds of units, none above another."""
  shares = np.linspace(0.1, 0.9, size)
  return tuple(
      amplification.Amplification((0.1,), float(p), (1.0,), float(1.5 - p))
      for p in shares
  )


# Users and their examples by Poisson, clipped one by one.
AVERAGE = plans.release(
    plans.tree("user example", 1000, 100), plans.sampling(0.01, 0.05),
    "example",
)
RECURRING = plans.release(
    plans.tree(
        "participant class image", 4000, 5, 4, copies=True,
        most_copies={"class": 50, "image": 50},
    ),
    plans.sampling(0.02, 5, 2), "participant", 10.0,
)
SLOW = {
    "average": lambda: sensitivity.unit_profiles(AVERAGE, "example"),
    "recurring": lambda: sensitivity.unit_profiles(RECURRING, "image"),
    "kinds": lambda: kinds_of(24),
}


@pytest.mark.parametrize("direction", amplification.DIRECTIONS)
@pytest.mark.parametrize("name", SLOW)
@pytest.mark.few(3)
def test_chords_are_above_and_near(name, direction):
  units = SLOW[name]()
  x = np.geomspace(1e-7, 40, 999)
  x = np.concatenate([-x[::-1], [0.0], x])
  exact = unit_profile.excess(units, x, direction)
  for least, share in ((1e-30, 2 * unit_profile.TOLERANCE), (1e-100, 1e-3)):
    found = unit_profile.bounded_excess(units, x, direction, least)
    assert (found >= exact * (1 - 1e-12)).all()
    some = exact > least
    assert (found[some] <= exact[some] * (1 + share)).all()
