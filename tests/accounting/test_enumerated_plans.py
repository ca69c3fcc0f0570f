"""Random plans of every kind, each enumerated: no bound is below the truth.

A plan is drawn from `SEED` and its number, which a failure names. The truth is
the divergence of one step (of a pass of two, for one kind) for gradients on a
line, random ones and the worst that are known. Where a kind is said to be tight
(`accounting/README.md`, "Where one step is the truth"), the largest of them is
within 1 % of the bound.
"""

from collections.abc import Callable, Iterator
import dataclasses
import itertools
import math
from typing import NamedTuple

import numpy as np
import pytest
from scipy import special

from episodic_dp import plan
from episodic_dp.accounting import run_phases
from episodic_dp.accounting.profiles import amplification
from episodic_dp.accounting.profiles import unit_profile
from episodic_dp.accounting.reference import exact
from episodic_dp.accounting.reference import worst_case

SEED, PLANS, QUICK = 14, 2000, 60
LEVELS = ("hospital", "patient", "record")
ALL = plan.All()
MOST = 150  # Draws of a plan: more take too long, and show no more.

Pair = tuple[exact.Mixture, exact.Mixture]


class Case(NamedTuple):
  """A plan and all that is compared of it.

  Attributes:
    release: the plan.
    level: the privacy unit.
    pairs: outputs with and without one unit, for some units and gradients.
    tight: whether the largest divergence is the bound.
    steps: what is seen, of a pass; 1 else.
  """

  release: plan.Release
  level: str
  pairs: Iterator[Pair]
  tight: bool = False
  steps: int = 1


class TryAgainError(Exception):
  """A plan that has no guarantee, or too many draws."""


# What is drawn ----------------------------------------------------------------


def stage_of(rng, *, fixed=3):
  which = rng.integers(3)
  if which == 0:
    return plan.FixedSize(int(rng.integers(1, fixed + 1)))
  if which == 1:
    return plan.Poisson(float(rng.choice([0.05, 0.3, 0.6, 0.9, 1.0])))
  return ALL


def full_stage(rng):
  return ALL if rng.integers(2) else plan.FixedSize(9)


def release_of(hierarchy, stages, clip, rng, episode=None, **noise):
  z = float(rng.choice([0.6, 1.0, 2.5]))
  return plan.Release(
      hierarchy,
      plan.SamplingPlan(stages, episode, allow_short_units=True),
      plan.Mechanism(clip_unit=clip, noise_multiplier=z, **noise),
  )


def random_gradient(rng, **values):
  """A function of all that was drawn; `values` are what the table begins as."""
  table: dict = dict(values)
  ends = rng.integers(2)  # Numbers at the ends of the range go further.

  def gradient(*node):
    value = rng.choice([-1.0, 1.0]) if ends else rng.uniform(-1, 1)
    return table.setdefault(node, float(value))

  return gradient


def tree_pairs(release, k, units, gradients) -> Iterator[Pair]:
  """Outputs of trees; gradients(unit) -> gradients."""
  h, clip = release.hierarchy, release.clip_level
  root = exact.tree(h)
  for node in [root, *(exact.without(root, k, u) for u in units)]:
    if exact.num_samples(node, release.plan.stages) > MOST:
      raise TryAgainError
  for unit in units:
    drawn = exact.pair(h, release.plan, k, unit, clip=clip)
    for gradient in gradients(unit):
      yield tuple(exact.mixture(d, clip, gradient) for d in drawn)


def hierarchy_of(sizes, levels=LEVELS):
  if not np.sum([np.sum(s) for s in sizes]):
    raise TryAgainError
  return plan.Hierarchy.from_sizes(sizes, levels=levels)


def check_units(h, k):
  if not h.num_units(k):
    raise TryAgainError
  return range(h.num_units(k))


# Kinds of plans ---------------------------------------------------------------


