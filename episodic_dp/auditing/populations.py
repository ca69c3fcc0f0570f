"""Make smaller populations for an audit, with the same guarantee."""

import dataclasses
import math

import numpy as np

from episodic_dp import accounting
from episodic_dp import errors
from episodic_dp import plan as plan_lib


def miniature(release: plan_lib.Release, level: str) -> plan_lib.Release:
  """Make a smaller population with the same guarantee, step for step.

  A guarantee depends on rates and distances, not on the number of primary
  units: `Poisson(0.02)` costs one of 3 participants as much as one of 8000, and
  `FixedSize(4)` of 1000 as much as `FixedSize(1)` of 250. The rates and
  distances of both are compared; where they differ the release is returned
  unchanged. A ragged hierarchy becomes the regular one with the sizes on the
  path to a unit that is drawn most often.

  Args:
    release: of a hierarchy that may be ragged; noise is needed.
    level: the privacy unit.

  Raises:
    PlanError: no noise, or a ragged hierarchy with no unit whose rates and
      distances a regular one has.
  """
  check_noise(release.mechanism)
  if release.hierarchy.sizes is None:
    release = _regular(release, level)
  sizes, plan = release.hierarchy.sizes, release.plan
  assert sizes is not None
  first, units = plan.stages[0], sizes[0]
  candidates: list[tuple[plan_lib.Stage, int]] = []
  if isinstance(first, (plan_lib.Poisson, plan_lib.RandomAllocation)):
    candidates.append((first, min(units, 3)))
  elif isinstance(first, plan_lib.FixedSize) and first.n < units:
    divisors = math.gcd(first.n, units)
    candidates += [
        (plan_lib.FixedSize(first.n // d), units // d)
        for d in range(divisors, 1, -1)
        if divisors % d == 0
    ]
  elif isinstance(first, plan_lib.All):
    candidates.append((first, min(units, 2)))
  wanted = accounting.unit_profiles(release, level)
  for stage, count in candidates:
    population = plan_lib.Hierarchy.regular(
        (count, *sizes[1:]), levels=release.levels
    )
    changed = dataclasses.replace(plan, stages=(stage, *plan.stages[1:]))
    try:
      small = release.replace(hierarchy=population, plan=changed)
      if accounting.unit_profiles(small, level) == wanted:
        return small
    except (errors.PlanError, errors.UnsoundPlanError):
      continue  # Too small for the episode.
  return release


def without(hierarchy: plan_lib.Hierarchy, level: int) -> plan_lib.Hierarchy:
  """Return the hierarchy without the first unit of a level.

  The units above it stay, also where it was all that they held.

  Raises:
    PlanError: nothing would be left.
  """
  if hierarchy.sizes is not None and level == 0 and hierarchy.sizes[0] > 1:
    return plan_lib.Hierarchy.regular(
        (hierarchy.sizes[0] - 1, *hierarchy.sizes[1:]), levels=hierarchy.levels
    )
  if (units_of(hierarchy, level) == 0).all():
    raise errors.PlanError(
        f"the hierarchy has one {hierarchy.levels[level]}: give it two or more,"
        " so that something is left without it"
    )
  offsets, gone = [], 0  # Of the units of the level above, the first ones.
  for j in range(hierarchy.depth):
    above = hierarchy.num_units(j - 1) if j else 1
    counts = np.broadcast_to(hierarchy.child_counts(j), (above,))[gone:].copy()
    if j == level:
      counts[0], gone = counts[0] - 1, 1
    elif j > level:
      gone *= int(hierarchy.child_counts(j)[0])
    offsets.append(np.append(0, np.cumsum(counts)))
  return plan_lib.Hierarchy(levels=hierarchy.levels, offsets=tuple(offsets))


def units_of(hierarchy: plan_lib.Hierarchy, level: int) -> np.ndarray:
  """Return the unit of the level that each leaf lies in, int64[leaves]."""
  assert hierarchy.sizes is not None
  below = math.prod(hierarchy.sizes[level + 1 :])
  return np.arange(hierarchy.num_leaves) // below


def check_noise(mechanism: plan_lib.Mechanism) -> None:
  """Refuse a mechanism without noise, which claims nothing.

  Raises:
    PlanError: the noise multiplier is 0.
  """
  if mechanism.noise_multiplier == 0:
    raise errors.PlanError(
        "noise_multiplier is 0: nothing is claimed, so there is nothing to"
        " audit"
    )


def _regular(release: plan_lib.Release, level: str) -> plan_lib.Release:
  """Return a regular tree with a unit that costs as much as a ragged one's."""
  hierarchy, stages = release.hierarchy, release.plan.stages
  k = hierarchy.level_index(level)
  known = set(accounting.unit_profiles(release, level))

  def drawn(path):
    rates = [float(stages[j].rate(path[j])) for j in range(k + 1)]
    return math.prod(rates)

  paths = hierarchy.size_paths(hierarchy.depth - 1)
  for path in sorted(paths, key=drawn, reverse=True):
    tree = plan_lib.Hierarchy.regular(path.tolist(), levels=hierarchy.levels)
    try:
      regular = release.replace(hierarchy=tree)
      if set(accounting.unit_profiles(regular, level)) <= known:
        return regular
    except (errors.PlanError, errors.UnsoundPlanError):
      continue  # Others of the ragged tree are larger.
  raise errors.PlanError(
      f"no regular hierarchy has the rates and distances of a {level} of this"
      " ragged one, which worst-case canaries need: audit another level, or a"
      " config with sizes"
  )
