"""The count tables against exact fractions and high precision."""

import fractions
import math

import mpmath
import numpy as np
import pytest

from episodic_dp.plan import binomial


def numbers(table):
  """The thresholds as whole numbers."""
  return [
      sum(int(w) << (32 * (3 - i)) for i, w in enumerate(row))
      for row in table.thresholds
  ]


def probabilities(table):
  """count -> exact probability of being drawn."""
  edges = [0, *numbers(table), 1 << binomial.BITS]
  return {
      table.first + i: fractions.Fraction(high - low, 1 << binomial.BITS)
      for i, (low, high) in enumerate(zip(edges, edges[1:]))
  }


@pytest.mark.parametrize("n", [1, 2, 7, 40, 150])
@pytest.mark.parametrize("p", [1e-9, 0.004, 0.3, 0.5, 0.97, 1 - 1e-9])
def test_total_variation_is_within_the_stated_error(n, p):
  table = binomial.binomial_table(n, p)
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
  assert max(drawn) == table.capacity <= n


@pytest.mark.parametrize("n,p", [(400_000, 0.004), (100_000_000, 1e-5)])
def test_large_tables_against_high_precision(n, p):
  table = binomial.binomial_table(n, p)
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


@pytest.mark.parametrize("n,p,count", [(0, 0.5, 0), (9, 1.0, 9)])
def test_counts_that_are_certain(n, p, count):
  table = binomial.binomial_table(n, p)
  assert (table.first, table.capacity, table.error) == (count, count, 0.0)
  assert table.thresholds.shape == (0, binomial.WORDS)


def test_thresholds_rise_and_are_cached():
  table = binomial.binomial_table(1000, 0.1)
  assert numbers(table) == sorted(set(numbers(table)))
  assert table.thresholds.dtype == np.uint32
  assert binomial.binomial_table(1000, 0.1) is table


def test_tiny_rates():
  table = binomial.binomial_table(5, 1e-300)
  assert probabilities(table)[0] == 1
  assert table.error >= 5e-300
