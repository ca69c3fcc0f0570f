"""Sampling of every level of a hierarchy, and inclusion rates of units.

A stage is also written as text, such as 'Poisson(0.004)': parsed, never run.

Algorithm 1 of Tombs, Kotevska and Young, "Privacy Amplification for Episodic
Training Methods" (2022) is the plan whose stages are all `FixedSize`.
"""

import ast
import dataclasses
import functools
import numbers
import re
import typing
from typing import Any, Literal

import numpy as np

from episodic_dp import _validate
from episodic_dp import errors
from episodic_dp import plain
from episodic_dp.plan import hierarchy as hierarchy_lib


@dataclasses.dataclass(frozen=True)
class FixedSize:
  """n children of every chosen unit, uniformly without replacement.

  Attributes:
    n: how many, at least 1; all of them where a unit has fewer.
  """

  n: int

  def __post_init__(self) -> None:
    _validate.count("FixedSize(n)", self.n, 1)

  def rate(self, children: np.ndarray) -> np.ndarray:
    """Give the float64 probability min(1, n / N) of each of N children.

    It is 1 where there are none.
    """
    return np.minimum(1.0, self.n / np.maximum(children, 1))


@dataclasses.dataclass(frozen=True)
class Poisson:
  """Every child of a chosen unit independently, with probability p.

  Attributes:
    p: above 0 and at most 1.
  """

  p: float

  def __post_init__(self) -> None:
    is_number = isinstance(self.p, numbers.Real)
    if not is_number or isinstance(self.p, bool) or not 0 < self.p <= 1:
      raise errors.PlanError(
          f"Poisson(p) is {self.p!r}: p must lie above 0 and be at most 1"
      )

  def rate(self, children: np.ndarray) -> np.ndarray:
    """Give the float64 probability p of each child."""
    return np.full(np.shape(children), float(self.p))


@dataclasses.dataclass(frozen=True)
class All:
  """Every child of every chosen unit."""

  def rate(self, children: np.ndarray) -> np.ndarray:
    """Give float64 ones."""
    return np.ones(np.shape(children))


@dataclasses.dataclass(frozen=True)
class RandomAllocation:
  """Every unit in exactly one of T steps: balls into bins, first stage only.

  Steps 0 .. T - 1 are one pass: each primary unit is assigned to one of them,
  uniformly and independently of all others, and a step draws the units assigned
  to it. The next T steps are another pass with a new, independent assignment.
  Within one step the draw looks like `Poisson(1 / T)`, but steps of one pass
  depend on each other, and their guarantee is that of a whole pass: Feldman and
  Shenfeld, "Privacy amplification by random allocation" (2025); Chua et al.,
  "Balls-and-Bins Sampling for DP-SGD" (2025).

  Attributes:
    steps: T, the steps of one pass.
  """

  steps: int

  def __post_init__(self) -> None:
    _validate.count("RandomAllocation(steps)", self.steps, 1)

  def rate(self, children: np.ndarray) -> np.ndarray:
    """Give the float64 probability 1 / T that one step draws a given child."""
    return np.full(np.shape(children), 1 / self.steps)


Stage = FixedSize | Poisson | All | RandomAllocation
"""A rule that draws the children of a chosen unit."""

# Name -> stage; each is a dataclass of at most one number.
_STAGES: dict[str, Any] = {
    stage.__name__: stage for stage in typing.get_args(Stage)
}
# A name and at most one number or quotient, which may have its field's name.
_TEXT = re.compile(
    r"\s*(\w+)\((?:\s*(\w+)\s*=)?([^][/(){}=]+)?(?:/([^][/(){}=]+))?\)\s*"
)


def stage_text(stage: Stage) -> str:
  """Write 'FixedSize(5)', 'Poisson(0.004)' or 'All()'.

  Numbers are written in full: `parse_stage` reads an equal stage.
  """
  values = [
      repr(field.type(getattr(stage, field.name)))  # type: ignore[operator]
      for field in dataclasses.fields(stage)
  ]
  return f"{type(stage).__name__}({', '.join(values)})"


def stage_lines(
    hierarchy: hierarchy_lib.Hierarchy, plan: "SamplingPlan"
) -> list[str]:
  """Write how each level is sampled: "8000 participant by Poisson(0.02)"."""
  return [
      f"{hierarchy.num_units(k)} {level} by {stage_text(plan.stages[k])}"
      for k, level in enumerate(hierarchy.levels)
  ]


def parse_stage(text: str) -> Stage:
  """Read 'FixedSize(5)', 'Poisson(0.004)', 'Poisson(8/30)' or 'All()'.

  Raises:
    PlanError: names the text and the forms.
  """
  found = _TEXT.fullmatch(str(text))
  name, keyword, number, divisor = found.groups() if found else ("",) * 4
  try:
    stage = _STAGES[name]
    if not (keyword or number or divisor):
      return stage()  # TypeError but for All.
    (field,) = dataclasses.fields(stage)  # All has none.
    value = ast.literal_eval((number or "").strip())
    if divisor:
      value = float(number) / float(divisor)
    if keyword not in (None, field.name):
      raise ValueError(keyword)
  except (
      KeyError, SyntaxError, TypeError, ValueError, ZeroDivisionError
  ):
    raise errors.PlanError(
        f"stage {errors.shown(text)} is not understood: write FixedSize(n),"
        " Poisson(p), All() or RandomAllocation(steps) with a number, such as"
        " 'FixedSize(5)', 'Poisson(0.004)' or 'Poisson(8/30)'"
    ) from None
  return stage(value)


plain.register_text(Stage, stage_text, parse_stage)


