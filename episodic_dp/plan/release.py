"""The description of a private run, and the rules of what has a proof.

A `Release` holds the data's sizes, the sampling plan and the mechanism. Its
constructor checks the combination. `Release.check_level` checks the rules for
the guarantee of one level; a release may have guarantees for some levels only.
The proofs are in `accounting/README.md`.

`to_dict` writes a release as data for JSON. `from_dict` reads it back to equal
objects, floats to the last bit. Every field is written and required, so that a
description that was edited, cut short or written by another version is refused.
A hierarchy is written without `leaf_rows` and `names`, which affect no
guarantee.
"""

from collections.abc import Mapping, Sequence
import dataclasses
import math
from typing import Any

import numpy as np

from episodic_dp import _validate
from episodic_dp import plain
from episodic_dp.errors import PlanError
from episodic_dp.errors import UnsoundPlanError
from episodic_dp.plan import hierarchy as hierarchy_lib
from episodic_dp.plan import sampler_error
from episodic_dp.plan import stages
from episodic_dp.plan import validation
from episodic_dp.plan.hierarchy import Hierarchy
from episodic_dp.plan.mechanism import EPISODE
from episodic_dp.plan.mechanism import Mechanism


@dataclasses.dataclass(frozen=True)
class Release:
  """The description of one private step; checked on construction.

  The sampler and the training step read it in JAX, the accountant in NumPy:
  what is accounted is what is sampled.

  Attributes:
    hierarchy: the public sizes of the data.
    plan: the sampling of a step.
    mechanism: clip unit, clip norm and noise of the released vector.

  Raises:
    PlanError: the parts contradict one another.
    UnsoundPlanError: no proof covers the combination, at any level.

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
    clipping = self.mechanism.clipping
    if self.mechanism.noisy_inner_steps and clipping != "fixed":
      raise UnsoundPlanError(
          f"clipping={clipping!r} with noisy inner steps: the proof of"
          " sample-level training needs fixed clip norms; use clipping='fixed'"
      )
    _check_first_level(self.hierarchy, self.plan)
    _check_grouped_tasks(self.plan)
    validation.validate(self.hierarchy, self.plan)
    _check_clip_unit(self)

  def replace(self, **changes: Any) -> "Release":
    """Return the release with other parts, checked again."""
    return dataclasses.replace(self, **changes)

  @property
  def levels(self) -> tuple[str, ...]:
    """List the levels of the hierarchy, primary units first, examples last."""
    return self.hierarchy.levels

  @property
  def drawn_per_step(self) -> float:
    """Return the expected tasks of a step; examples without an episode."""
    if self.plan.episode is None:
      return validation.examples_per_step(self.hierarchy, self.plan)
    return validation.tasks_per_step(self.hierarchy, self.plan)

  @property
  def sums_tasks(self) -> bool:
    """Return whether a step sums updates of whole tasks."""
    noisy = self.mechanism.noisy_inner_steps
    return self.plan.episode is not None and not noisy

  @property
  def filled(self) -> float:
    """Return the share of the sampled tasks that lack no class or example."""
    return validation.filled(self.hierarchy, self.plan)

  @property
  def stage_lines(self) -> list[str]:
    """Format sizes and stages: "participant (8000): Poisson(0.02)", ..."""
    return [
        f"{self.hierarchy.counted(k)}: {stages.stage_text(stage)}"
        for k, stage in enumerate(self.plan.stages)
    ]

  @property
  def class_level(self) -> int:
    """Return the level (from 0) of an episode's classes."""
    return stages.class_level(self.hierarchy, self.plan)

  @property
  def sample_level(self) -> bool:
    """Return whether the clip units are examples inside adapted tasks."""
    return (
        self.plan.episode is not None
        and self.mechanism.clip_unit == self.hierarchy.levels[-1]
    )

  @property
  def task_unit(self) -> str:
    """Return the clip unit that is one whole task of the episode."""
    if self.plan.form == "unit":
      return self.levels[0]
    return EPISODE

  @property
  def clip_level(self) -> int:
    """Return the level (from 0) of the clip units, or of units inside one.

    For tasks made from classes this is the class level: several of its units
    share one clip unit.
    """
    if self.mechanism.clip_unit == EPISODE:
      return self.class_level
    return self.hierarchy.level_index(self.mechanism.clip_unit)

  def check_level(self, level: str) -> None:
    """Reject a level for which no guarantee is proved.

    Raises:
      PlanError: the hierarchy has no such level.
      UnsoundPlanError: names the rule and the nearest sound setting.
    """
    k = self.hierarchy.level_index(level)
    _check_copies(self, k)
    if self.sample_level and k == self.hierarchy.depth - 1:
      _check_slots(self)
    _check_regrouping(self, k)


