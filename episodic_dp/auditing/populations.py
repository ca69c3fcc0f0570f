"""Make smaller populations for an audit, with the same guarantee."""

from collections.abc import Iterator
import dataclasses
import math

from episodic_dp import accounting
from episodic_dp import plan as plan_lib
from episodic_dp.errors import PlanError
from episodic_dp.errors import UnsoundPlanError


def miniature(release: plan_lib.Release, level: str) -> plan_lib.Release:
  """Make a smaller population with the same guarantee, step for step.

  A guarantee depends on rates and distances, not on the number of primary
  units: `Poisson(0.02)` costs one of 3 participants the same as one of 8000,
  and `FixedSize(4)` of 1000 the same as `FixedSize(1)` of 250. The rates and
  distances of both are compared; if they differ, the release is returned
  unchanged. A ragged hierarchy becomes a regular one, with the sizes on the
  path of a unit with the highest sampling rate.

  Args:
    release: a release with noise; its hierarchy may be ragged.
    level: the privacy unit.

  Raises:
    PlanError: no regular hierarchy has the rates and distances of a unit of the
      ragged one.
  """
  hierarchy, plan = release.hierarchy, release.plan
  known = set(accounting.unit_profiles(release, level))
  k = hierarchy.level_index(level)

  def rate(path):
    return math.prod(float(plan.stages[j].rate(path[j])) for j in range(k + 1))

  paths = hierarchy.size_paths(hierarchy.depth - 1)
  for path in sorted(paths, key=rate, reverse=True):
    for stage, units in _smaller(plan.stages[0], int(path[0])):
      stages = (stage, *plan.stages[1:])
      try:
        small = plan_lib.Release(
            plan_lib.Hierarchy.regular(
                (units, *path[1:].tolist()), levels=hierarchy.levels
            ),
            dataclasses.replace(plan, stages=stages),
            release.mechanism,
        )
        if set(accounting.unit_profiles(small, level)) <= known:
          return small
      except (PlanError, UnsoundPlanError):
        continue  # Too small for the episode, or another tree has the bound.
  if hierarchy.sizes is not None:
    return release
  raise PlanError(
      f"no regular hierarchy has the rates and distances of a {level} of this"
      " ragged one, which worst-case canaries need: audit another level, or a"
      " config with sizes"
  )


def _smaller(
    stage: plan_lib.Stage, units: int
) -> Iterator[tuple[plan_lib.Stage, int]]:
  """List stages and numbers of primary units at the same rate, fewest first."""
  if isinstance(stage, plan_lib.FixedSize):
    common = math.gcd(stage.n, units) if stage.n < units else 1
    for d in range(common, 1, -1):
      if common % d == 0:
        yield plan_lib.FixedSize(stage.n // d), units // d
  else:
    yield stage, min(units, 2 if isinstance(stage, plan_lib.All) else 3)
  yield stage, units
