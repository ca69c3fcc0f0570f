"""Random trees of clip units, with the outputs of neighbours."""

from collections.abc import Iterator
import dataclasses
import math

from episodic_dp import plan
from tests.accounting import random_plans as plans
from tests.oracles import exact
from tests.oracles import worst_case


def tree(rng) -> plans.Case:
  """Any tree, any stages; sizes may be 0."""
  if rng.integers(2):
    sizes = rng.integers(0, 4, rng.integers(1, 4)).tolist()
    levels = plans.LEVELS[1:]
  else:
    sizes = [
        rng.integers(0, 3, rng.integers(0, 4)).tolist()
        for _ in range(rng.integers(1, 4))
    ]
    levels = plans.LEVELS
  h = plans.hierarchy_of(sizes, levels)
  k = int(rng.integers(h.depth))
  unit = int(rng.choice(plans.check_units(h, k)))
  release = plans.release_of(
      h,
      tuple(plans.stage_of(rng) for _ in levels),
      str(rng.choice(levels)),
      rng,
  )
  worst = list(worst_case.gradients(h, k, unit))
  chosen = [worst[i] for i in rng.permutation(len(worst))[:3]]

  def empty_apart(node):  # With t, though it may hold nothing.
    empty = node[0] < h.depth - 1 and not node[2]
    return 1.0 if empty else chosen[0](node)

  return plans.Case(
      release, levels[k],
      plans.tree_pairs(
          release, k, [unit],
          lambda _: [
              *chosen, empty_apart, *map(plans.random_gradient, [rng] * 2)
          ],
      ),
  )


def worst_of_all(release, k) -> Iterator[plans.Pair]:
  h = release.hierarchy
  return plans.tree_pairs(
      release, k, plans.check_units(h, k),
      lambda unit: worst_case.gradients(h, k, unit),
  )


def inside_clip_units(rng) -> plans.Case:
  """Nothing sampled above the clip units: what lies inside them is tight."""
  clip = int(rng.integers(2))
  k = clip + 1 if clip else int(rng.integers(1, 3))
  own, last = plans.stage_of(rng), plans.stage_of(rng)
  low = 1
  if k == 1 and isinstance(own, plan.FixedSize):
    last = plans.full_stage(rng)  # A class that is exchanged is not empty.
  elif k == 2 and not clip:
    low, own = 2, plans.stage_of(rng)
    last = plan.FixedSize(int(rng.integers(1, 3)))
  sizes = [
      rng.integers(low, 4, rng.integers(1, 3)).tolist()
      for _ in range(rng.integers(1, 3))
  ]
  first = plans.full_stage(rng) if clip else plans.stage_of(rng)
  h = plans.hierarchy_of(sizes)
  release = plans.release_of(h, (first, own, last), plans.LEVELS[clip], rng)
  pairs = worst_of_all(release, k)
  return plans.Case(release, plans.LEVELS[k], pairs, tight=True)


def whole_clusters(rng) -> plans.Case:
  """Units with all their clip units, the only stage that is sampled."""
  clip = int(rng.integers(3))
  k = int(rng.integers(clip + 1))
  own = plans.stage_of(rng)
  exchanged = isinstance(own, plan.FixedSize)
  stages = [
      plans.full_stage(rng) if j < k else own if j == k
      # How many clip units take a place is no chance; the rest is any.
      else plans.full_stage(rng) if j <= clip and exchanged
      else plans.stage_of(rng)
      for j in range(3)
  ]
  shape = [int(n) for n in rng.integers(1, 4, 3)]
  sizes = [[shape[2]] * shape[1] for _ in range(shape[0])]
  if k == 0 and rng.integers(2):  # One is larger, the others are alike.
    sizes[0] = [shape[2]] * (shape[1] + int(rng.integers(1, 3)))
  h = plans.hierarchy_of(sizes)
  release = plans.release_of(h, tuple(stages), plans.LEVELS[clip], rng)
  pairs = worst_of_all(release, k)
  return plans.Case(release, plans.LEVELS[k], pairs, tight=True)


def records_of_clusters(rng) -> plans.Case:
  """Records in patients that a hospital brings all at once."""
  first = plans.stage_of(rng, fixed=2)
  patients = int(rng.integers(1, 3))
  sizes = [
      rng.integers(1, 3, patients).tolist() for _ in range(rng.integers(1, 4))
  ]
  if isinstance(first, plan.FixedSize):  # Others that take a place are alike.
    sizes[0] += [1] * int(rng.integers(2))
  else:
    sizes[-1] = sizes[-1][:1]
  h = plans.hierarchy_of(sizes)
  stages = (first, plans.full_stage(rng), plans.stage_of(rng))
  release = plans.release_of(h, stages, "patient", rng)
  return plans.Case(release, "record", worst_of_all(release, 2), tight=True)