def _check_first_level(
    hierarchy: Hierarchy, plan: stages.SamplingPlan
) -> None:
  """Refuse a random number of tasks below levels that are sampled whole."""
  if plan.episode is None:
    return
  stages.check_depth(hierarchy, plan)
  above: list[str] = []
  for k in range(stages.class_level(hierarchy, plan)):
    level, stage = hierarchy.levels[k], plan.stages[k]
    if above and stage.random_count:
      raise UnsoundPlanError(
          f"stage {stage} of level '{level}' is below {' and '.join(above)}, of"
          " which every unit is sampled, and an episode makes its tasks of the"
          f" first level: begin the hierarchy with '{level}', so that each"
          f" sampled {level} is a task (form='unit')"
      )
    if not isinstance(stage, stages.All):
      return
    above.append(f"'{level}'")


def _check_grouped_tasks(plan: stages.SamplingPlan) -> None:
  """Check that tasks are cut from a fixed number of classes."""
  if plan.form in (None, "unit"):
    return
  for stage in plan.stages[:-1]:
    if stage.random_count:
      raise UnsoundPlanError(
          f"form='{plan.form}' with {stage} for classes: a step has a"
          " random number of classes, and one more class regroups every task;"
          " use FixedSize for the class stages, or form='unit'"
      )


def _check_clip_unit(release: Release) -> None:
  """Check that the clip unit is a task, or an example with inner noise."""
  hierarchy, episode = release.hierarchy, release.plan.episode
  unit = release.mechanism.clip_unit
  if unit != EPISODE:
    hierarchy.level_index(unit)  # Raises PlanError for an unknown level.
  elif release.plan.form in (None, "unit"):
    tasks, nearest = "form='unit'", hierarchy.levels[0]
    if episode is None:
      tasks, nearest = "no episode", hierarchy.levels[-1]
    raise PlanError(
        "clip_unit='episode': expected tasks made from sampled classes"
        f" (form='disjoint' or 'independent'); this plan has {tasks}: use"
        f" clip_unit='{nearest}'"
    )
  if episode is None:
    return
  task, examples = release.task_unit, hierarchy.levels[-1]
  if unit == task:
    if release.mechanism.noisy_inner_steps:
      raise PlanError(
          f"inner_noise_multiplier with clip_unit='{unit}': noisy inner steps"
          " protect examples only if these are clipped one by one; use"
          f" clip_unit='{examples}', or leave out inner_clip_norm and"
          " inner_noise_multiplier"
      )
  elif unit == examples:
    _check_sample_level(release, task)
  elif episode.form == "unit":
    first = ""
    if hierarchy.level_index(unit) < release.class_level:
      first = f", or begin the hierarchy with '{unit}'"
    raise UnsoundPlanError(
        f"clip_unit='{unit}': it is inside an adapted task and holds several"
        " examples, which no proof covers; use clip_unit='"
        f"{task}', or '{examples}' with noisy inner steps{first}"
    )
  else:
    raise UnsoundPlanError(
        f"clip_unit='{unit}': form='{episode.form}' makes tasks from groups of"
        " sampled classes; use clip_unit='episode'"
    )


def _check_sample_level(release: Release, task: str) -> None:
  """Check the rules of clipping per example inside adapted tasks."""
  mechanism, episode = release.mechanism, release.plan.task_form
  unit = mechanism.clip_unit
  if not mechanism.noisy_inner_steps:
    raise UnsoundPlanError(
        f"clip_unit='{unit}' inside an adapted task is sample-level training,"
        " which protects support examples by noisy inner steps only; set"
        " inner_clip_norm, inner_noise_multiplier, inner_steps and"
        f" order='first', or use clip_unit='{task}'"
    )
  if mechanism.order != "first":
    raise UnsoundPlanError(
        f"order='{mechanism.order}' with clip_unit='{unit}' (second-order"
        " leak): the outer gradient through the inner steps reads the support"
        " examples again, without noise; use order='first'"
    )
  if episode.form == "independent" or release.hierarchy.copies:
    raise UnsoundPlanError(
        f"clip_unit='{unit}' with form='independent' or in a hierarchy with"
        " copies: no proof covers examples that recur as support and as query"
        f" in several tasks of a step; use clip_unit='{task}', or another form"
        " and no copies"
    )


def _check_slots(release: Release) -> None:
  """Check that every class still fills its slots after losing one example."""
  hierarchy, stage = release.hierarchy, release.plan.stages[-1]
  last = hierarchy.depth - 1
  counts = hierarchy.child_counts(last)
  fewest = int(counts[counts > 0].min())
  if not stage.exchanges(fewest):
    raise UnsoundPlanError(
        f"no guarantee for level '{hierarchy.levels[last]}': {stage} samples"
        f" all {fewest} examples of a class, so removing one moves another from"
        " the query set into the support set (the slots must be filled either"
        f" way); sample FixedSize({max(fewest - 1, 1)}) or fewer"
    )


