"""The count tables, the error of the sampler, and the slots it needs."""

import dataclasses
import fractions
import math

import mpmath
import numpy as np
import pytest
from scipy import stats

from episodic_dp import plan
from episodic_dp.accounting import recurrence
from episodic_dp.accounting.profiles import amplification
from episodic_dp.accounting.profiles import counts
from episodic_dp.accounting.profiles import random_count
from episodic_dp.plan import sampler_error
from tests import plans


def probabilities(table):
  """count -> exact probability of being drawn."""
  edges = [0, *table.thresholds, 1 << sampler_error.BITS]
  return {
      table.first + i: fractions.Fraction(high - low, 1 << sampler_error.BITS)
      for i, (low, high) in enumerate(zip(edges, edges[1:]))
  }


@pytest.mark.parametrize("n", [0, 1, 2, 7, 40, 150])
@pytest.mark.parametrize("p", [1e-9, 0.004, 0.3, 0.5, 0.97, 1 - 1e-9, 1.0])
def test_total_variation_is_within_the_stated_error(n, p):
  table = sampler_error.binomial_table(n, p)
  drawn, exact_p = probabilities(table), fractions.Fraction(p)
  assert sum(drawn.values()) == 1
  variation = sum(
      abs(
          drawn.get(k, fractions.Fraction(0))
          - math.comb(n, k) * exact_p**k * (1 - exact_p) ** (n - k)
      )
      for k in range(n + 1)
  ) / 2
  assert variation <= table.error < 2.0**-88
  assert table.error > 0 or p == 1 or n == 0
  assert max(drawn) == table.capacity <= n


@pytest.mark.parametrize("n,p", [(400_000, 0.004), (100_000_000, 1e-5)])
def test_large_tables_against_high_precision(n, p):
  table = sampler_error.binomial_table(n, p)
  drawn = probabilities(table)
  with mpmath.workdps(60):
    exact = mpmath.mpf(p)
    for k in (
        table.first + 1, int(n * p) - 30, int(n * p), int(n * p) + 80,
        table.capacity - 1,
    ):
      log_mass = (
          mpmath.loggamma(n + 1) - mpmath.loggamma(k + 1)
          - mpmath.loggamma(n - k + 1)
          + k * mpmath.log(exact) + (n - k) * mpmath.log1p(-exact)
      )
      truth = mpmath.exp(log_mass)
      got = mpmath.mpf(drawn[k].numerator) / drawn[k].denominator
      assert abs(got - truth) < mpmath.mpf(2) ** -126
  # What is cut off, by a Chernoff bound at the ends, is within the error.
  spread = math.sqrt(n * p * (1 - p))
  assert 8 * spread < table.capacity - n * p < 16 * spread
  assert table.error < 2.0**-88


LEVELS = ("participant", "class", "image")


def poisson(sizes, p):
  h = plan.Hierarchy.regular(sizes, levels=LEVELS)
  return h, plans.sampling(plan.Poisson(p), 2, 0.5)


def test_slots_of_each_stage():
  h, p = poisson((100_000, 5, 4), 0.004)
  slots = sampler_error.capacities(h, p)
  assert slots == (sampler_error.binomial_table(100_000, 0.004).capacity, 2, 4)
  ragged = plans.nested(LEVELS, [[4, 2, 3], [4, 5]])
  whole = plans.sampling(plan.All(), plan.All(), 3)
  assert sampler_error.capacities(ragged, whole) == (2, 3, 3)
  short = plans.sampling(1, 9, 9, allow_short_units=True)
  # They hold every family.
  uneven = plans.nested(LEVELS, [[900], [1000], [10]])
  counted = plans.sampling(plan.All(), plan.All(), 0.01)
  assert sampler_error.capacities(uneven, counted)[2] == max(
      sampler_error.binomial_table(n, 0.01).capacity for n in (900, 1000, 10)
  )
  # Below the first stage they are the plan's alone.
  assert sampler_error.capacities(ragged, short) == (1, 9, 9)


def test_every_draw_is_counted():
  h, p = poisson((100_000, 5, 4), 0.004)
  first, second, third = sampler_error.capacities(h, p)
  uniform = sampler_error.UNIFORM_ERROR
  expected = (
      first * uniform + sampler_error.binomial_table(100_000, 0.004).error
      + first * second * uniform
      + first * second * third * uniform
      + first * second * sampler_error.binomial_table(4, 0.5).error
  )
  error = sampler_error.sampling_error(h, p)
  assert error.variation == pytest.approx(expected, rel=1e-12)
  assert error.log_ratio == pytest.approx(
      (first + first * second + first * second * third) * uniform, rel=1e-5
  )
  assert error.tails == pytest.approx(
      error.variation - error.log_ratio, rel=1e-2
  )


