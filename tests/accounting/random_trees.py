"""Random trees of clip units, with the outputs of neighbours."""

import dataclasses
import functools
import itertools
import math

from episodic_dp import plan
from tests.accounting import random_plans as plans
from tests.accounting import random_tasks
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

  gradients = [*chosen, empty_apart, *map(plans.random_gradient, [rng] * 2)]
  return plans.Case(
      release, levels[k], [plans.tree_unit(release, k, [unit], gradients)]
  )


def worst_of_all(release, k) -> plans.Case:
  """Each unit of a level alone: the worst of them is tight."""
  h = release.hierarchy
  units = [
      plans.tree_unit(release, k, [unit], worst_case.gradients(h, k, unit))
      for unit in plans.check_units(h, k)
  ]
  return plans.Case(release, plans.LEVELS[k], units, tight=plans.ANY)


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
  return worst_of_all(release, k)


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
  return worst_of_all(release, k)


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
  return worst_of_all(release, 2)


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

  def first_step(unit):
    passes = pass_unit(release, k, unit.places, ())

    def sums(less, gradient):
      means, weights = passes.sums(less, lambda _, node: gradient(node))
      return random_tasks.summed(zip(means[:, 0], weights))

    return unit._replace(sums=sums)

  return case._replace(release=release, units=map(first_step, case.units))


def pass_unit(release, k, places, gradients) -> plans.Unit:
  """Describe units in a pass, whose sums have a column for each step."""
  h, clip, stages = release.hierarchy, release.clip_level, release.plan.stages
  nodes = plans.trees(h, k, places)
  for node in nodes:
    draws = (stages[0].steps * exact.num_samples(u, stages) for u in node[2])
    if math.prod(draws) > 2 * plans.MOST:
      raise plans.TryAgainError
  drawn = [exact.pass_samples(node, stages, clip=clip) for node in nodes]
  return plans.Unit(
      places,
      lambda less, gradient: exact.pass_mixture(drawn[less], clip, gradient),
      gradients,
      plans.touching(h, k, places),
  )


def whole_pass(rng) -> plans.Case:
  """Two steps that use every unit once."""
  sizes = rng.integers(1, 3, rng.integers(1, 3)).tolist()
  h = plans.hierarchy_of(sizes, plans.LEVELS[1:])
  stages = (plan.RandomAllocation(2), plans.stage_of(rng))
  release = plans.release_of(h, stages, "patient", rng)
  k = int(rng.integers(2))
  unit = int(rng.integers(h.num_units(k)))
  gradients = in_every_step(worst_case.gradients(h, k, unit))
  found = pass_unit(
      release, k, [unit], [*gradients, plans.random_gradient(rng)]
  )
  tight = () if k else plans.BOTH
  return plans.Case(release, h.levels[k], [found], tight=tight, steps=2)


def copies(rng, members: int = 1) -> plans.Case:
  """Some records (or classes), each held by several participants."""
  sizes = (3, int(rng.integers(1, 3)), int(rng.integers(1, 3)))
  held = int(rng.integers(1, 4))
  k = int(rng.integers(1, 3))
  h = plan.Hierarchy.regular(
      sizes, levels=plans.LEVELS, copies=True,
      most_copies={"patient": held, "record": held},
  )
  # The same places in each: the first of the participant's.
  inside = math.prod(sizes[1 : k + 1])
  if members > inside:
    raise plans.TryAgainError
  places = [i * inside + j for i in range(held) for j in range(members)]
  return on_tree(rng, h, k, places)


def on_tree(rng, h, k, places) -> plans.Case:
  """Any plan without passes for given units of a tree."""
  stages = tuple(plans.stage_of(rng) for _ in h.levels)
  release = plans.release_of(h, stages, str(rng.choice(h.levels)), rng)
  gradients = adversaries(rng, h, k, places)
  found = plans.tree_unit(release, k, places, gradients, most=4 * plans.MOST)
  return plans.Case(release, h.levels[k], [found])


def pass_on(rng, h, k, places) -> plans.Case:
  """Any plan in passes for given units of a tree."""
  first = plan.RandomAllocation(int(rng.integers(1, 4)))
  stages = (first, *(plans.stage_of(rng) for _ in h.levels[1:]))
  release = plans.release_of(h, stages, str(rng.choice(h.levels)), rng)
  gradients = in_every_step(adversaries(rng, h, k, places))
  found = pass_unit(
      release, k, places, [*gradients, plans.random_gradient(rng)]
  )
  return plans.Case(release, h.levels[k], [found])


def in_every_step(gradients) -> list[plans.Gradient]:
  """Make gradients of (step, drawn unit) that are the same in every step."""
  return [
      lambda _, node, gradient=gradient: gradient(node)
      for gradient in gradients
  ]


def adversaries(rng, h, k, places) -> list[plans.Gradient]:
  """Make gradients by place: with the units, near them, or far."""
  mine = plans.touching(h, k, places)
  parents = {worst_case.ancestor(h, k, unit, k - 1) for unit in places}
  near = plans.touching(h, k - 1, parents if k else ())

  def by_place(values, node):
    return 1.0 if mine(node) else float(values[0 if near(node) else 1])

  others = itertools.product((-1, 0, 1), repeat=2 if k else 1)
  drawn = list(others)
  chosen = [drawn[i] for i in rng.permutation(len(drawn))[:4]]
  return [
      *(functools.partial(by_place, (*v, v[0])) for v in [drawn[0], *chosen]),
      plans.random_gradient(rng),
  ]
