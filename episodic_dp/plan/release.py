"""A private run, described once: what is sampled, how, and what is released."""

import dataclasses
from typing import Any

from episodic_dp import errors
from episodic_dp.plan import soundness
from episodic_dp.plan import stages
from episodic_dp.plan.hierarchy import Hierarchy
from episodic_dp.plan.mechanism import EPISODE
from episodic_dp.plan.mechanism import Mechanism

_PARTS = {
    "hierarchy": Hierarchy, "plan": stages.SamplingPlan, "mechanism": Mechanism
}


@dataclasses.dataclass(frozen=True)
class Release:
  """The samples and the release of one step; checked when it is made.

  The sampler and the training step read it in JAX, the accountant in NumPy:
  what is accounted is what is sampled.

  Attributes:
    hierarchy: the public sizes of the data.
    plan: how a step samples them.
    mechanism: what a step releases: clip unit, clip norm and noise.

  Raises:
    PlanError: the parts contradict one another.
    UnsoundPlanError: no proof covers them together, at any level.

  Examples:
    >>> from episodic_dp import plan
    >>> r = plan.Release(
    ...     plan.Hierarchy.regular((1000, 20), levels=("user", "example")),
    ...     plan.SamplingPlan((plan.Poisson(0.05), plan.FixedSize(4))),
    ...     plan.Mechanism(clip_unit="user", noise_multiplier=1.0),
    ... )
    >>> r.levels
    ('user', 'example')
  """

  hierarchy: Hierarchy
  plan: stages.SamplingPlan
  mechanism: Mechanism

  def __post_init__(self) -> None:
    for field in dataclasses.fields(self):
      part = getattr(self, field.name)
      if not isinstance(part, _PARTS[field.name]):
        raise errors.PlanError(
            f"{field.name}={errors.shown(part)} is no plan."
            f"{_PARTS[field.name].__name__}: give Release(hierarchy, plan,"
            " mechanism)"
        )
    soundness.check(self)

  def replace(self, **changes: Any) -> "Release":
    """The release with other parts, checked like any other."""
    return dataclasses.replace(self, **changes)

  @property
  def levels(self) -> tuple[str, ...]:
    """The levels of the hierarchy, primary units first, examples last."""
    return self.hierarchy.levels

  @property
  def sample_level(self) -> bool:
    """Return whether examples inside adapted tasks are the clip units."""
    return soundness.is_sample_level(self)

  @property
  def clip_level(self) -> int:
    """The level (from 0) whose units lie inside one clip unit or are it.

    For tasks made of classes this is the class level: several of its units
    share one clip unit.
    """
    if self.mechanism.clip_unit == EPISODE:
      return stages.class_level(self.hierarchy, self.plan)
    return self.hierarchy.level_index(self.mechanism.clip_unit)
