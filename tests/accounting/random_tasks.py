"""Random tasks of drawn classes, with the outputs of neighbours."""

from collections.abc import Sequence
import itertools
import math

import numpy as np
from scipy import special

from episodic_dp import plan
from episodic_dp.plan import sampler_error
from tests.accounting import random_plans as plans
from tests.oracles import exact
from tests.oracles import worst_case


def in_slots(units, slots):
  """Lists of the classes below drawn units, in every order.

  Args:
    units: drawn, of one parent.
    slots: of each class stage from that of the units on; None fills up what is
      left of them.
  """
  for order in itertools.permutations(units):
    blocks = [
        in_slots(unit[2], slots[1:]) if slots[1:] else [[unit]]
        for unit in order
    ]
    for chosen in itertools.product(*blocks):
      found = [c for block in chosen for c in block]
      yield found + [None] * (math.prod(slots) - len(found))


def class_tasks(sample, slots, way):
  """(weight, tasks) of the orders of drawn classes; a task is a set of them."""
  orders = list(in_slots(sample[2], slots))
  for order in orders:
    cut = (order[i : i + way] for i in range(0, len(order), way))
    yield 1 / len(orders), [
        frozenset(task) for task in cut if None not in task
    ]


def can_fill(task, episode):
  drawn = episode.shot + episode.query
  return len(task) == episode.way and all(len(c[2]) == drawn for c in task)


def summed(weighted):
  """The mixture of (mean, weight)s."""
  weights: dict[float, float] = {}
  for mean, weight in weighted:
    mean = round(mean, 9)
    weights[mean] = weights.get(mean, 0.0) + weight
  return np.asarray(list(weights)), np.asarray(list(weights.values()))


def convolved(parts: Sequence[exact.Mixture]) -> exact.Mixture:
  """Return the sum of independent mixtures."""
  total = parts[0]
  for part in parts[1:]:
    total = summed(
        (a + b, v * w)
        for (a, v), (b, w) in itertools.product(zip(*total), zip(*part))
    )
  return total


def members_with(rng, h, k, unit, members):
  """Return a unit with others of its level."""
  if members > h.num_units(k):
    raise plans.TryAgainError
  others = [int(i) for i in rng.permutation(h.num_units(k)) if i != unit]
  return [unit, *others[: members - 1]]


def task_gradients(rng, h, k, units):
  """Make gradients of a task, by its part that is nearest to a unit."""
  # 1 where one of them is.
  places = [worst_case.by_place(h, k, u, 2.0, 3.0, 4.0) for u in units]

  def place(node):
    return min(near(node) for near in places)

  values = (-1.0, 0.0, 1.0)
  for near, far in itertools.product(values if k > 1 else (0.0,), values):
    value = {1.0: 1.0, 2.0: -1.0, 3.0: near, 4.0: far}
    yield lambda task, value=value: value[min(map(place, task))]
  yield plans.random_gradient(rng)


def pool(rng, form, tasks=None):
  """Classes of images, and tasks of them: a release, a level, and its units."""
  way = int(rng.integers(1, 3))
  shot, query = 1, int(rng.integers(1, 3))
  n = way * int(rng.integers(1, 3)) if form == "disjoint" else way
  sizes = rng.integers(shot + query, shot + query + 2, rng.integers(n, n + 3))
  if sizes.size > 4:
    raise plans.TryAgainError
  h = plan.Hierarchy.from_sizes(sizes.tolist(), levels=plans.LEVELS[1:])
  episode = plan.Episode(way, shot, query, form=form, tasks=tasks)
  stages = (plan.FixedSize(n), plan.FixedSize(shot + query))
  k = int(rng.integers(2))
  return h, stages, episode, k, int(rng.integers(h.num_units(k)))


def to_spare(h, stages, k, unit):
  """Return whether tasks are filled without a unit, and the costliest unit.

  That is an image of the class that has the fewest.
  """
  counts = h.child_counts(1)
  if h.num_units(0) <= stages[0].n or (k and counts.min() <= stages[1].n):
    return False, unit
  fewest = int(np.argmin(counts))
  return True, int(counts[:fewest].sum()) if k else unit


