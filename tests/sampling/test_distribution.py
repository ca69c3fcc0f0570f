"""What `sample` draws against Algorithm 1 worked out by hand."""

import functools
import math

import jax
import numpy as np
import pytest
from scipy import stats

from episodic_dp import plan
from episodic_dp import sampling
from episodic_dp.plan import sampler_error
from tests.sampling import oracle
from tests.sampling.oracle import A
from tests.sampling.oracle import ALPHA
from tests.sampling.oracle import F
from tests.sampling.oracle import LEVELS
from tests.sampling.oracle import P
from tests.sampling.oracle import TREE

DRAWS = 40_000


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
)]


@pytest.mark.parametrize("stages", SOME, ids=str)
def test_inclusion_of_leaves_and_of_pairs(stages):
  hierarchy, p = _hierarchy(), plan.SamplingPlan(stages)
  indices, mask = _draw_tree(stages)
  assert indices.shape[1:] == sampler_error.capacities(hierarchy, p)
  included = oracle.included(indices, mask, 18)
  exact = oracle.check_pairs(TREE, stages, included, DRAWS)
  rate = plan.inclusion_rate(hierarchy, p, "drawing")
  assert rate == pytest.approx(max(np.diag(exact)))


@pytest.mark.parametrize(
    "stages", [*PLANS[:3], (P(0.5), P(0.25), F(1))], ids=str
)
def test_subsets_are_as_likely_as_in_algorithm_1(stages):
  indices, mask = _draw_tree(stages)
  oracle.check_subsets(TREE, stages, oracle.included(indices, mask, 18), DRAWS)


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
    oracle.check_frequencies([first.sum()], first.size, [0.5])
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


def test_empty_and_short_units():
  tree = [[0, 1, 5], [], [3]]
  stages = (F(2), P(0.5), F(2))
  hierarchy = _hierarchy(tree)
  p = plan.SamplingPlan(stages, allow_short_units=True)
  indices, mask = _draw(hierarchy, p)
  oracle.check_pairs(tree, stages, oracle.included(indices, mask, 9), DRAWS)


@pytest.mark.parametrize("stages", PLANS[:2], ids=str)
def test_inclusion_of_characters_and_alphabets(stages):
  """Units above the leaves; one leaf at least shows that they were chosen."""
  hierarchy, p = _hierarchy(), plan.SamplingPlan(stages)
  indices, mask = _draw_tree(stages)
  included = oracle.included(indices, mask, 18)
  for level, name in enumerate(LEVELS[:2]):
    unit = hierarchy.parents(2)
    for k in range(1, level, -1):
      unit = hierarchy.parents(k)[unit]
    chosen = [included[:, unit == u].any(axis=1).sum() for u in np.unique(unit)]
    rates = {}
    for u, (_, sizes) in zip(unit, oracle.leaves(TREE)):
      rates[u] = math.prod(
          oracle.rate(stages[k], sizes[k]) for k in range(level + 1)
      )
    oracle.check_frequencies(chosen, DRAWS, list(rates.values()))
    assert plan.inclusion_rate(hierarchy, p, name) == pytest.approx(
        max(rates.values())
    )


def test_poisson_counts_of_participants():
  hierarchy = plan.Hierarchy.regular((400_000,), levels=("participant",))
  _, mask = _draw(hierarchy, plan.SamplingPlan((P(0.004),)), draws=2000)
  counts = mask.sum(axis=1)
  edges = stats.binom.ppf(np.linspace(0.05, 0.95, 19), 400_000, 0.004)
  cdf = np.concatenate([[0], stats.binom.cdf(edges, 400_000, 0.004), [1]])
  observed = np.bincount(np.searchsorted(edges, counts), minlength=20)
  assert stats.chisquare(observed, np.diff(cdf) * 2000).pvalue > ALPHA
