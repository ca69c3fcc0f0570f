"""Sampling stages of a plan, and inclusion rates of units.

A stage can be written as text, such as 'Poisson(0.004)'. Text is parsed, never
executed.

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
from episodic_dp import plain
from episodic_dp.errors import PlanError
from episodic_dp.errors import shown
from episodic_dp.plan import hierarchy as hierarchy_lib


class _Rule:
  """The questions that every stage answers, mostly as `All` does.

  Attributes:
    random_count: whether the number of sampled children is random.
  """

  random_count: bool

  @property
  def coin(self) -> float:
    """Return the probability that a separate coin leaves a child in."""
    return 1.0

  @property
  def pass_steps(self) -> int | None:
    """Return T if T steps share one assignment; None if each samples anew."""
    return None

  def most(self, children: np.ndarray | int) -> np.ndarray:
    """Return the most that can be sampled of N children: int64."""
    return np.asarray(children)

  def exchanges(self, children: np.ndarray | int) -> np.ndarray:
    """Return whether another child replaces one that is not sampled: bool."""
    return self.most(children) < children


@dataclasses.dataclass(frozen=True)
class FixedSize(_Rule):
  """Sample n children of every sampled unit, uniformly without replacement.

  Attributes:
    n: number of children, at least 1; a unit with fewer gives all of them.
  """

  n: int

  random_count = False

  def __post_init__(self) -> None:
    _validate.count("FixedSize(n)", self.n, 1)

  def rate(self, children: np.ndarray | int) -> np.ndarray:
    """Return the probability min(1, n / N) of each of N children: float64.

    It is 1 if there are none.
    """
    return np.minimum(1.0, self.n / np.maximum(children, 1))

  def most(self, children: np.ndarray | int) -> np.ndarray:
    """Return the smaller of n and N: int64."""
    return np.minimum(children, self.n)


@dataclasses.dataclass(frozen=True)
class Poisson(_Rule):
  """Sample every child of a sampled unit independently with probability p.

  Attributes:
    p: above 0 and at most 1.
  """

  p: float

  random_count = True

  @property
  def coin(self) -> float:
    """Return p."""
    return float(self.p)

  def __post_init__(self) -> None:
    is_number = isinstance(self.p, numbers.Real)
    if not is_number or isinstance(self.p, bool) or not 0 < self.p <= 1:
      raise PlanError(
          f"p={self.p!r} of Poisson(p): expected a number above 0, at most 1"
      )

  def rate(self, children: np.ndarray | int) -> np.ndarray:
    """Return the probability p of each child: float64."""
    return np.full(np.shape(children), float(self.p))


@dataclasses.dataclass(frozen=True)
class All(_Rule):
  """Sample every child of every sampled unit."""

  random_count = False

  def rate(self, children: np.ndarray | int) -> np.ndarray:
    """Return ones: float64."""
    return np.ones(np.shape(children))


@dataclasses.dataclass(frozen=True)
class RandomAllocation(_Rule):
  """Sample every unit in exactly one of T steps: balls into bins.

  Only the first stage can be of this type. Steps 0 .. T - 1 are one pass. Each
  primary unit is assigned to one of them, uniformly and independently of all
  others, and a step samples the units assigned to it. The next T steps are
  another pass with a new, independent assignment. One step alone is distributed
  like `Poisson(1 / T)`, but the steps of a pass depend on each other, so their
  guarantee is that of a whole pass: Feldman and Shenfeld, "Privacy
  amplification by random allocation" (2025); Chua et al., "Balls-and-Bins
  Sampling for DP-SGD" (2025).

  Attributes:
    steps: T, the number of steps of one pass.
  """

  steps: int

  random_count = True

  @property
  def pass_steps(self) -> int:
    """Return T."""
    return self.steps

  def __post_init__(self) -> None:
    _validate.count("RandomAllocation(steps)", self.steps, 1)

  def rate(self, children: np.ndarray | int) -> np.ndarray:
    """Return the probability 1 / T that one step samples a child: float64."""
    return np.full(np.shape(children), 1 / self.steps)


Stage = FixedSize | Poisson | All | RandomAllocation
"""A rule that samples the children of a sampled unit."""

# Name -> stage class, a dataclass with at most one number.
_STAGES: dict[str, Any] = {
    stage.__name__: stage for stage in typing.get_args(Stage)
}
# A name with at most one number or quotient, which may be given by keyword.
_TEXT = re.compile(
    r"\s*(\w+)\((?:\s*(\w+)\s*=)?([^][/(){}=]+)?(?:/([^][/(){}=]+))?\)\s*"
)


def stage_text(stage: Stage) -> str:
  """Format a stage: 'FixedSize(5)', 'Poisson(0.004)' or 'All()'.

  Numbers are written in full, so that `parse_stage` reads an equal stage.
  """
  values = [
      repr(field.type(getattr(stage, field.name)))  # type: ignore[operator]
      for field in dataclasses.fields(stage)
  ]
  return f"{type(stage).__name__}({', '.join(values)})"


def parse_stage(text: str) -> Stage:
  """Parse 'FixedSize(5)', 'Poisson(0.004)', 'Poisson(8/30)' or 'All()'.

  Args:
    text: name of a stage and at most one number or quotient, in parentheses.

  Returns:
    The stage; text from `stage_text` gives an equal one.

  Raises:
    PlanError: the text is not a stage; the message lists the forms.
  """
  name = keyword = number = divisor = ""
  if found := _TEXT.fullmatch(str(text)):
    name, keyword, number, divisor = found.groups()
  try:
    stage = _STAGES[name]
    if not (keyword or number or divisor):
      return stage()  # TypeError except for All.
    (field,) = dataclasses.fields(stage)  # All has no field.
    value = ast.literal_eval((number or "").strip())
    if divisor:
      value = float(number) / float(divisor)
    if keyword not in (None, field.name):
      raise ValueError(keyword)
  except (
      KeyError, SyntaxError, TypeError, ValueError, ZeroDivisionError
  ):
    raise PlanError(
        f"stage {shown(text)} cannot be parsed: write FixedSize(n),"
        " Poisson(p), All() or RandomAllocation(steps) with a number, such as"
        " 'FixedSize(5)', 'Poisson(0.004)' or 'Poisson(8/30)'"
    ) from None
  return stage(value)


plain.register(Stage, Any, stage_text, parse_stage)


@dataclasses.dataclass(frozen=True)
class Episode:
  """The rule that forms tasks from sampled examples.

  Attributes:
    way: number of classes of a task; 1 for regression, which has no classes.
    shot: number of support examples of each class.
    query: number of query examples of each class.
    form: "unit": each sampled primary unit is one task, and way is the product
      of its class stages (1 without class stages). "disjoint": the sampled
      classes are cut, in random order, into tasks of `way`. "independent": each
      of `tasks` tasks samples the class tree again, so that records recur
      across the tasks of a step.
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
      raise PlanError(
          f"tasks={self.tasks} with form='{self.form}': expected None, because"
          " the stages determine the number of tasks; leave it out, or use"
          " form='independent'"
      )


