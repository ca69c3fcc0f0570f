"""What `sample` draws against Algorithm 1 worked out by hand.

The oracle is written from the definition, with fractions: it enumerates every
way in which the stages can choose, and shares no code with the sampler.
"""

import fractions
import functools
import itertools
import math

import jax
import numpy as np
import pytest
from scipy import stats

from episodic_dp import plan
from episodic_dp import sampling

ALPHA = 1e-6
DRAWS = 40_000
TREE = [[4, 2, 3], [4, 5]]  # Example 3.1 of the paper.
F, P, A = plan.FixedSize, plan.Poisson, plan.All
LEVELS = ("alphabet", "character", "drawing")


def _hierarchy(tree=TREE):
  return plan.Hierarchy.from_sizes(tree, levels=LEVELS)


def _draw(hierarchy, p, draws=DRAWS):
  """indices and mask of many steps of one run."""
  steps = np.arange(draws, dtype=np.int32)
  key = jax.random.key(20221)
  many = jax.jit(
      jax.vmap(lambda step: sampling.sample(key, hierarchy, p, step))
  )
  return tuple(np.asarray(a) for a in many(steps))


@functools.cache
def _draw_tree(stages):
  """Draws from Example 3.1, shared between tests."""
  return _draw(_hierarchy(), plan.SamplingPlan(stages))


def _included(indices, mask, leaves):
  """bool[draws, leaves]; also checks that nothing is drawn twice."""
  draws = indices.shape[0]
  counts = np.zeros((draws, leaves), int)
  rows = np.broadcast_to(
      np.arange(draws).reshape(-1, *[1] * (indices.ndim - 1)), indices.shape
  )
  np.add.at(counts, (rows[mask], indices[mask]), 1)
  assert counts.max() <= 1
  return counts.astype(bool)


def _leaves(tree):
  """(path of child numbers, path of family sizes) of each leaf."""
  result = []
  for a, alphabet in enumerate(tree):
    for c, size in enumerate(alphabet):
      for d in range(size):
        result.append(((a, c, d), (len(tree), len(alphabet), size)))
  return result


def _rate(stage, n):
  if isinstance(stage, P):
    return stage.p
  return 1.0 if isinstance(stage, A) else min(1.0, stage.n / n)


def _both(stage, n):
  """Probability that two given children of n are both drawn."""
  if isinstance(stage, P):
    return stage.p**2
  if isinstance(stage, A) or stage.n >= n:
    return 1.0
  return stage.n * (stage.n - 1) / (n * (n - 1))


def _pair(stages, one, two):
  """Probability that two given leaves are both drawn (or one, if equal)."""
  result, parted = 1.0, False
  for stage, i, n, j, m in zip(stages, one[0], one[1], two[0], two[1]):
    if parted:
      result *= _rate(stage, n) * _rate(stage, m)
    elif i == j:
      result *= _rate(stage, n)
    else:
      result *= _both(stage, n)
      parted = True
  return result


def _check_frequencies(hits, draws, rates):
  """Every count against its binomial, at ALPHA for all of them together."""
  hits, rates = np.asarray(hits).ravel(), np.asarray(rates).ravel()
  low = stats.binom.cdf(hits, draws, rates)
  high = stats.binom.sf(hits - 1, draws, rates)
  worst = int(np.argmin(np.minimum(low, high)))
  assert 2 * min(low[worst], high[worst]) * hits.size > ALPHA, (
      worst, hits[worst] / draws, rates[worst]
  )


PLANS = [
    (F(1), F(1), F(1)),
    (F(2), F(2), F(1)),
    (F(2), F(2), F(2)),
    (F(1), P(0.3), A()),
    (P(0.7), P(0.6), P(0.5)),
    (A(), F(2), P(0.25)),
]


# Each plan is a program that is compiled; some of them are in `make test-slow`.
SOME = [PLANS[1], PLANS[3], *(
    pytest.param(p, marks=pytest.mark.slow)
    for p in PLANS if p not in (PLANS[1], PLANS[3])
)]  # fmt: skip


@pytest.mark.parametrize("stages", SOME, ids=str)
def test_inclusion_of_leaves_and_of_pairs(stages):
  hierarchy, p = _hierarchy(), plan.SamplingPlan(stages)
  indices, mask = _draw_tree(stages)
  assert indices.shape[1:] == plan.capacities(hierarchy, p)
  included = _included(indices, mask, 18).astype(float)
  paths = _leaves(TREE)
  exact = [[_pair(stages, one, two) for two in paths] for one in paths]
  _check_frequencies((included.T @ included).astype(int), DRAWS, exact)
  rate = plan.inclusion_rate(hierarchy, p, "drawing")
  assert rate == pytest.approx(max(np.diag(exact)))


@pytest.mark.parametrize("stages", PLANS[:2], ids=str)
def test_inclusion_of_characters_and_alphabets(stages):
  """Units above the leaves; one leaf at least shows that they were chosen."""
  hierarchy, p = _hierarchy(), plan.SamplingPlan(stages)
  indices, mask = _draw_tree(stages)
  included = _included(indices, mask, 18)
  for level, name in enumerate(LEVELS[:2]):
    unit = hierarchy.parents(2)
    for k in range(1, level, -1):
      unit = hierarchy.parents(k)[unit]
    chosen = [included[:, unit == u].any(axis=1).sum() for u in np.unique(unit)]
    rates = {}
    for u, (_, sizes) in zip(unit, _leaves(TREE)):
      rates[u] = math.prod(
          _rate(stages[k], sizes[k]) for k in range(level + 1)
      )
    _check_frequencies(chosen, DRAWS, list(rates.values()))
    assert plan.inclusion_rate(hierarchy, p, name) == pytest.approx(
        max(rates.values())
    )


