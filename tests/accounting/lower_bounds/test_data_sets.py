"""The laws of a step's sum, against every sample of small hierarchies."""

import math

import numpy as np
import pytest

from episodic_dp import plan
from episodic_dp.accounting.lower_bounds import data_sets
from episodic_dp.accounting.lower_bounds import paths
from episodic_dp.accounting.reference import exact
from episodic_dp.accounting.reference import worst_case

LEVELS = ("hospital", "patient", "record")


class Gradients:
  """The gradients of a data set, unit by unit, from the drawn trees alone."""

  def __init__(self, hierarchy, stages, clip, level, unit, values):
    self.hierarchy, self.stages, self.clip = hierarchy, stages, clip
    self.level, self.values = level, values
    self.root = exact.tree(hierarchy)
    self.path = [
        worst_case.ancestor(hierarchy, level, unit, j) for j in range(level + 1)
    ]

  def of(self, node):
    """The gradient of a drawn clip unit."""
    leaves = [
        leaf
        for leaf in exact.clip_units(node, self.hierarchy.depth - 1)
        if self.looked_at(leaf)
    ]
    if not leaves:
      return 0.0
    up = [
        worst_case.ancestor(self.hierarchy, node[0], node[1], j)
        for j in range(node[0] + 1)
    ]
    for j in range(min(self.level, self.clip) + 1):
      if up[j] != self.path[j]:
        if not self.values.beside[j]:
          return 0.0
        return self.values.beside[j] * self.share(up, j)
    if self.level <= self.clip:
      return self.values.own * self.share(up, self.level)
    seen = max(
        j
        for j in range(self.clip, self.level + 1)
        for leaf in leaves
        if self.above(leaf, j) == self.path[j]
    )
    if seen == self.level:
      return float(self.values.own)
    return float(self.values.within[seen - self.clip])

  def above(self, node, level):
    return worst_case.ancestor(self.hierarchy, node[0], node[1], level)

  def looked_at(self, leaf):
    """Not below siblings by FixedSize that are not equally often seen."""
    for j in range(self.clip + 1, self.level + 1):
      up = self.above(leaf, j)
      if up != self.path[j]:
        others = [
            n for n in self.family(j, self.path[j]) if n[1] != self.path[j]
        ]
        seen = {round(self.seen(n), 12) for n in others}
        stage = self.stages[j]
        differ = len(seen) > 1 and not (
            isinstance(stage, plan.Poisson) and stage.p < 1
        )
        return not differ and all(map(self.known, others))
    return True

  def seen(self, node):
    return sum(
        p
        for p, s in exact.samples(node, self.stages)
        if exact.clip_units(s, self.hierarchy.depth - 1)
    )

  def known(self, node):
    """Whether what is drawn in it is simple enough to be computed."""
    if node[0] == self.hierarchy.depth - 1:
      return True
    alike = len({round(self.seen(c), 12) for c in node[2]}) <= 1
    fixed = isinstance(self.stages[node[0] + 1], plan.FixedSize)
    return (alike or not fixed) and all(map(self.known, node[2]))

  def share(self, up, j):
    """Of a clip unit under a sibling, all of which contribute the same."""
    if self.hierarchy.sizes is not None:
      return 1.0
    node = self.find(j, up[j])
    sure = self.sure(node)
    if sure is None:
      return 1.0
    total = float(sure)
    if j < self.level or self.path[j] != up[j]:
      total = min(
          self.sure(n) for n in self.family(j, up[j]) if n[1] != self.path[j]
      )
    for below in range(j + 1, self.clip + 1):
      children = node[2]
      stage = self.stages[below]
      if isinstance(stage, plan.FixedSize) and len(children) > stage.n:
        total /= stage.n
      else:
        child = self.find(below, up[below])
        total *= self.sure(child) / sum(map(self.sure, children))
      node = self.find(below, up[below])
    return total

  def find(self, level, unit):
    return next(n for n in exact.clip_units(self.root, level) if n[1] == unit)

  def family(self, level, unit):
    above = worst_case.ancestor(self.hierarchy, level, unit, level - 1)
    parent = self.root if level == 0 else self.find(level - 1, above)
    return parent[2]

  def sure(self, node):
    """Clip units that are drawn under a unit; None where it is random."""
    if node[0] == self.clip:
      return 1 if self.surely_seen(node) else None
    below = [self.sure(child) for child in node[2]]
    stage = self.stages[node[0] + 1]
    if None in below:
      return None
    if isinstance(stage, plan.Poisson) and stage.p < 1:
      return None if any(below) else 0
    if isinstance(stage, plan.FixedSize) and len(below) > stage.n:
      return stage.n * min(below)
    return sum(below)

  def surely_seen(self, node):
    drawn = exact.samples(node, self.stages)
    return all(
        exact.clip_units(s, self.hierarchy.depth - 1) for _, s in drawn
    )


def random_hierarchy(rng, depth):
  def sizes(levels):
    if levels == 1:
      return int(rng.integers(1, 4))
    return [sizes(levels - 1) for _ in range(rng.integers(1, 4))]

  if rng.random() < 0.5:
    return plan.Hierarchy.regular(
        rng.integers(1, 4, depth).tolist(), levels=LEVELS[:depth]
    )
  return plan.Hierarchy.from_sizes(sizes(depth), levels=LEVELS[:depth])


def random_stage(rng):
  kind = rng.integers(3)
  if kind == 0:
    return plan.FixedSize(int(rng.integers(1, 4)))
  return plan.Poisson(float(rng.uniform(0.1, 1))) if kind == 1 else plan.All()


def law_of(drawn, clip, gradient):
  means, weights = exact.mixture(drawn, clip, gradient)
  assert np.allclose(means, np.round(means)), means
  return {
      int(m): float(w) for m, w in zip(np.round(means), weights) if w > 1e-15
  }


def as_dict(law):
  return {
      law.first + i: float(w) for i, w in enumerate(law.probs) if w > 1e-15
  }


def close(a, b):
  return all(
      math.isclose(a.get(x, 0.0), b.get(x, 0.0), abs_tol=1e-12)
      for x in {*a, *b}
  )


def test_laws_of_random_trees_are_those_of_their_samples():
  for seed in range(5, 35):
    random_tree(seed)


@pytest.mark.slow  # A minute of enumeration.
def test_laws_of_many_random_trees_are_those_of_their_samples():
  for seed in range(100, 500):
    random_tree(seed)


def random_tree(seed):
  """Compare some data sets for one random tree."""
  rng = np.random.default_rng(seed)
  depth = int(rng.integers(1, 4))
  h = random_hierarchy(rng, depth)
  stages = tuple(random_stage(rng) for _ in range(depth))
  p = plan.SamplingPlan(stages, allow_short_units=True)
  clip, level = rng.integers(0, depth, 2)
  release = plan.Release(
      h, p, plan.Mechanism(clip_unit=LEVELS[clip], noise_multiplier=1.0)
  )
  if exact.num_samples(exact.tree(h), stages) > 3000:
    return
  for path in list(paths.paths(release, level, clip))[:2]:
    if path.own.sure == 0 and level <= clip:
      continue  # No gradient at all.
    larger, smaller = exact.pair(h, p, level, path.unit)
    found = list(data_sets.choices(path, clip))
    for i in rng.permutation(len(found))[:4]:
      gradients = Gradients(h, stages, clip, level, path.unit, found[i])
      got = data_sets.sums(path, clip, found[i], tasks=False)
      for law, drawn in zip(got, (larger, smaller)):
        want = law_of(drawn, clip, gradients.of)
        assert close(as_dict(law), want), (found[i], as_dict(law), want)
