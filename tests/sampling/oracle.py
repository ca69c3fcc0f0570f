"""Algorithm 1 worked out by hand, for tests of the samplers.

Written from the definition, with fractions: it enumerates every way in which
the stages can choose, and shares no code with the samplers.
"""

import fractions
import itertools
import math

import numpy as np
from scipy import stats

from episodic_dp import plan
from tests.frequencies import ALPHA

TREE = [[4, 2, 3], [4, 5]]  # Example 3.1 of the paper.
F, P, A = plan.FixedSize, plan.Poisson, plan.All
LEVELS = ("alphabet", "character", "drawing")


def included(indices, mask, count):
  """bool[draws, count of leaves]; also checks that nothing is drawn twice."""
  draws = indices.shape[0]
  counts = np.zeros((draws, count), int)
  rows = np.broadcast_to(
      np.arange(draws).reshape(-1, *[1] * (indices.ndim - 1)), indices.shape
  )
  np.add.at(counts, (rows[mask], indices[mask]), 1)
  assert counts.max() <= 1
  return counts.astype(bool)


def leaves(tree):
  """(path of child numbers, path of family sizes) of each leaf."""
  return [
      ((a, c, d), (len(tree), len(alphabet), size))
      for a, alphabet in enumerate(tree)
      for c, size in enumerate(alphabet)
      for d in range(size)
  ]


def rate(stage, n):
  """Probability that a given child of n is drawn."""
  if isinstance(stage, P):
    return stage.p
  return 1.0 if isinstance(stage, A) else min(1.0, stage.n / n)


def both(stage, n):
  """Probability that two given children of n are both drawn."""
  if isinstance(stage, P):
    return stage.p**2
  if isinstance(stage, A) or stage.n >= n:
    return 1.0
  return stage.n * (stage.n - 1) / (n * (n - 1))


def pair(stages, one, two):
  """Probability that two given leaves are both drawn (or one, if equal)."""
  result, parted = 1.0, False
  for stage, i, n, j, m in zip(stages, one[0], one[1], two[0], two[1]):
    if parted:
      result *= rate(stage, n) * rate(stage, m)
    elif i == j:
      result *= rate(stage, n)
    else:
      result *= both(stage, n)
      parted = True
  return result


def check_frequencies(hits, draws, rates):
  """Every count against its binomial, at ALPHA for all of them together."""
  hits, rates = np.asarray(hits).ravel(), np.asarray(rates).ravel()
  low = stats.binom.cdf(hits, draws, rates)
  high = stats.binom.sf(hits - 1, draws, rates)
  worst = int(np.argmin(np.minimum(low, high)))
  assert 2 * min(low[worst], high[worst]) * hits.size > ALPHA, (
      worst, hits[worst] / draws, rates[worst]
  )


def check_pairs(tree, stages, drawn, draws):
  """Check counts of leaves and pairs of leaves; `drawn` from `included`."""
  paths, drawn = leaves(tree), drawn.astype(int)
  exact = [[pair(stages, one, two) for two in paths] for one in paths]
  check_frequencies(drawn.T @ drawn, draws, exact)
  return exact


def choices(stage, n):
  """(children, probability) of every way in which a stage can choose."""
  if isinstance(stage, P):
    p = fractions.Fraction(stage.p)
    for k in range(n + 1):
      for chosen in itertools.combinations(range(n), k):
        yield chosen, p**k * (1 - p) ** (n - k)
  else:
    k = n if isinstance(stage, A) else min(n, stage.n)
    for chosen in itertools.combinations(range(n), k):
      yield chosen, fractions.Fraction(1, math.comb(n, k))


def subsets(tree, stages, name=()):
  """dict: set of leaf paths -> exact probability, by enumeration."""
  last = len(stages) == 1
  children = range(tree) if last else tree
  below = [
      {frozenset([(*name, i)]): fractions.Fraction(1)}
      if last else subsets(child, stages[1:], (*name, i))
      for i, child in enumerate(children)
  ]
  result = {}
  for chosen, probability in choices(stages[0], len(below)):
    for parts in itertools.product(*(below[i].items() for i in chosen)):
      drawn = frozenset().union(*(leaf for leaf, _ in parts))
      weight = probability * math.prod(w for _, w in parts)
      result[drawn] = result.get(drawn, 0) + weight
  return result


def check_subsets(tree, stages, drawn, draws):
  """Check how often each set of leaves was drawn against its probability.

  Args:
    tree: nested sizes.
    stages: of the plan.
    drawn: bool[draws, leaves], from `included`.
    draws: the number of samples.
  """
  exact = subsets(tree, stages)
  assert sum(exact.values()) == 1
  paths = [path for path, _ in leaves(tree)]
  words = {sum(1 << paths.index(x) for x in s): w for s, w in exact.items()}
  found = drawn @ (1 << np.arange(len(paths)))
  codes = np.asarray(sorted(words))
  assert np.isin(found, codes).all()
  observed = np.bincount(np.searchsorted(codes, found), minlength=codes.size)
  expected = np.asarray([float(words[c]) for c in codes]) * draws
  # Rare subsets are lumped, so that chi-square's approximation holds.
  rare = expected < 10
  if rare.any():
    observed = np.append(observed[~rare], observed[rare].sum())
    expected = np.append(expected[~rare], expected[rare].sum())
  assert stats.chisquare(observed, expected).pvalue > ALPHA
