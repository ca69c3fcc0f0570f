"""Random plans and gradients that are small enough to enumerate."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from episodic_dp import plan
from tests.oracles import exact

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


def refuse_unproved(release, level):
  try:
    release.check_level(level)
  except plan.UnsoundPlanError as e:
    raise TryAgainError from e