def test_the_error_is_that_of_a_neighbours_table_too():
  """One child less may cut off one count more, hundreds of times as likely."""
  own, fewer = (sampler_error.binomial_table(n, 0.001) for n in (23, 22))
  assert own.capacity == fewer.capacity + 1
  assert fewer.error > 500 * own.error
  error = sampler_error.sampling_error(*poisson((23, 2, 1), 0.001))
  assert error.tails >= fewer.error


def test_error_grows_with_slots_stages_and_tasks():
  h = plans.tree("class image", 50, 20)
  episode = plan.Episode(
      way=5, shot=1, query=1, form="independent", tasks=2
  )
  p = plans.sampling(5, 2, episode=episode)
  twice = dataclasses.replace(
      p, episode=dataclasses.replace(episode, tasks=4)
  )
  error = sampler_error.sampling_error(h, p)
  doubled = sampler_error.sampling_error(h, twice)
  assert doubled.variation == pytest.approx(2 * error.variation)
  assert error.variation == pytest.approx(
      2 * (5 + 10) * sampler_error.UNIFORM_ERROR
  )
  # Nothing that both could not draw: only ratios of probabilities.
  assert error.tails == error.unmatched == 0
  assert error.log_ratio == pytest.approx(error.variation, rel=1e-5)


def test_a_pass_is_charged_for_its_bins_and_its_overflow():
  n, steps = 100_000, 250
  h = plans.tree(LEVELS, n, 5, 4)
  p, poisson = (
      plans.sampling(stage, 2, 3)
      for stage in (plan.RandomAllocation(steps), plan.Poisson(1 / steps))
  )
  assert sampler_error.capacities(h, p) == sampler_error.capacities(h, poisson)
  error = sampler_error.sampling_error(h, p)
  extra = error.variation - sampler_error.sampling_error(h, poisson).variation
  table = sampler_error.binomial_table(n, 1 / steps)
  assert extra == pytest.approx(table.error + n * 2.0**-128, rel=1e-6)
  assert error.log_ratio >= n * steps * 2.0**-128
  assert 0 < 10_000 * sampler_error.sampling_error(h, p).variation < 1e-12
  # One step a pass: every unit is in it, for certain.
  whole = plans.sampling(plan.RandomAllocation(1), plan.All(), plan.All())
  assert sampler_error.capacities(h, whole) == (n, 5, 4)