def _check_copies(release: Release, k: int) -> None:
  """Refuse a level below primary units that share uncounted records."""
  hierarchy, plan = release.hierarchy, release.plan
  level, primary = hierarchy.levels[k], hierarchy.levels[0]
  stage, most = plan.stages[0], hierarchy.holders(k)
  if most == 1:
    return  # The record is in one primary unit, as in any tree.
  if most == 0:
    raise UnsoundPlanError(
        f"no guarantee for level '{level}': several units of level '{primary}'"
        " may hold the same record (copies=True), and their number is not"
        " given; count them and set most_copies, or ask for level"
        f" '{primary}'"
    )
  if plan.form not in (None, "unit"):
    _check_crossing(release, k)
    return
  if hierarchy.sizes is None:
    raise UnsoundPlanError(
        f"no guarantee for level '{level}': one {level} is in several {primary}"
        " units of different sizes, which is proved only for tasks across"
        f" them; use an episode of form='independent' with classes='{primary}',"
        f" or put '{level}' above '{primary}'"
    )
  if isinstance(stage, stages.RandomAllocation):
    raise UnsoundPlanError(
        f"no guarantee for level '{level}': with {stage} the steps that use its"
        " copies are not independent; use Poisson or FixedSize for"
        f" level '{primary}', or ask for that level"
    )


def _check_crossing(release: Release, k: int) -> None:
  """Check a level whose unit may be in several primary units of one task."""
  hierarchy, plan = release.hierarchy, release.plan
  level, primary = hierarchy.levels[k], hierarchy.levels[0]
  if k > 1:
    raise UnsoundPlanError(
        f"no guarantee for level '{level}': one {level} may be in several"
        f" {primary} units with other levels between, and form="
        f"'{plan.form}' is proved only for the level right below them; use"
        f" form='unit', or ask for level '{primary}'"
    )
  if plan.form == "disjoint" and release.class_level:
    raise UnsoundPlanError(
        f"no guarantee for level '{level}': one {level} is in several"
        f" {primary} units, and form='disjoint' would cut tasks from parts of"
        f" it; use classes='{primary}', or form='independent'"
    )


def _check_regrouping(release: Release, k: int) -> None:
  """Check that a stage samples the same number after the loss of one unit.

  Otherwise later tasks would be regrouped: tasks of form "disjoint" are cut
  from the sampled classes by position.
  """
  hierarchy, plan = release.hierarchy, release.plan
  classes = release.class_level
  if plan.form != "disjoint" or k > classes:
    return
  way = plan.task_form.way
  stage = plan.stages[k]
  counts = hierarchy.child_counts(k)
  full = not stage.exchanges(counts[counts > 0]).all()
  for j in range(k + 1, classes + 1):
    below = hierarchy.child_counts(j)
    if isinstance(plan.stages[j], stages.All) and below.min() < below.max():
      raise UnsoundPlanError(
          f"no guarantee for level '{hierarchy.levels[k]}': {plan.stages[j]}"
          f" samples as many of level '{hierarchy.levels[j]}' as the largest"
          " unit has, so removing that unit regroups the tasks; use"
          f" FixedSize({int(below.max())})"
      )
  drawn = sampler_error.capacities(hierarchy, plan)
  block = math.prod(drawn[k + 1 : classes + 1])
  if full and (k > 0 or block % way):
    # The other units contribute a multiple of this number: tasks stay whole.
    others = math.prod(drawn[:k]) * block
    unit = way // math.gcd(way, others)
    most = (int(counts.min()) - 1) // unit * unit
    remedy = f"FixedSize({most}) or fewer"
    if most < 1:
      remedy = f"fewer than {int(counts.min())}, in tasks of a smaller way"
    raise UnsoundPlanError(
        f"no guarantee for level '{hierarchy.levels[k]}': {stage} samples every"
        " unit of a family, so removing one leaves fewer classes and regroups"
        f" the tasks; use {remedy}"
    )


# Plain data ------------------------------------------------------------------

# Reading a ragged hierarchy expands its counts in memory, one per unit.
_MOST_UNITS = 2**24