@dataclasses.dataclass(frozen=True)
class Episode:
  """The rule by which drawn examples form tasks.

  Attributes:
    way: number of classes of a task; 1 for regression, which has none.
    shot: number of support examples of each class.
    query: number of query examples of each class.
    form: "unit": one sampled primary unit is one task, and way is the product
      of its class stages (1 where there is none). "disjoint": the sampled
      classes are cut, in random order, into tasks of `way`. "independent": the
      class tree is sampled anew for each of `tasks` tasks, so that records
      recur across the tasks of a step.
    tasks: number of tasks of a step, for form "independent" only.
    classes: level whose units are the classes; None for the level above the
      examples. With levels in between (diagnosis, patient, image) a class takes
      its examples from several of their units, and no such unit is in both
      support and query.
  """

  way: int
  shot: int
  query: int
  form: Literal["unit", "disjoint", "independent"] = "unit"
  tasks: int | None = None
  classes: str | None = None

  def __post_init__(self) -> None:
    for name in ("way", "shot", "query"):
      _validate.count(name, getattr(self, name), 1)
    _validate.one_of("form", self.form, ("unit", "disjoint", "independent"))
    if self.form == "independent":
      _validate.count("tasks", self.tasks, 1)
    elif self.tasks is not None:
      raise errors.PlanError(
          f"tasks={self.tasks} is only for form='independent'; the stages of"
          f" form='{self.form}' already say how many tasks a step has"
      )


@dataclasses.dataclass(frozen=True)
class SamplingPlan:
  """One stage per level, and how the drawn examples form episodes.

  Attributes:
    stages: one stage per level of the hierarchy, primary level first.
    episode: None where there are no tasks: each example is by itself.
    allow_short_units: accept units with fewer children than their stage is to
      draw: they are taken whole, with rate 1, and a task that cannot be filled
      contributes zero. Whether it is set changes nothing for data that have no
      such units.

  Examples:
    >>> from episodic_dp import plan
    >>> p = plan.SamplingPlan(
    ...     (plan.Poisson(0.004), plan.FixedSize(5), plan.FixedSize(2)),
    ...     episode=plan.Episode(way=5, shot=1, query=1),
    ... )
    >>> p.stages[1]
    FixedSize(n=5)
  """

  stages: tuple[Stage, ...]
  episode: Episode | None = None
  allow_short_units: bool = False

  def __post_init__(self) -> None:
    object.__setattr__(self, "stages", tuple(self.stages))
    if not self.stages:
      raise errors.PlanError("a plan needs at least one stage")
    for k, stage in enumerate(self.stages):
      if not isinstance(stage, Stage):
        raise errors.PlanError(
            f"{stage!r} is not a stage: use FixedSize(n), Poisson(p), All() or,"
            " first, RandomAllocation(steps)"
        )
      if k > 0 and isinstance(stage, RandomAllocation):
        raise errors.PlanError(
            f"{stage} must be the first stage: a pass goes over the primary"
            " units, so use FixedSize(n), Poisson(p) or All() below"
        )

  @property
  def repeats(self) -> tuple[int, ...]:
    """Return (tasks,) where each task samples the whole tree anew, else ()."""
    if self.episode is None or self.episode.tasks is None:
      return ()
    return (self.episode.tasks,)


@functools.lru_cache(maxsize=64)  # of the objects: a ledger asks every step
def inclusion_rate(
    hierarchy: hierarchy_lib.Hierarchy, plan: SamplingPlan, level: str
) -> float:
  """Compute the largest probability that a step draws one unit of the level.

  This is eta, the true inclusion probability: the product over the path of
  n_j / (children of the unit above), *including* the number of primary units,
  maximised over units. The printed theorem of "Privacy Amplification for
  Episodic Training Methods" leaves that first denominator out when read
  literally, and says "min" where the smallest product of sizes is meant.

  For form "independent" this is the rate inside one of the tasks.

  Examples:
    >>> from episodic_dp import plan
    >>> h = plan.Hierarchy.from_sizes(
    ...     [[4, 2, 3], [4, 5]], levels=("alphabet", "character", "drawing")
    ... )
    >>> p = plan.SamplingPlan((plan.FixedSize(1),) * 3)
    >>> round(plan.inclusion_rate(h, p, level="drawing"), 4)
    0.0833
  """
  k = hierarchy.level_index(level)
  check_depth(hierarchy, plan)
  return float(np.prod(rate_paths(hierarchy, plan, k), axis=1).max())


def rate_paths(
    hierarchy: hierarchy_lib.Hierarchy, plan: SamplingPlan, level: int
) -> np.ndarray:
  """List the rates on the units' paths: float64[distinct, level + 1]."""
  sizes = hierarchy.size_paths(level)
  columns = [plan.stages[j].rate(sizes[:, j]) for j in range(level + 1)]
  return np.unique(np.stack(columns, axis=1), axis=0)


def check_depth(
    hierarchy: hierarchy_lib.Hierarchy, plan: SamplingPlan
) -> None:
  """Raise PlanError unless the plan has one stage per level."""
  if len(plan.stages) != hierarchy.depth:
    raise errors.PlanError(
        f"the plan has {len(plan.stages)} stages and the hierarchy"
        f" {hierarchy.depth} levels {hierarchy.levels}: give one stage a level"
    )


def class_level(
    hierarchy: hierarchy_lib.Hierarchy, plan: SamplingPlan
) -> int:
  """Give the position (from 0) of the level that holds an episode's classes.

  Raises:
    PlanError: there is no such level, or it is that of the examples.
  """
  episode = plan.episode
  if episode is None or episode.classes is None:
    return max(hierarchy.depth - 2, 0)
  level = hierarchy.level_index(episode.classes)
  if level == hierarchy.depth - 1 and level > 0:
    raise errors.PlanError(
        f"classes='{episode.classes}' are the examples themselves: name one of"
        f" the levels above them, {hierarchy.levels[:-1]}"
    )
  return level
