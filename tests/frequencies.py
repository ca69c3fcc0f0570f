"""Statistical tests of draws and of noise, at one level."""

import math

import numpy as np
from scipy import stats

ALPHA = 1e-6


def check_normal(values):
  """Require a sample of a standard normal."""
  values = np.asarray(values, np.float64).ravel()
  low, high = stats.chi2.interval(1 - ALPHA, values.size)
  assert low < np.sum(values**2) < high
  assert stats.kstest(values, "norm").pvalue > ALPHA


def check_unrelated(*samples):
  """Require that no two samples are correlated."""
  samples = [np.ravel(sample) for sample in samples]
  found = np.abs(np.corrcoef(samples) - np.eye(len(samples)))
  assert found.max() < 5 / math.sqrt(samples[0].size)


def check_uniform(counts):
  """Require counts of equally likely values."""
  assert stats.chisquare(counts).pvalue > ALPHA


def check_rows(rows, number):
  """Require `number` different rows, all equally often."""
  found, counts = np.unique(rows, axis=0, return_counts=True)
  assert len(found) == number
  check_uniform(counts)


def check_pairs(one, two, size):
  """Require that all pairs of numbers below a size are equally likely."""
  check_uniform(np.bincount(one * size + two, minlength=size**2))


def check_binomial(counts, n, p):
  """Require binomial counts, by a chi-square test."""
  shares = np.linspace(0, 1, 11)[1:-1]
  edges = np.unique(stats.binom.ppf(shares, n, p))
  cdf = np.concatenate([[0], stats.binom.cdf(edges, n, p), [1]])
  observed = np.bincount(
      np.searchsorted(edges, counts), minlength=edges.size + 1
  )
  expected = np.diff(cdf) * len(counts)
  keep = expected > 0
  assert not observed[~keep].any()
  assert stats.chisquare(observed[keep], expected[keep]).pvalue > ALPHA