# A number, or a pair (number, repetitions).
_Run = int | tuple[int, int]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tree:
  """A hierarchy as plain data.

  Attributes:
    levels: names of the levels, primary units first.
    sizes: number of children of a unit at each level of a regular hierarchy.
    child_counts: for each level of a ragged hierarchy, the number of children
      of every unit above; equal numbers in a row may be one pair (number,
      units).
    copies: whether several primary units may hold the same record, as synthetic
      participants do.
    most_copies: for each level, the largest number of primary units that hold
      the same unit, 0 if unknown; None without counts.
    units_from_records: whether the list of units follows from the records.
      Guarantees then assume that a unit stays when its last record is removed.
  """

  levels: tuple[str, ...]
  sizes: tuple[plain.Count, ...] | None = None
  child_counts: tuple[Any, ...] | None = None  # Of `_Run`; `_pairs` reads it.
  copies: bool = False
  most_copies: tuple[int, ...] | None = None
  units_from_records: bool = False

  @classmethod
  def of(cls, tree: Hierarchy) -> "Tree":
    """Describe a hierarchy as plain data."""
    counts = None
    if tree.offsets is not None:
      counts = tuple(_runs(tree.child_counts(k)) for k in range(tree.depth))
    return cls(
        levels=tree.levels,
        sizes=tree.sizes,
        child_counts=counts,
        copies=tree.copies,
        most_copies=tree.most_copies,
        units_from_records=tree.units_from_records,
    )

  def build(self) -> Hierarchy:
    """Build the hierarchy; raises PlanError if the fields contradict."""
    fields = dict(vars(self))
    runs = fields.pop("child_counts")
    if runs is not None:
      fields["offsets"] = _offsets(runs)
    return Hierarchy(**fields)


plain.register(Hierarchy, Tree, Tree.of, Tree.build)


def to_dict(release: Release) -> dict[str, Any]:
  """Return the release as plain data for JSON; `from_dict` reads it.

  Args:
    release: the release; `leaf_rows` and `names` of its hierarchy are omitted.

  Returns:
    {"hierarchy": ..., "plan": ..., "mechanism": ...}, each with the fields of
    its dataclass (of `Tree` for the hierarchy): stages as text
    ('Poisson(0.004)'), infinity as "inf".
  """
  return plain.to_plain(release)


def from_dict(data: Mapping[str, Any]) -> Release:
  """Return the release that `to_dict` described.

  Args:
    data: the result of `to_dict`, perhaps through JSON.

  Raises:
    PlanError: a field is missing, unknown or wrong.
    UnsoundPlanError: no proof covers the release.
  """
  return plain.from_plain(Release, data, name="release")


def _runs(counts: np.ndarray) -> tuple[_Run, ...]:
  """Merge equal neighbours into one pair (number, repetitions)."""
  starts = np.flatnonzero(np.append(True, counts[1:] != counts[:-1]))
  lengths = np.diff(np.append(starts, counts.size))
  runs: list[_Run] = []
  for count, length in zip(counts[starts].tolist(), lengths.tolist()):
    runs.append((count, length) if length > 1 else count)
  return tuple(runs)


def _pairs(runs: Any, name: str) -> list[Sequence[int]]:
  """Return the pairs of `_runs`, which may be millions; raises PlanError."""
  if not plain.is_list(runs):
    raise _validate.refusal(name, runs, "a list")
  pairs: list[Sequence[int]] = []
  most = hierarchy_lib.MAX_LEAVES
  for i, run in enumerate(runs):
    pair = run if isinstance(run, (list, tuple)) else (run, 1)
    if [*map(type, pair)] != [int, int] or min(pair) < 0 or max(pair) > most:
      kind = tuple[plain.Whole, plain.Whole]
      pair = plain.read(kind, pair, name=f"{name}[{i}]")
      if max(pair) > most:  # Sums of such may be too long for a message.
        raise _validate.refusal(
            f"{name}[{i}]", pair, "counts of at most 2^31 - 1"
        )
    pairs.append(pair)
  return pairs


def _offsets(levels: Sequence[Any]) -> tuple[np.ndarray, ...]:
  """Return the offsets of a ragged hierarchy from the `_runs` of its levels."""
  units, offsets = 1, []
  for k, runs in enumerate(levels):
    # Python integers: checked before any array of that size is allocated.
    pairs = _pairs(runs, f"hierarchy.child_counts[{k}]")
    total, below = 0, 0
    for count, times in pairs:
      total += times
      below += count * times
    if (
        total != units
        or total > _MOST_UNITS
        or below > hierarchy_lib.MAX_LEAVES
    ):
      raise PlanError(
          f"hierarchy.child_counts[{k}] counts the {below} children of {total}"
          f" units: expected {units} units, as in the level above, at most"
          f" {_MOST_UNITS}, and at most 2^31 - 1 children"
      )
    table = np.asarray(pairs, np.int64).reshape(-1, 2)
    counts = np.repeat(table[:, 0], table[:, 1])
    offsets.append(hierarchy_lib.offsets_of(counts))
    units = below
  return tuple(offsets)