def test_ratios_of_uniform_numbers_are_near_one():
  """Enumerate floor(U n / 2^8) over U, relative to a share of 1 / n."""
  # floor(U n / 2^128) is off from uniform by at most n / 2^128.
  assert sampler_error.UNIFORM_ERROR >= (2**31 - 1) / 2**sampler_error.BITS
  bits = 8
  for n in range(1, 2**bits // 2):
    counts = [0] * n
    for u in range(2**bits):
      counts[u * n >> bits] += 1
    for count in counts:
      assert abs(count * n / 2**bits - 1) < n / 2**bits or count * n == 2**bits


def hockey_stick(positive, negative, alpha):
  """Mixtures are pairs of weights and means, all of deviation 1."""
  x = np.linspace(-12, 16, 4001)

  def density(parts):
    return sum(w * stats.norm.pdf(x - mean) for w, mean in parts)

  gap = density(positive) - alpha * density(negative)
  return np.maximum(gap, 0).sum() * (x[1] - x[0])


@pytest.mark.parametrize("p", [0.02, 0.3, 0.7, 0.95])
@pytest.mark.parametrize("n", [2, 5, 9])
@pytest.mark.parametrize("own", [True, False])
def test_counts_that_are_cut_cost_what_is_unmatched(own, n, p, monkeypatch):
  """Enumerate tails of 2^-5, thresholds of 2^-10, all counts distinguished.

  The unit is a child of the family itself (`own`), or lies inside a child: a
  sample with c of the others has masses that follow from the drawn count.
  """
  table, whole = coarse_law(monkeypatch, n, p)
  _, fewer = coarse_law(monkeypatch, n - 1, p)
  with_unit, without = [], []
  for c in range(n):
    in_it = whole[c + 1] * (c + 1) / n
    out = whole[c] * (n - c) / n
    if own:
      with_unit.append([(out, 0.0), (in_it, 1.5)])
      without.append([(fewer[c], 0.0)])
    else:
      with_unit.append([(out, 3.0), (0.6 * in_it, 0.0), (0.4 * in_it, 1.5)])
      without.append([(out, 3.0), (in_it, 0.0)])
  ideal = amplification.Amplification(
      () if own else (p,), p if own else 0.4, () if own else (3.0,), 1.5
  )
  unmatched = sampler_error._unmatched(plan.Poisson(p), n, table)
  seen = 0.0
  for log_alpha in (0.0, 0.1, 0.5, 1.0, 2.0, 5.0):
    for direction, pairs in (
        ("remove", zip(with_unit, without)),
        ("add", zip(without, with_unit)),
    ):
      truth = sum(hockey_stick(*pair, math.exp(log_alpha)) for pair in pairs)
      bound = ideal.divergence(np.asarray([log_alpha]), direction)[0]
      assert truth <= bound + unmatched + 1e-9
      seen = max(seen, truth - bound)
  if own and n == 9:  # Without it the bound would be wrong.
    assert seen > 1e-5


def coarse_law(monkeypatch, n, p):
  """Return the table of Binomial(n, p) in small, and the law it draws."""
  monkeypatch.setattr(sampler_error, "BITS", 10)
  monkeypatch.setattr(sampler_error, "TAIL_BITS", 5)
  table = sampler_error.binomial_table.__wrapped__(n, p)
  law = np.zeros(n + 2)
  law[table.first : table.capacity + 1] = np.diff(
      [0, *table.thresholds, 2**10]
  ) / 2**10
  return table, law


def check_raised(pairs, raised):
  """Expect an enumerated divergence to be within a raised profile.

  Returns the largest difference from the profile that is not raised.
  """
  with_unit, without = pairs
  seen = -1.0
  for log_alpha in (0.0, 0.1, 0.5, 1.0, 2.0, 5.0):
    for direction, sides in (
        ("remove", (with_unit, without)), ("add", (without, with_unit))
    ):
      truth = sum(
          hockey_stick(*pair, math.exp(log_alpha)) for pair in zip(*sides)
      )
      bound, ideal = (
          kind.divergence(np.asarray([log_alpha]), direction)[0]
          for kind in raised
      )
      assert truth <= bound + 1e-9
      seen = max(seen, truth - ideal)
  return seen


@pytest.mark.parametrize("p", [0.02, 0.3, 0.7])
@pytest.mark.parametrize("below, rate", [(3, 0.1), (3, 0.5), (8, 0.95)])
def test_counts_below_a_unit_that_are_cut_cost_what_they_are_raised(
    p, below, rate, monkeypatch
):
  """A user is drawn by a coin, and the user's examples by a cut table."""
  inner, drawn = coarse_law(monkeypatch, below, rate)
  examples = [(p * drawn[k], 1.5 * k) for k in range(below + 1)]
  ideal = random_count.RandomCount(
      outer_rates=(), rate=p, outer_distances=(),
      number=counts.binomial(below, rate), instead=counts.constant(0),
      distance=1.5,
  )
  seen = check_raised(
      ([[(1 - p, 0.0), *examples]], [[(1.0, 0.0)]]),
      (ideal.raised(inner.error), ideal),
  )
  if rate != 0.1:  # Without it the bound would be wrong.
    assert seen > 1e-6


def test_places_that_are_cut_cost_what_they_are_raised(monkeypatch):
  """Three of nine participants hold a class, which each of them draws."""
  n, p, holders = 9, 0.9, 3
  table, whole = coarse_law(monkeypatch, n, p)
  drawn = np.arange(n + 1)
  held = [
      whole[: n + 1] @ stats.hypergeom.pmf(j, n, holders, drawn)
      for j in range(holders + 1)
  ]
  ideal = recurrence.Recurrence(
      places=holders, place_rate=p, rate=1.0, distance=1.0
  )
  with_unit = [[(share, float(j))] for j, share in enumerate(held)]
  without = [[(share, 0.0)] for share in held]
  seen = check_raised(
      (with_unit, without), (ideal.raised(table.error), ideal)
  )
  assert seen > 1e-4  # Without it the bound would be wrong.