def _choices(stage, n):
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


def _subsets(tree, stages, name=()):
  """dict: set of leaf paths -> exact probability, by enumeration."""
  last = len(stages) == 1
  children = range(tree) if last else tree
  below = [
      {frozenset([(*name, i)]): fractions.Fraction(1)}
      if last else _subsets(child, stages[1:], (*name, i))
      for i, child in enumerate(children)
  ]
  result = {}
  for chosen, probability in _choices(stages[0], len(below)):
    for parts in itertools.product(*(below[i].items() for i in chosen)):
      leaves = frozenset().union(*(leaf for leaf, _ in parts))
      weight = probability * math.prod(w for _, w in parts)
      result[leaves] = result.get(leaves, 0) + weight
  return result


@pytest.mark.parametrize(
    "stages", [*PLANS[:3], (P(0.5), P(0.25), F(1))], ids=str
)
def test_subsets_are_as_likely_as_in_algorithm_1(stages):
  exact = _subsets(TREE, stages)
  assert sum(exact.values()) == 1
  indices, mask = _draw_tree(stages)
  paths = [path for path, _ in _leaves(TREE)]
  words = {sum(1 << paths.index(x) for x in s): w for s, w in exact.items()}
  drawn = _included(indices, mask, 18) @ (1 << np.arange(18))
  codes = np.asarray(sorted(words))
  assert np.isin(drawn, codes).all()
  observed = np.bincount(np.searchsorted(codes, drawn), minlength=codes.size)
  expected = np.asarray([float(words[c]) for c in codes]) * DRAWS
  # Rare subsets are lumped, so that chi-square's approximation holds.
  rare = expected < 10
  if rare.any():
    observed = np.append(observed[~rare], observed[rare].sum())
    expected = np.append(expected[~rare], expected[rare].sum())
  assert stats.chisquare(observed, expected).pvalue > ALPHA


def test_every_order_of_all_is_equally_likely():
  hierarchy = plan.Hierarchy.from_sizes(4, levels=("image",))
  indices, mask = _draw(hierarchy, plan.SamplingPlan((A(),)))
  assert mask.all()
  orders, counts = np.unique(indices, axis=0, return_counts=True)
  assert len(orders) == 24
  assert stats.chisquare(counts).pvalue > ALPHA


def test_order_is_uniform_given_the_subset_at_every_stage():
  indices, _ = _draw_tree((F(2), F(2), F(2)))
  character = _hierarchy().parents(2)[indices[..., 0]]
  for first in (
      character[:, 0, 0] < character[:, 1, 0],
      character[:, :, 0] < character[:, :, 1],
      indices[..., 0] < indices[..., 1],
  ):
    # Columns are independent coins, so that one binomial holds for all.
    _check_frequencies([first.sum()], first.size, [0.5])
  # Also where the number drawn is random.
  indices, mask = _draw(
      plan.Hierarchy.from_sizes(6, levels=("image",)),
      plan.SamplingPlan((P(0.5),)),
  )
  three = mask.sum(axis=1) == 3
  ranks = np.argsort(indices[three][:, :3], axis=1)
  orders, counts = np.unique(ranks, axis=0, return_counts=True)
  assert len(orders) == 6
  assert stats.chisquare(counts).pvalue > ALPHA


def test_tasks_drawn_independently():
  """Same class in two tasks: as often as for independent draws."""
  hierarchy = plan.Hierarchy.from_sizes([2, 2, 2, 2], levels=("c", "image"))
  episode = plan.Episode(1, 1, 1, form="independent", tasks=2)
  p = plan.SamplingPlan((F(1), F(2)), episode)
  indices, mask = _draw(hierarchy, p)
  assert indices.shape[1:] == (2, 1, 2) and mask.all()
  cells = np.bincount(
      indices[:, 0, 0, 0] * 8 + indices[:, 1, 0, 0], minlength=64
  )
  assert stats.chisquare(cells).pvalue > ALPHA


def test_steps_are_independent():
  hierarchy = plan.Hierarchy.from_sizes(8, levels=("image",))
  indices, _ = _draw(hierarchy, plan.SamplingPlan((F(1),)))
  now, after = indices[:-1, 0], indices[1:, 0]
  table = np.bincount(now * 8 + after, minlength=64)
  assert stats.chisquare(table).pvalue > ALPHA


def test_poisson_counts_of_participants():
  hierarchy = plan.Hierarchy.regular((400_000,), levels=("participant",))
  _, mask = _draw(hierarchy, plan.SamplingPlan((P(0.004),)), draws=2000)
  counts = mask.sum(axis=1)
  edges = stats.binom.ppf(np.linspace(0.05, 0.95, 19), 400_000, 0.004)
  cdf = np.concatenate([[0], stats.binom.cdf(edges, 400_000, 0.004), [1]])
  observed = np.bincount(np.searchsorted(edges, counts), minlength=20)
  assert stats.chisquare(observed, np.diff(cdf) * 2000).pvalue > ALPHA


def test_empty_and_short_units():
  tree = [[0, 1, 5], [], [3]]
  stages = (F(2), P(0.5), F(2))
  hierarchy = _hierarchy(tree)
  p = plan.SamplingPlan(stages, allow_short_units=True)
  indices, mask = _draw(hierarchy, p)
  included = _included(indices, mask, 9).astype(float)
  paths = _leaves(tree)
  exact = [[_pair(stages, one, two) for two in paths] for one in paths]
  _check_frequencies((included.T @ included).astype(int), DRAWS, exact)
