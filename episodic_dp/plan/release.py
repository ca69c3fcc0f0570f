"""A private run, described once, and the rules about what has a proof.

A `Release` holds what is sampled, how, and what is released. Making one checks
what holds for it as a whole; `Release.check_level` checks what the guarantee of
one level needs, which may be missing while other levels have one. The proofs
are in `accounting/README.md`.
"""

import dataclasses
import math
from typing import Any

from episodic_dp import errors
from episodic_dp.plan import sampler_error
from episodic_dp.plan import stages
from episodic_dp.plan import validation
from episodic_dp.plan.hierarchy import Hierarchy
from episodic_dp.plan.mechanism import EPISODE
from episodic_dp.plan.mechanism import Mechanism


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
    _check_clip_norms(self.mechanism)
    _check_grouped_tasks(self.plan)
    validation.validate(self.hierarchy, self.plan)
    _check_clip_unit(self)

  def replace(self, **changes: Any) -> "Release":
    """Return the release with other parts, checked like any other."""
    return dataclasses.replace(self, **changes)

  @property
  def levels(self) -> tuple[str, ...]:
    """List the levels of the hierarchy, primary units first, examples last."""
    return self.hierarchy.levels

  @property
  def sample_level(self) -> bool:
    """Return whether examples inside adapted tasks are the clip units."""
    return (
        self.plan.episode is not None
        and self.mechanism.clip_unit == self.hierarchy.levels[-1]
    )

  @property
  def task_unit(self) -> str:
    """Return the clip unit that is one whole task of the episode."""
    assert self.plan.episode is not None
    return self.levels[0] if self.plan.episode.form == "unit" else EPISODE

  @property
  def clip_level(self) -> int:
    """Return the level (from 0) whose units are clip units or lie inside one.

    For tasks made of classes this is the class level: several of its units
    share one clip unit.
    """
    if self.mechanism.clip_unit == EPISODE:
      return stages.class_level(self.hierarchy, self.plan)
    return self.hierarchy.level_index(self.mechanism.clip_unit)

  def check_level(self, level: str) -> None:
    """Reject a level for which no guarantee is proved.

    Raises:
      PlanError: the hierarchy has no such level.
      UnsoundPlanError: names the rule and the nearest sound setting.
    """
    k = self.hierarchy.level_index(level)
    if self.hierarchy.copies and k > 0:
      _check_copies(self, k)
    if self.sample_level and k == self.hierarchy.depth - 1:
      _check_slots(self)
    _check_regrouping(self, k)


def _check_clip_norms(mechanism: Mechanism) -> None:
  """Check that sample-level training has fixed clip norms."""
  if mechanism.noisy_inner_steps and mechanism.clipping != "fixed":
    raise errors.UnsoundPlanError(
        f"clipping={mechanism.clipping!r} with noisy inner steps: the proof of"
        " sample-level training takes fixed clip norms, use clipping='fixed'"
    )


def _check_grouped_tasks(plan: stages.SamplingPlan) -> None:
  """Check that tasks are cut out of a fixed number of classes."""
  episode = plan.episode
  if episode is None or episode.form == "unit":
    return
  if isinstance(plan.stages[0], stages.RandomAllocation):
    raise errors.UnsoundPlanError(
        f"form='{episode.form}' with {plan.stages[0]}: a step gets a random"
        " number of classes and one class more regroups every task; use"
        " form='unit', or FixedSize for the class stages"
    )
  if any(isinstance(stage, stages.Poisson) for stage in plan.stages[:-1]):
    raise errors.UnsoundPlanError(
        f"form='{episode.form}' with a Poisson class stage: the number of"
        " classes is random and one class more regroups every task; use"
        " FixedSize for the class stages"
    )


