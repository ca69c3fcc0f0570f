"""Sampling of one task of public data, for validation or a test."""

from episodic_dp.plan import stages
from episodic_dp.plan import validation
from episodic_dp.plan.hierarchy import Hierarchy


def task_plan(
    hierarchy: Hierarchy,
    *,
    way: int,
    shot: int,
    query: int,
    classes: str | None = None,
) -> stages.SamplingPlan:
  """One task: a unit of each upper level, `way` classes, shot + query of each.

  Where classes are the first level they come from the whole set, otherwise from
  one unit (one writer's script). Where they are not the level above the
  examples (diagnosis, patient, image), each of their examples is of another
  unit below them. The data are public, so empty units are left out.

  Args:
    hierarchy: of the data.
    way: classes of a task.
    shot: support examples of a class.
    query: query examples of a class.
    classes: their level; None means the one above the examples.

  Raises:
    PlanError: the hierarchy is too small for such a task.
  """
  upper = max(hierarchy.depth - 2, 0)
  if classes is not None:
    upper = hierarchy.level_index(classes)
  plan = stages.SamplingPlan(
      (
          *[stages.FixedSize(1)] * upper,
          stages.FixedSize(way),
          stages.FixedSize(shot + query),
          *[stages.FixedSize(1)] * (hierarchy.depth - upper - 2),
      ),
      episode=stages.Episode(
          way=way,
          shot=shot,
          query=query,
          form="unit" if upper else "disjoint",
          classes=classes,
      ),
  )
  validation.validate(hierarchy.occupied(), plan, public=True)
  return plan