def tree(rng) -> Case:
  """Any tree, any stages; sizes may be 0."""
  if rng.integers(2):
    sizes = rng.integers(0, 4, rng.integers(1, 4)).tolist()
    levels = LEVELS[1:]
  else:
    sizes = [
        rng.integers(0, 3, rng.integers(0, 4)).tolist()
        for _ in range(rng.integers(1, 4))
    ]
    levels = LEVELS
  h = hierarchy_of(sizes, levels)
  k = int(rng.integers(h.depth))
  unit = int(rng.choice(check_units(h, k)))
  release = release_of(
      h, tuple(stage_of(rng) for _ in levels), str(rng.choice(levels)), rng
  )
  worst = list(worst_case.gradients(h, k, unit))
  chosen = [worst[i] for i in rng.permutation(len(worst))[:3]]

  def empty_apart(node):  # With t, though it may hold nothing.
    empty = node[0] < h.depth - 1 and not node[2]
    return 1.0 if empty else chosen[0](node)

  return Case(
      release, levels[k],
      tree_pairs(
          release, k, [unit],
          lambda _: [*chosen, empty_apart, *map(random_gradient, [rng] * 2)],
      ),
  )


def worst_of_all(release, k) -> Iterator[Pair]:
  h = release.hierarchy
  return tree_pairs(
      release, k, check_units(h, k),
      lambda unit: worst_case.gradients(h, k, unit),
  )


def inside_clip_units(rng) -> Case:
  """Nothing sampled above the clip units: what lies inside them is tight."""
  clip = int(rng.integers(2))
  k = clip + 1 if clip else int(rng.integers(1, 3))
  own, last = stage_of(rng), stage_of(rng)
  low = 1
  if k == 1 and isinstance(own, plan.FixedSize):
    last = full_stage(rng)  # A class that is exchanged is not empty.
  elif k == 2 and not clip:
    low, own, last = 2, stage_of(rng), plan.FixedSize(int(rng.integers(1, 3)))
  sizes = [
      rng.integers(low, 4, rng.integers(1, 3)).tolist()
      for _ in range(rng.integers(1, 3))
  ]
  first = full_stage(rng) if clip else stage_of(rng)
  h = hierarchy_of(sizes)
  release = release_of(h, (first, own, last), LEVELS[clip], rng)
  return Case(release, LEVELS[k], worst_of_all(release, k), tight=True)


def whole_clusters(rng) -> Case:
  """Units with all their clip units, the only stage that is sampled."""
  clip = int(rng.integers(3))
  k = int(rng.integers(clip + 1))
  own = stage_of(rng)
  exchanged = isinstance(own, plan.FixedSize)
  stages = [
      full_stage(rng) if j < k else own if j == k
      # How many clip units take a place is no chance; the rest is any.
      else full_stage(rng) if j <= clip and exchanged else stage_of(rng)
      for j in range(3)
  ]
  shape = [int(n) for n in rng.integers(1, 4, 3)]
  sizes = [[shape[2]] * shape[1] for _ in range(shape[0])]
  if k == 0 and rng.integers(2):  # One is larger, the others are alike.
    sizes[0] = [shape[2]] * (shape[1] + int(rng.integers(1, 3)))
  h = hierarchy_of(sizes)
  release = release_of(h, tuple(stages), LEVELS[clip], rng)
  return Case(release, LEVELS[k], worst_of_all(release, k), tight=True)


def records_of_clusters(rng) -> Case:
  """Records in patients that a hospital brings all at once."""
  first = stage_of(rng, fixed=2)
  patients = int(rng.integers(1, 3))
  sizes = [
      rng.integers(1, 3, patients).tolist() for _ in range(rng.integers(1, 4))
  ]
  if isinstance(first, plan.FixedSize):  # Others that take a place are alike.
    sizes[0] += [1] * int(rng.integers(2))
  else:
    sizes[-1] = sizes[-1][:1]
  h = hierarchy_of(sizes)
  stages = (first, full_stage(rng), stage_of(rng))
  release = release_of(h, stages, "patient", rng)
  return Case(release, "record", worst_of_all(release, 2), tight=True)


def one_step_of_a_pass(rng) -> Case:
  """The first step alone: as tight as the tree."""
  case = inside_clip_units(rng)
  r = case.release
  k = r.hierarchy.level_index(case.level)
  if r.clip_level or r.hierarchy.num_units(0) > 2:
    raise TryAgainError
  first = plan.RandomAllocation(int(rng.integers(1, 4)))
  stages = (first, *r.plan.stages[1:])
  release = r.replace(plan=dataclasses.replace(r.plan, stages=stages))

  def pairs():
    root = exact.tree(r.hierarchy)
    for unit in check_units(r.hierarchy, k):
      drawn = [
          [(p, s[0]) for p, s in exact.pass_samples(node, stages, clip=0)]
          for node in (root, exact.without(root, k, unit))
      ]
      for gradient in worst_case.gradients(r.hierarchy, k, unit):
        yield tuple(exact.mixture(d, 0, gradient) for d in drawn)

  return Case(release, case.level, pairs(), tight=True)