def _check_clip_unit(release: Release) -> None:
  """Check that the clip unit is a task, or an example with inner noise."""
  hierarchy, episode = release.hierarchy, release.plan.episode
  unit = release.mechanism.clip_unit
  primary = hierarchy.levels[0]
  if unit != EPISODE:
    hierarchy.level_index(unit)  # PlanError names the levels.
  elif episode is None or episode.form == "unit":
    nearest = primary if episode is not None else hierarchy.levels[-1]
    raise errors.PlanError(
        "clip_unit 'episode' is for tasks made of drawn classes"
        " (form='disjoint' or 'independent'); this plan has "
        + ("no episode" if episode is None else "form='unit'")
        + f": use clip_unit='{nearest}'"
    )
  if episode is None:
    return
  task = release.task_unit
  if unit == task:
    _check_no_inner_noise(release)
    return
  if unit == hierarchy.levels[-1]:
    _check_sample_level(release, task)
    return
  if episode.form == "unit":
    raise errors.UnsoundPlanError(
        f"clip_unit '{unit}' lies inside an adapted task and holds several"
        " examples, which no proof covers: use clip_unit='"
        f"{task}', or '{hierarchy.levels[-1]}' with noisy inner steps"
    )
  raise errors.UnsoundPlanError(
      f"clip_unit '{unit}' is not what form='{episode.form}' makes tasks of"
      " (groups of drawn classes); use clip_unit='episode'"
  )


def _check_no_inner_noise(release: Release) -> None:
  """Refuse noise inside tasks that are clipped as a whole."""
  mechanism, examples = release.mechanism, release.hierarchy.levels[-1]
  if mechanism.noisy_inner_steps:
    raise errors.PlanError(
        f"inner_noise_multiplier {mechanism.inner_noise_multiplier} with"
        f" clip_unit '{mechanism.clip_unit}': noisy inner steps protect"
        " examples only where these are clipped one by one; use"
        f" clip_unit='{examples}', or leave inner_clip_norm and"
        " inner_noise_multiplier out"
    )


def _check_sample_level(release: Release, task: str) -> None:
  """Check the rules of clipping per example inside adapted tasks."""
  mechanism, episode = release.mechanism, release.plan.episode
  assert episode is not None
  unit = mechanism.clip_unit
  if not mechanism.noisy_inner_steps:
    raise errors.UnsoundPlanError(
        f"clip_unit '{unit}' inside an adapted task is sample-level training,"
        " whose support examples are protected by noisy inner steps only: set"
        " inner_clip_norm, inner_noise_multiplier, inner_steps and"
        f" order='first', or use clip_unit='{task}'"
    )
  if mechanism.order != "first":
    raise errors.UnsoundPlanError(
        f"order='{mechanism.order}' with clip_unit '{unit}' (second-order"
        " leak): the outer gradient through the inner steps reads the support"
        " examples again, without noise; use order='first'"
    )
  if episode.form == "independent":
    raise errors.UnsoundPlanError(
        f"clip_unit '{unit}' with form='independent': no proof covers examples"
        " that recur as support and as query in several tasks of a step; use"
        " form='disjoint' or clip_unit='episode'"
    )
  if release.hierarchy.copies:
    raise errors.UnsoundPlanError(
        f"clip_unit '{unit}' in a hierarchy with copies: no proof covers"
        " examples that recur as support and as query in several tasks of a"
        f" step; use clip_unit='{task}'"
    )


def _check_slots(release: Release) -> None:
  """Check that every class fills all its slots without one example."""
  hierarchy, stage = release.hierarchy, release.plan.stages[-1]
  last = hierarchy.depth - 1
  counts = hierarchy.child_counts(last)
  fewest = int(counts[counts > 0].min())
  if not isinstance(stage, stages.FixedSize) or fewest <= stage.n:
    raise errors.UnsoundPlanError(
        f"no guarantee for level '{hierarchy.levels[last]}': {stage} draws all"
        f" {fewest} examples of a class, so without one of them another moves"
        " from the query into the support set (the slots must be filled either"
        f" way); draw FixedSize({max(fewest - 1, 1)}) or fewer"
    )


