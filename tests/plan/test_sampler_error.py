"""The error of the sampler, and the slots it needs."""

import dataclasses
import math

import pytest

from episodic_dp import plan
from episodic_dp.plan import binomial

LEVELS = ("participant", "class", "image")


def poisson(sizes, p):
  h = plan.Hierarchy.regular(sizes, levels=LEVELS)
  return h, plan.SamplingPlan(
      (plan.Poisson(p), plan.FixedSize(2), plan.Poisson(0.5))
  )


def test_slots_of_each_stage():
  h, p = poisson((100_000, 5, 4), 0.004)
  slots = plan.capacities(h, p)
  assert slots == (plan.binomial_table(100_000, 0.004).capacity, 2, 4)
  ragged = plan.Hierarchy.from_sizes([[4, 2, 3], [4, 5]], levels=LEVELS)
  whole = plan.SamplingPlan((plan.All(), plan.All(), plan.FixedSize(3)))
  assert plan.capacities(ragged, whole) == (2, 3, 3)
  short = plan.SamplingPlan(
      (plan.FixedSize(1), plan.FixedSize(9), plan.FixedSize(9)),
      allow_short_units=True,
  )
  assert plan.capacities(ragged, short) == (1, 3, 5)


def test_slots_hold_every_family_of_a_ragged_level():
  sizes = [[900], [1000], [10]]
  h = plan.Hierarchy.from_sizes(sizes, levels=LEVELS)
  p = plan.SamplingPlan((plan.All(), plan.All(), plan.Poisson(0.01)))
  slots = plan.capacities(h, p)
  for n in (900, 1000, 10):
    assert plan.binomial_table(n, 0.01).capacity <= slots[2]


def test_every_draw_is_counted():
  h, p = poisson((100_000, 5, 4), 0.004)
  first, second, third = plan.capacities(h, p)
  uniform = binomial.UNIFORM_ERROR
  expected = (
      first * uniform + plan.binomial_table(100_000, 0.004).error
      + first * second * uniform
      + first * second * third * uniform
      + first * second * plan.binomial_table(4, 0.5).error
  )
  assert plan.sampling_error(h, p) == pytest.approx(expected, rel=1e-12)


def test_whole_runs_stay_far_below_any_delta():
  h, p = poisson((400_000, 5, 20), 0.004)
  assert 0 < 10_000 * plan.sampling_error(h, p) < 1e-12


def test_error_grows_with_slots_stages_and_tasks():
  h = plan.Hierarchy.regular((50, 20), levels=("class", "image"))
  episode = plan.Episode(
      way=5, shot=1, query=1, form="independent", tasks=2
  )
  p = plan.SamplingPlan(
      (plan.FixedSize(5), plan.FixedSize(2)), episode=episode
  )
  twice = dataclasses.replace(
      p, episode=dataclasses.replace(episode, tasks=4)
  )
  error = plan.sampling_error(h, p)
  assert plan.sampling_error(h, twice) == pytest.approx(2 * error)
  assert error == pytest.approx(2 * (5 + 10) * binomial.UNIFORM_ERROR)


def test_a_pass_is_charged_for_its_bins_and_its_overflow():
  n, steps = 100_000, 250
  h = plan.Hierarchy.regular((n, 5, 4), levels=LEVELS)
  p, poisson = (
      plan.SamplingPlan((stage, plan.FixedSize(2), plan.FixedSize(3)))
      for stage in (plan.RandomAllocation(steps), plan.Poisson(1 / steps))
  )
  assert plan.capacities(h, p) == plan.capacities(h, poisson)
  extra = plan.sampling_error(h, p) - plan.sampling_error(h, poisson)
  table = plan.binomial_table(n, 1 / steps)
  assert extra == pytest.approx(table.error + n * 2.0**-128, rel=1e-6)
  assert 0 < 10_000 * plan.sampling_error(h, p) < 1e-12
  # One step a pass: every unit is in it, for certain.
  whole = plan.SamplingPlan(
      (plan.RandomAllocation(1), plan.All(), plan.All())
  )
  assert plan.capacities(h, whole) == (n, 5, 4)


def test_bins_of_a_pass_add_up_over_its_steps():
  """In small: 3 bins out of 8 bits, for the first k of them and "none"."""
  steps, bits = 3, 8
  probability = [0.0] * steps
  for u in range(2**bits):
    probability[u * steps >> bits] += 2.0**-bits
  for k in range(1, steps + 1):
    parts = [q - 1 / steps for q in probability[:k]]
    variation = (sum(map(abs, parts)) + abs(sum(parts))) / 2
    assert 0 <= variation <= k * 2.0**-bits


def test_uniform_error_covers_the_largest_family():
  # floor(U n / 2^128) is off from uniform by at most n / 2^128.
  assert binomial.UNIFORM_ERROR >= (2**31 - 1) / 2**binomial.BITS
  n, bits = 3, 8  # in small: 256 = 85 * 3 + 1
  counts = [0] * n
  for u in range(2**bits):
    counts[u * n >> bits] += 1
  variation = sum(abs(c / 2**bits - 1 / n) for c in counts) / 2
  assert variation <= n / 2**bits
  assert math.isclose(sum(counts), 2**bits)