def one_step_of_a_pass(rng) -> plans.Case:
  """The first step alone: as tight as the tree."""
  case = inside_clip_units(rng)
  r = case.release
  k = r.hierarchy.level_index(case.level)
  if r.clip_level or r.hierarchy.num_units(0) > 2:
    raise plans.TryAgainError
  first = plan.RandomAllocation(int(rng.integers(1, 4)))
  stages = (first, *r.plan.stages[1:])
  release = r.replace(plan=dataclasses.replace(r.plan, stages=stages))

  def pairs():
    root = exact.tree(r.hierarchy)
    for unit in plans.check_units(r.hierarchy, k):
      drawn = [
          [(p, s[0]) for p, s in exact.pass_samples(node, stages, clip=0)]
          for node in (root, exact.without(root, k, unit))
      ]
      for gradient in worst_case.gradients(r.hierarchy, k, unit):
        yield tuple(exact.mixture(d, 0, gradient) for d in drawn)

  return plans.Case(release, case.level, pairs(), tight=True)


def whole_pass(rng) -> plans.Case:
  """Two steps that use every unit once."""
  sizes = rng.integers(1, 3, rng.integers(1, 3)).tolist()
  h = plans.hierarchy_of(sizes, plans.LEVELS[1:])
  stages = (plan.RandomAllocation(2), plans.stage_of(rng))
  release = plans.release_of(h, stages, "patient", rng)
  k = int(rng.integers(2))
  unit = int(rng.integers(h.num_units(k)))
  root = exact.tree(h)
  table = plans.random_gradient(rng)
  worst = list(worst_case.gradients(h, k, unit))
  chosen = worst[rng.integers(len(worst))] if rng.integers(2) else None

  def gradient(step, node):
    return chosen(node) if chosen else table(step, node)

  drawn = [
      exact.pass_samples(node, stages)
      for node in (root, exact.without(root, k, unit))
  ]
  pair = tuple(exact.pass_mixture(d, 0, gradient) for d in drawn)
  return plans.Case(release, h.levels[k], iter([pair]), steps=2)


def copies(rng) -> plans.Case:
  """One record (or class) that several participants hold."""
  sizes = (3, int(rng.integers(1, 3)), int(rng.integers(1, 3)))
  held = int(rng.integers(1, 4))
  k = int(rng.integers(1, 3))
  clip = int(rng.integers(3))
  h = plan.Hierarchy.regular(
      sizes, levels=plans.LEVELS, copies=True,
      most_copies={"patient": held, "record": held},
  )
  stages = tuple(plans.stage_of(rng) for _ in plans.LEVELS)
  release = plans.release_of(h, stages, plans.LEVELS[clip], rng)
  # The same place in each: the first of the participant's.
  inside = math.prod(sizes[1 : k + 1])
  places = [i * inside for i in range(held)]
  root = smaller = exact.tree(h)
  for unit in places:
    smaller = exact.without(smaller, k, unit)
  most = max(exact.num_samples(n, stages) for n in (root, smaller))
  if most > 4 * plans.MOST:
    raise plans.TryAgainError
  parents = {unit // sizes[k] for unit in places}

  def adversary(near, far, node):
    mine = node[0] > k and worst_case.ancestor(h, *node[:2], k) in places
    if mine or any(exact.holds(node, k, unit) for unit in places):
      return 1.0
    if node[0] >= k - 1:
      sibling = worst_case.ancestor(h, *node[:2], k - 1) in parents
    else:
      sibling = any(exact.holds(node, k - 1, p) for p in parents)
    return near if sibling else far

  def pairs():
    drawn = [exact.samples(n, stages, clip=clip) for n in (root, smaller)]
    near, far = rng.choice([-1.0, 0.0, 1.0], 2)
    for gradient in (
        lambda node: adversary(-1.0, -1.0, node),
        lambda node: adversary(near, far, node),
        plans.random_gradient(rng),
    ):
      yield tuple(exact.mixture(d, clip, gradient) for d in drawn)

  return plans.Case(release, plans.LEVELS[k], pairs())
