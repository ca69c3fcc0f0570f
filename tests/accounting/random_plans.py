"""Random plans and gradients that are small enough to enumerate."""

from collections.abc import Callable, Iterator, Sequence
import functools
from typing import NamedTuple

import numpy as np

from episodic_dp import plan
from tests.oracles import exact
from tests.oracles import worst_case

LEVELS = ("hospital", "patient", "record")
ALL = plan.All()
BOTH = ("remove", "add")
ANY = (*BOTH, "replace")  # Relations.
MOST = 150  # Draws of a plan: more take too long, and show no more.

Pair = tuple[exact.Mixture, exact.Mixture]
Gradient = Callable[..., float]


class Unit(NamedTuple):
  """The sums of a step (or pass) with some units, without them or changed.

  Attributes:
    places: the units of the case's level that leave together.
    sums: (without them, gradient) -> the sums.
    gradients: the worst that are known, and random ones.
    touches: whether a gradient's arguments hold a unit or lie in one.
  """

  places: Sequence[int]
  sums: Callable[[bool, Gradient], exact.Mixture]
  gradients: Sequence[Gradient]
  touches: Callable[..., bool]

  def pairs(self, *, replaced: bool = False) -> Iterator[Pair]:
    """Yield outputs with the units, and without them or with others there."""
    touches = functools.cache(self.touches)
    for gradient in map(functools.cache, self.gradients):

      def changed(*node, gradient=gradient):
        value = gradient(*node)
        return -value if touches(*node) else value

      other = changed if replaced else gradient
      pair = self.sums(False, gradient), self.sums(not replaced, other)
      if max(len(means) for means, _ in pair) <= 2 * MOST:
        yield pair


class Case(NamedTuple):
  """A plan and all that is compared of it.

  Attributes:
    release: the plan.
    level: the privacy unit.
    units: of the level.
    tight: the relations whose largest divergence is the bound.
    steps: what is seen, of a pass; 1 else.
  """

  release: plan.Release
  level: str
  units: Sequence[Unit]
  tight: Sequence[str] = ()
  steps: int = 1


class TryAgainError(Exception):
  """A plan that has no guarantee, or too many draws."""


def stage_of(rng, *, fixed=3):
  which = rng.integers(3)
  if which == 0:
    return plan.FixedSize(int(rng.integers(1, fixed + 1)))
  return (
      plan.Poisson(float(rng.choice([0.05, 0.3, 0.6, 0.9, 1.0])))
      if which == 1
      else ALL
  )


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


def touching(h, k, places):
  """Return whether a drawn unit holds one of the places, or lies in one."""
  return lambda *node: any(
      worst_case.by_place(h, k, unit, 0.0, 0.0, 0.0)(node[-1]) == 1.0
      for unit in places
  )


def trees(h, k, places):
  """Return the whole tree, and that without some units of level k."""
  smaller = exact.tree(h)
  for unit in places:
    smaller = exact.without(smaller, k, unit)
  return exact.tree(h), smaller


def tree_unit(release, k, places, gradients, *, most=MOST) -> Unit:
  """Describe units of a tree, whose draws are enumerated."""
  h, clip, stages = release.hierarchy, release.clip_level, release.plan.stages
  nodes = trees(h, k, places)
  if max(exact.num_samples(node, stages) for node in nodes) > most:
    raise TryAgainError
  drawn = [exact.samples(node, stages, clip=clip) for node in nodes]
  return Unit(
      places,
      lambda less, gradient: exact.mixture(drawn[less], clip, gradient),
      list(gradients),
      touching(h, k, places),
  )


def hierarchy_of(sizes, levels=LEVELS):
  if not np.sum([np.sum(s) for s in sizes]):
    raise TryAgainError
  return plan.Hierarchy.from_sizes(sizes, levels=levels)


def check_units(h, k):
  if not h.num_units(k):
    raise TryAgainError
  return range(h.num_units(k))


def refuse_unproved(release, level):
  try:
    release.check_level(level)
  except plan.UnsoundPlanError as e:
    raise TryAgainError from e