def tasks_touching(h, k, units):
  """Return whether a task holds one of the units, or lies in one."""
  mine = plans.touching(h, k, units)
  return lambda task: any(map(mine, task))


def cut_case(rng, release, k, units, tight=()) -> plans.Case:
  """Describe units in tasks that are cut out of classes."""
  h, stages = release.hierarchy, release.plan.stages
  episode, classes = release.plan.episode, h.depth - 1

  def sizes(node):
    return list(map(sizes, node[2])) if node[0] < classes - 1 else len(node[2])

  drawn = []
  for node in plans.trees(h, k, units):
    if exact.num_samples(node, stages) > plans.MOST:
      raise plans.TryAgainError
    own = plans.hierarchy_of(sizes(node), h.levels)
    slots = sampler_error.capacities(own, release.plan)[:classes]
    drawn.append([])
    for probability, sample in exact.samples(node, stages):
      for weight, tasks in class_tasks(sample, slots, episode.way):
        filled = [t for t in tasks if can_fill(t, episode)]
        drawn[-1].append((probability * weight, filled))
      if len(drawn[-1]) > 30 * plans.MOST:
        raise plans.TryAgainError

  def sums(less, gradient):
    return summed(
        (sum(map(gradient, tasks)), weight) for weight, tasks in drawn[less]
    )

  return case_of(rng, release, k, units, sums, tight)


def case_of(rng, release, k, units, sums, tight) -> plans.Case:
  h = release.hierarchy
  found = plans.Unit(
      units, sums, list(task_gradients(rng, h, k, units)),
      tasks_touching(h, k, units),
  )
  return plans.Case(release, h.levels[k], [found], tight=tight)


def spared(rng, form, members, tasks=None):
  """A pool's release, level, units, and whether all is filled without one."""
  h, stages, episode, k, unit = pool(rng, form, tasks)
  release = plans.release_of(h, stages, "episode", rng, episode)
  plans.refuse_unproved(release, h.levels[k])
  tight, unit = to_spare(h, stages, k, unit)
  return release, k, members_with(rng, h, k, unit, members), tight


def disjoint(rng, members: int = 1) -> plans.Case:
  """Tasks cut out of drawn classes: tight where no class is short."""
  release, k, units, tight = spared(rng, "disjoint", members)
  return cut_case(rng, release, k, units, plans.ANY if tight else ())


def groups(rng, members: int = 1) -> plans.Case:
  """Tasks cut out of the classes of several groups, which may be short."""
  if rng.integers(2):  # A few, of classes enough for several tasks.
    sizes = rng.integers(1, 5, int(rng.integers(1, 4)))
    drawn = int(rng.integers(1, 5))
  else:  # Many, of fewer classes than are to be drawn, one of them larger.
    sizes = np.repeat(int(rng.integers(1, 3)), int(rng.integers(4, 13)))
    drawn = int(sizes[0] + rng.integers(1, 4))
    sizes[0] += rng.integers(2)
  short = rng.random(int(sizes.sum())) < rng.choice([0.0, 0.1])
  images = iter(2 - short + rng.integers(2))
  h = plans.hierarchy_of([[next(images) for _ in range(n)] for n in sizes])
  stages = (
      plan.FixedSize(int(rng.integers(1, 4))),
      plan.FixedSize(drawn) if rng.integers(4) else plans.ALL,
      plan.FixedSize(2),
  )
  way = int(rng.integers(1, 5))
  try:
    release = plans.release_of(
        h, stages, "episode", rng, plan.Episode(way, 1, 1, form="disjoint")
    )
  except plan.PlanError as e:  # The classes drawn do not divide into tasks.
    raise plans.TryAgainError from e
  k = int(rng.choice([0, 0, 1, 1, 1, 2]))
  unit = int(rng.choice(plans.check_units(h, k)))
  plans.refuse_unproved(release, h.levels[k])
  units = members_with(rng, h, k, unit, members)
  return cut_case(rng, release, k, units)