def whole_pass(rng) -> Case:
  """Two steps that use every unit once."""
  sizes = rng.integers(1, 3, rng.integers(1, 3)).tolist()
  h = hierarchy_of(sizes, LEVELS[1:])
  stages = (plan.RandomAllocation(2), stage_of(rng))
  release = release_of(h, stages, "patient", rng)
  k = int(rng.integers(2))
  unit = int(rng.integers(h.num_units(k)))
  root = exact.tree(h)
  table, worst = random_gradient(rng), list(worst_case.gradients(h, k, unit))
  chosen = worst[rng.integers(len(worst))] if rng.integers(2) else None

  def gradient(step, node):
    return chosen(node) if chosen else table(step, node)

  drawn = [
      exact.pass_samples(node, stages)
      for node in (root, exact.without(root, k, unit))
  ]
  pair = tuple(exact.pass_mixture(d, 0, gradient) for d in drawn)
  return Case(release, h.levels[k], iter([pair]), steps=2)


def copies(rng) -> Case:
  """One record (or class) that several participants hold."""
  sizes = (3, int(rng.integers(1, 3)), int(rng.integers(1, 3)))
  held = int(rng.integers(1, 4))
  k = int(rng.integers(1, 3))
  clip = int(rng.integers(3))
  h = plan.Hierarchy.regular(
      sizes, levels=LEVELS, copies=True,
      most_copies={"patient": held, "record": held},
  )
  stages = tuple(stage_of(rng) for _ in LEVELS)
  release = release_of(h, stages, LEVELS[clip], rng)
  # The same place in each: the first of the participant's.
  inside = math.prod(sizes[1 : k + 1])
  places = [i * inside for i in range(held)]
  root = smaller = exact.tree(h)
  for unit in places:
    smaller = exact.without(smaller, k, unit)
  if max(exact.num_samples(n, stages) for n in (root, smaller)) > 4 * MOST:
    raise TryAgainError
  parents = {unit // sizes[k] for unit in places}

  def adversary(near, far, node):
    mine = node[0] > k and worst_case.ancestor(h, *node[:2], k) in places
    if mine or any(exact.holds(node, k, unit) for unit in places):
      return 1.0
    if node[0] >= k - 1:
      beside = worst_case.ancestor(h, *node[:2], k - 1) in parents
    else:
      beside = any(exact.holds(node, k - 1, p) for p in parents)
    return near if beside else far

  def pairs():
    drawn = [exact.samples(n, stages, clip=clip) for n in (root, smaller)]
    near, far = rng.choice([-1.0, 0.0, 1.0], 2)
    for gradient in (
        lambda node: adversary(-1.0, -1.0, node),
        lambda node: adversary(near, far, node),
        random_gradient(rng),
    ):
      yield tuple(exact.mixture(d, clip, gradient) for d in drawn)

  return Case(release, LEVELS[k], pairs())


# Tasks ------------------------------------------------------------------------


def class_tasks(sample, episode):
  """(weight, tasks) of the orders of drawn classes; a task is a set of them."""
  orders = list(itertools.permutations(sample[2]))
  for order in orders:
    yield 1 / len(orders), [
        frozenset(order[i : i + episode.way])
        for i in range(0, len(order), episode.way)
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


def task_gradients(rng, k, unit):
  """Of a task (a set of drawn classes), by whether t or its class is in it."""
  holder = unit[0]

  def adversary(near, far, task):
    if any(exact.holds(c, k, unit[1]) for c in task):
      return 1.0
    return near if any(c[1] == holder for c in task) else far

  for far in (-1.0, 1.0):
    yield lambda task, far=far: adversary(-1.0, far, task)
  yield random_gradient(rng)


def pool(rng, form, tasks=None):
  """Classes of images, and tasks of them: a release, a level, and its units."""
  way = int(rng.integers(1, 3))
  shot, query = 1, int(rng.integers(1, 3))
  n = way * int(rng.integers(1, 3)) if form == "disjoint" else way
  sizes = rng.integers(shot + query, shot + query + 2, rng.integers(n, n + 3))
  if sizes.size > 4:
    raise TryAgainError
  h = plan.Hierarchy.from_sizes(sizes.tolist(), levels=LEVELS[1:])
  episode = plan.Episode(way, shot, query, form=form, tasks=tasks)
  stages = (plan.FixedSize(n), plan.FixedSize(shot + query))
  k = int(rng.integers(2))
  unit = int(rng.integers(h.num_units(k)))
  return h, stages, episode, k, (worst_case.ancestor(h, k, unit, 0), unit)


def to_spare(h, stages, k, unit):
  """Whether every task is filled without a unit, and the unit that costs most.

  That is an image of the class that has the fewest.
  """
  counts = h.child_counts(1)
  if h.num_units(0) <= stages[0].n or (k and counts.min() <= stages[1].n):
    return False, unit
  fewest = int(np.argmin(counts))
  return True, (fewest, int(counts[:fewest].sum())) if k else unit


def disjoint(rng) -> Case:
  """Tasks cut out of drawn classes: tight where no class is short."""
  h, stages, episode, k, unit = pool(rng, "disjoint")
  release = release_of(h, stages, "episode", rng, episode)
  refuse_unproved(release, h.levels[k])
  tight, unit = to_spare(h, stages, k, unit)
  root = exact.tree(h)

  def outputs(node, gradient):
    return summed(
        (
            sum(gradient(t) for t in tasks if can_fill(t, episode)),
            probability * weight,
        )
        for probability, sample in exact.samples(node, stages)
        for weight, tasks in class_tasks(sample, episode)
    )

  def pairs():
    for gradient in task_gradients(rng, k, unit):
      yield tuple(
          outputs(n, gradient) for n in (root, exact.without(root, k, unit[1]))
      )

  if exact.num_samples(root, stages) > MOST:
    raise TryAgainError
  return Case(release, h.levels[k], pairs(), tight=tight)


def independent(rng) -> Case:
  """Tasks that each draw from the whole pool."""
  count = int(rng.integers(1, 4))
  h, stages, episode, k, unit = pool(rng, "independent", count)
  release = release_of(h, stages, "episode", rng, episode)
  refuse_unproved(release, h.levels[k])
  tight, unit = to_spare(h, stages, k, unit)
  root = exact.tree(h)

  def outputs(node, gradient):
    one = summed(
        (gradient(task) if can_fill(task, episode) else 0.0, probability)
        for probability, sample in exact.samples(node, stages)
        for task in [frozenset(sample[2])]
    )
    total = one
    for _ in range(count - 1):
      total = summed(
          (a + b, v * w) for a, v in zip(*total) for b, w in zip(*one)
      )
    return total

  def pairs():
    for gradient in task_gradients(rng, k, unit):
      pair = tuple(
          outputs(n, gradient) for n in (root, exact.without(root, k, unit[1]))
      )
      if max(len(means) for means, _ in pair) <= MOST:
        yield pair

  # One task that draws from the pool is a disjoint one.
  return Case(release, h.levels[k], pairs(), tight=tight and count == 1)


def participants(rng) -> Case:
  """Participants that are one task each, some of which cannot be filled."""
  way, count = int(rng.integers(1, 3)), int(rng.integers(1, 4))
  sizes = [
      rng.integers(1, 4, rng.integers(1, 4)).tolist() for _ in range(count)
  ]
  h = hierarchy_of(sizes)
  episode = plan.Episode(way, 1, 1)
  stages = (stage_of(rng), plan.FixedSize(way), plan.FixedSize(2))
  release = release_of(h, stages, "hospital", rng, episode)
  k = int(rng.integers(3))
  unit = int(rng.choice(check_units(h, k)))

  def when_filled(gradient):
    return lambda node: gradient(node) if can_fill(node[2], episode) else 0.0

  gradients = [*worst_case.gradients(h, k, unit), random_gradient(rng)]
  return Case(
      release, h.levels[k],
      tree_pairs(release, k, [unit], lambda _: map(when_filled, gradients)),
  )


def sample_level(rng) -> Case:
  """Noisy inner steps; the outer gradients see the sign of what they release.

  Support and query examples are told apart, and a task's sum is a mixture over
  that sign.
  """
  h, stages, episode, k, unit = pool(rng, "disjoint")
  z_inner, steps = float(rng.choice([0.7, 2.0])), int(rng.choice([1, 4]))
  release = release_of(
      h, stages, "record", rng, episode, order="first", inner_steps=steps,
      inner_clip_norm=1.0, inner_noise_multiplier=z_inner,
  )
  refuse_unproved(release, h.levels[k])
  root, shot = exact.tree(h), episode.shot
  mine = [
      leaf for leaf in range(h.num_leaves)
      if worst_case.ancestor(h, 1, leaf, k) == unit[1]
  ]
  if exact.num_samples(root, stages) > 40 or stages[0].n > 2:
    raise TryAgainError

  def of_task(task, inner, outer):
    """(sum of outer gradients, probability) over orders and signs."""
    for order in itertools.product(
        *(list(itertools.permutations(c[2])) for c in task)
    ):
      share = 1 / math.prod(math.factorial(len(c[2])) for c in task)
      support = sum(inner(e[1]) for part in order for e in part[:shot])
      right = special.ndtr(math.sqrt(steps) * support / z_inner)
      for side, chance in ((1, right), (-1, 1 - right)):
        total = sum(outer(e[1], side) for part in order for e in part[shot:])
        yield total, share * chance

  def outputs(node, inner, outer):
    parts = []
    for probability, sample in exact.samples(node, stages):
      for weight, tasks in class_tasks(sample, episode):
        total = [(0.0, probability * weight)]
        for task in tasks:
          if can_fill(task, episode):
            one = list(of_task(sorted(task), inner, outer))
            total = [(a + b, v * w) for a, v in total for b, w in one]
        parts += total
    return summed(parts)

  def sign(example):
    return 1.0 if example in mine else -1.0

  def pairs():
    for inner, outer in (
        (lambda e: 0.0, lambda e, side: sign(e)),
        (sign, lambda e, side: 1.0 if e in mine else float(side)),
        (random_gradient(rng), random_gradient(rng)),
    ):
      yield tuple(
          outputs(n, inner, outer)
          for n in (root, exact.without(root, k, unit[1]))
      )

  return Case(release, h.levels[k], pairs())


def refuse_unproved(release, level):
  try:
    plan.check_level(release, level)
  except plan.UnsoundPlanError as e:
    raise TryAgainError from e


# All of them ------------------------------------------------------------------

KINDS: list[Callable[..., Case]] = [
    tree, inside_clip_units, copies, disjoint, whole_clusters, independent,
    tree, records_of_clusters, copies, participants, one_step_of_a_pass,
    sample_level, tree, inside_clip_units, whole_pass,
]


def drawn_case(number):
  """The plan of a number; the first that can be enumerated."""
  kind = KINDS[number % len(KINDS)]
  for attempt in itertools.count():
    rng = np.random.default_rng([SEED, number, attempt])
    try:
      case = kind(rng)
      refuse_unproved(case.release, case.level)
      return case._replace(pairs=list(case.pairs)), rng
    except TryAgainError:
      continue


def check_plan(number):
  case, rng = drawn_case(number)
  epsilon = float(rng.choice([0.0, 0.03, 0.2, 0.7]))
  alpha, z = math.exp(epsilon), float(case.release.mechanism.noise_multiplier)
  routes = run_phases.routes(
      (run_phases.Entry(case.release, case.steps),), case.level
  )
  told = f"plan {number} of seed {SEED}: {case.release}, {case.level}"
  divergence = (
      exact.plane_hockey_stick if case.steps == 2 else exact.hockey_stick
  )
  for direction in amplification.DIRECTIONS:
    bounds = [
        float(unit_profile.profile(
            phase.unit_profiles, np.asarray([epsilon]), direction
        )[0])
        for (phase,) in routes
    ]
    truth = max(
        (
            divergence(
                *(pair if direction == "remove" else pair[::-1]), alpha, z
            )
            for pair in case.pairs
        ),
        default=0.0,
    )
    slack = 1e-3 if case.steps == 2 else 1e-9  # The plane is a grid.
    assert truth <= min(bounds) * (1 + slack) + 1e-9, (told, direction)
    if case.tight:
      assert truth >= min(bounds) / 1.01 - 1e-9, (told, direction, epsilon)


@pytest.mark.parametrize("first", range(0, QUICK, 15))
def test_the_truth_lies_under_the_bound(first):
  for number in range(first, first + 15):
    check_plan(number)


@pytest.mark.slow  # About two minutes.
@pytest.mark.parametrize("first", range(QUICK, PLANS, 97))
def test_the_truth_lies_under_the_bound_of_two_thousand_plans(first):
  for number in range(first, min(first + 97, PLANS)):
    check_plan(number)