@dataclasses.dataclass(frozen=True)
class SamplingPlan:
  """One stage per level, and the rule that forms episodes.

  Attributes:
    stages: one stage per level of the hierarchy, primary level first.
    episode: the rule that forms tasks; None for single examples.
    allow_short_units: whether units may have fewer children than their stage
      samples. Such a unit gives all its children, with rate 1, and a task that
      cannot be filled contributes zero. Data without such units are sampled in
      the same way with either value.

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
      raise PlanError("stages=(): expected at least one stage")
    for k, stage in enumerate(self.stages):
      if not isinstance(stage, Stage):
        raise PlanError(
            f"{stage!r} is not a stage: use FixedSize(n), Poisson(p), All() or,"
            " first, RandomAllocation(steps)"
        )
      if k > 0 and isinstance(stage, RandomAllocation):
        raise PlanError(
            f"{stage} is not the first stage: a pass goes over the primary"
            " units; use FixedSize(n), Poisson(p) or All() below them"
        )

  @property
  def task_form(self) -> Episode:
    """Return the episode of a plan that was checked to have one."""
    assert self.episode is not None
    return self.episode

  @property
  def form(self) -> str | None:
    """Return the form of the tasks; None without an episode."""
    if self.episode is None:
      return None
    return self.episode.form

  @property
  def repeats(self) -> tuple[int, ...]:
    """Return (tasks,) if each task samples the whole tree again, else ()."""
    if self.episode is None or self.episode.tasks is None:
      return ()
    return (self.episode.tasks,)

  @property
  def pass_steps(self) -> int | None:
    """Return T if the primary units are sampled in passes of T steps."""
    return self.stages[0].pass_steps

  def path_rates(self, sizes: np.ndarray) -> np.ndarray:
    """Return the rates of paths with these family sizes: float64, like them."""
    columns = [s.rate(size) for s, size in zip(self.stages, sizes.T)]
    return np.stack(columns, axis=1)


@functools.lru_cache(maxsize=64)  # Keyed by object: ledgers call every step.
def inclusion_rate(
    hierarchy: hierarchy_lib.Hierarchy, plan: SamplingPlan, level: str
) -> float:
  """Compute the largest probability that a step samples one unit of a level.

  This is eta, the true inclusion probability: the product over the path of
  n_j / (children of the unit above), *including* the number of primary units,
  maximised over units. Read literally, the theorem of "Privacy Amplification
  for Episodic Training Methods" omits that first denominator, and it has "min"
  in place of the smallest product of sizes.

  For form "independent" this is the rate inside one of the tasks.

  Args:
    hierarchy: the public sizes of the data.
    plan: the sampling of a step.
    level: name of the level.

  Returns:
    A probability, from 0 to 1.

  Raises:
    PlanError: the hierarchy has no such level, or another depth than the plan.

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
  return float(plan.path_rates(hierarchy.size_paths(k)).prod(axis=1).max())


def check_depth(
    hierarchy: hierarchy_lib.Hierarchy, plan: SamplingPlan
) -> None:
  """Raise PlanError unless the plan has one stage per level."""
  if len(plan.stages) != hierarchy.depth:
    raise PlanError(
        f"the plan has {len(plan.stages)} stages and the hierarchy"
        f" {hierarchy.depth} levels {hierarchy.levels}: give one for each"
    )


def class_level(
    hierarchy: hierarchy_lib.Hierarchy, plan: SamplingPlan
) -> int:
  """Return the position (from 0) of the level of an episode's classes.

  Raises:
    PlanError: there is no such level, or it is the examples' level.
  """
  episode = plan.episode
  if episode is None or episode.classes is None:
    return max(hierarchy.depth - 2, 0)
  level = hierarchy.level_index(episode.classes)
  if level == hierarchy.depth - 1 and level > 0:
    raise PlanError(
        f"classes='{episode.classes}': expected a level above the examples, one"
        f" of {hierarchy.levels[:-1]}"
    )
  return level