def independent(rng, members: int = 1) -> plans.Case:
  """Tasks that each draw from the whole pool."""
  count = int(rng.integers(1, 4))
  release, k, units, tight = spared(rng, "independent", members, count)
  nodes = plans.trees(release.hierarchy, k, units)
  stages, episode = release.plan.stages, release.plan.episode

  def sums(less, gradient):
    one = summed(
        (gradient(task) if can_fill(task, episode) else 0.0, probability)
        for probability, sample in exact.samples(nodes[less], stages)
        for task in [frozenset(sample[2])]
    )
    return convolved([one] * count)

  # One task that draws from the pool is a disjoint one, and a primary class is
  # in every task's pool: nothing is given away by revealing that.
  attained = plans.ANY if count == 1 else plans.BOTH if not k else ()
  return case_of(rng, release, k, units, sums, attained if tight else ())


def participants(rng, members: int = 1) -> plans.Case:
  """Participants that are one task each; some cannot be filled."""
  way, count = int(rng.integers(1, 3)), int(rng.integers(1, 4))
  sizes = [
      rng.integers(1, 4, rng.integers(1, 4)).tolist() for _ in range(count)
  ]
  h = plans.hierarchy_of(sizes)
  episode = plan.Episode(way, 1, 1)
  stages = (plans.stage_of(rng), plan.FixedSize(way), plan.FixedSize(2))
  release = plans.release_of(h, stages, "hospital", rng, episode)
  k = int(rng.integers(3))
  unit = int(rng.choice(plans.check_units(h, k)))
  units = members_with(rng, h, k, unit, members)

  def when_filled(gradient):
    return lambda node: gradient(node) if can_fill(node[2], episode) else 0.0

  gradients = [*worst_case.gradients(h, k, unit), plans.random_gradient(rng)]
  if members > 1:
    gradients.append(lambda node: 1.0)  # All of them one way.
  found = plans.tree_unit(release, k, units, map(when_filled, gradients))
  return plans.Case(release, h.levels[k], [found])


def sample_level(rng, members: int = 1) -> plans.Case:
  """Noisy inner steps; the outer gradients see the sign of what they release.

  A gradient is a function of the example and that sign, 0 for support examples.
  """
  h, stages, episode, k, unit = pool(rng, "disjoint")
  z_inner, steps = float(rng.choice([0.7, 2.0])), int(rng.choice([1, 4]))
  release = plans.release_of(
      h, stages, "record", rng, episode, order="first", inner_steps=steps,
      inner_clip_norm=1.0, inner_noise_multiplier=z_inner,
  )
  plans.refuse_unproved(release, h.levels[k])
  units = members_with(rng, h, k, unit, members)
  nodes, shot = plans.trees(h, k, units), episode.shot
  mine = [
      leaf for leaf in range(h.num_leaves)
      if worst_case.ancestor(h, 1, leaf, k) in units
  ]
  if exact.num_samples(nodes[0], stages) > 40 or stages[0].n > 2:
    raise plans.TryAgainError

  def of_task(task, gradient):
    """(sum of outer gradients, probability) over orders and signs."""
    for order in itertools.product(
        *(list(itertools.permutations(c[2])) for c in task)
    ):
      share = 1 / math.prod(math.factorial(len(c[2])) for c in task)
      support = sum(gradient(e[1], 0) for part in order for e in part[:shot])
      right = special.ndtr(math.sqrt(steps) * support / z_inner)
      for side, chance in ((1, right), (-1, 1 - right)):
        total = sum(gradient(e[1], side) for part in order for e in part[shot:])
        yield total, share * chance

  def sums(less, gradient):
    parts = []
    for probability, sample in exact.samples(nodes[less], stages):
      for weight, tasks in class_tasks(sample, (stages[0].n,), episode.way):
        total = [(0.0, probability * weight)]
        for task in tasks:
          if can_fill(task, episode):
            one = list(of_task(sorted(task), gradient))
            total = [(a + b, v * w) for a, v in total for b, w in one]
        parts += total
    return summed(parts)

  def sign(example):
    return 1.0 if example in mine else -1.0

  gradients = [
      lambda e, side: abs(side) * sign(e),
      lambda e, side: float(side) or sign(e),
      lambda e, side: 0.5 * side + (0.5 if side else 1.0) * sign(e),
      lambda e, side: sign(e) if e in mine or not side else float(side),
      plans.random_gradient(rng),
  ]
  found = plans.Unit(units, sums, gradients, lambda e, side: e in mine)
  return plans.Case(release, h.levels[k], [found])