def _check_copies(release: Release, k: int) -> None:
  """Refuse a level below primary units that share uncounted records."""
  hierarchy, plan = release.hierarchy, release.plan
  level, primary = hierarchy.levels[k], hierarchy.levels[0]
  stage, episode = plan.stages[0], plan.episode
  if hierarchy.most_copies is not None and hierarchy.most_copies[k] == 1:
    return  # It is at one place, as in any tree.
  if hierarchy.most_copies is None or not hierarchy.most_copies[k]:
    raise errors.UnsoundPlanError(
        f"no guarantee for level '{level}': the same record may sit under"
        f" several units of level '{primary}' (copies=True), and nothing says"
        " under how many; count them and set most_copies, or ask for level"
        f" '{primary}'"
    )
  if episode is not None and episode.form != "unit":
    _check_crossing(release, k, episode)
    return
  if hierarchy.sizes is None:
    raise errors.UnsoundPlanError(
        f"no guarantee for level '{level}': one {level} is in several {primary}"
        " units of different sizes, which is proved for tasks across them"
        f" only; use an episode of form='independent' with classes='{primary}',"
        f" or put '{level}' above '{primary}'"
    )
  if not isinstance(
      stage, (stages.FixedSize, stages.Poisson, stages.All)
  ):
    raise errors.UnsoundPlanError(
        f"no guarantee for level '{level}': with {stage} the steps at which its"
        f" copies are used are not independent; use Poisson or FixedSize for"
        f" level '{primary}', or ask for that level"
    )


def _check_crossing(
    release: Release, k: int, episode: stages.Episode
) -> None:
  """Check a unit that several primary units of one task may hold."""
  hierarchy = release.hierarchy
  level, primary = hierarchy.levels[k], hierarchy.levels[0]
  if k > 1:
    raise errors.UnsoundPlanError(
        f"no guarantee for level '{level}': one {level} may be in several"
        f" {primary} units with other levels between, and form="
        f"'{episode.form}' is proved for the level right below them; use"
        f" form='unit', or ask for level '{primary}'"
    )
  if episode.form == "disjoint" and stages.class_level(
      hierarchy, release.plan
  ):
    raise errors.UnsoundPlanError(
        f"no guarantee for level '{level}': one {level} is in several"
        f" {primary} units, and form='disjoint' would cut tasks out of its"
        f" parts; use classes='{primary}', or form='independent'"
    )


def _check_regrouping(release: Release, k: int) -> None:
  """Check that a stage draws as many units without one of them.

  Otherwise later tasks would be regrouped: tasks of form "disjoint" are cut out
  of the drawn classes by position.
  """
  hierarchy, plan = release.hierarchy, release.plan
  episode, classes = plan.episode, stages.class_level(hierarchy, plan)
  if episode is None or episode.form != "disjoint" or k > classes:
    return
  stage = plan.stages[k]
  counts = hierarchy.child_counts(k)
  full = not isinstance(stage, stages.FixedSize) or bool(
      (counts[counts > 0] <= stage.n).any()
  )
  for j in range(k + 1, classes + 1):
    below = hierarchy.child_counts(j)
    if isinstance(plan.stages[j], stages.All) and below.min() < below.max():
      raise errors.UnsoundPlanError(
          f"no guarantee for level '{hierarchy.levels[k]}': {plan.stages[j]}"
          f" draws as many of level '{hierarchy.levels[j]}' as the largest unit"
          " has, so without that one the tasks are regrouped; draw"
          f" FixedSize({int(below.max())})"
      )
  drawn = sampler_error.capacities(hierarchy, plan)
  block = math.prod(drawn[k + 1 : classes + 1])
  if full and (k > 0 or block % episode.way):
    # The others draw a multiple of this stage's number: tasks stay whole.
    others = math.prod(drawn[:k]) * block
    unit = episode.way // math.gcd(episode.way, others)
    most = (int(counts.min()) - 1) // unit * unit
    remedy = f"FixedSize({most}) or fewer"
    if most < 1:
      remedy = f"fewer than {int(counts.min())}, in tasks of a smaller way"
    raise errors.UnsoundPlanError(
        f"no guarantee for level '{hierarchy.levels[k]}': {stage} draws every"
        " unit of a family, so without one of them fewer classes are drawn and"
        f" the tasks are regrouped; draw {remedy}"
    )
