"""Distributions of whole numbers, rounded upwards where they are cut."""

import numpy as np
import pytest
from scipy import stats

from episodic_dp.accounting.profiles import counts as counts_lib


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
  found = counts_lib.binomial(n, rate)
  check_tails(found, stats.binom(n, rate))
  assert found.most == n and found.values.size < 30_000


@pytest.mark.parametrize(
    "population,marked,drawn",
    [(10, 4, 3), (10, 8, 9), (400_000, 1900, 1600), (50, 50, 7), (9, 1, 9),
     (10**6, 20_000, 30_000)],
)
def test_hypergeometric_is_exact_but_for_its_tails(population, marked, drawn):
  found = counts_lib.hypergeometric(population, marked, drawn)
  check_tails(found, stats.hypergeom(population, marked, drawn))


def test_sums_are_compounds():
  part = counts_lib.chosen(counts_lib.constant(3), 4, 0.3)
  np.testing.assert_array_equal(part.values, 3 * np.arange(5))
  np.testing.assert_allclose(part.probs, stats.binom.pmf(range(5), 4, 0.3))
  inner = stats.binom.pmf(range(3), 2, 0.4)
  coin = 0.25 * inner + np.asarray([0.75, 0, 0])
  wanted = np.convolve(np.convolve(coin, coin), coin)
  found = counts_lib.chosen(counts_lib.binomial(2, 0.4), 3, 0.25)
  np.testing.assert_array_equal(found.values, range(7))
  np.testing.assert_allclose(found.probs, wanted, rtol=1e-12)
  whole = counts_lib.times(counts_lib.binomial(30, 0.1), 40)
  likely = whole.probs > 1e-200
  np.testing.assert_allclose(
      whole.probs[likely],
      stats.binom.pmf(whole.values[likely], 1200, 0.1),
      rtol=1e-9,
  )
  kept = counts_lib.thinned(counts_lib.binomial(9, 0.5), 0.5)
  np.testing.assert_allclose(kept.probs, stats.binom.pmf(range(10), 9, 0.25))


def test_coarser_only_rounds_up():
  whole = counts_lib.binomial(3000, 0.3)
  few = counts_lib.coarser(whole, 100)
  assert few.values.size <= 104 and few.most == whole.most
  assert few.probs.sum() == pytest.approx(1)
  above = stats.binom.sf(few.values - 1, 3000, 0.3)
  tail = np.cumsum(few.probs[::-1])[::-1]
  assert (tail >= above * (1 - 1e-6)).all()
  assert 900 <= few.values @ few.probs <= 906
  assert counts_lib.coarser(few, 200) is few


def test_the_larger_of_two_is_above_both_and_no_more():
  first = counts_lib.binomial(10, 0.2)
  second = counts_lib.Counts(np.asarray([1, 3]), np.asarray([0.9, 0.1]))
  found = counts_lib.larger(first, second)
  values = np.arange(12)

  def above(part):
    return np.asarray([part.probs[part.values >= v].sum() for v in values])

  np.testing.assert_allclose(
      above(found), np.maximum(above(first), above(second)), rtol=1e-9
  )
