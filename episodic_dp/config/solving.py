"""Find the noise, the steps or the tasks of a config for an epsilon."""

from collections.abc import Callable
import dataclasses
import math
from typing import Any

from absl import logging

from episodic_dp import _validate
from episodic_dp import accounting
from episodic_dp import plan as plan_lib
from episodic_dp.accounting import report
from episodic_dp.errors import PlanError
from episodic_dp.plan import stages as stages_lib
from episodic_dp.run import five_digits
from episodic_dp.run import Run

SOLVERS = ("noise_multiplier", "steps", "tasks")
_MOST_USEFUL = 10  # Of an epsilon, by common judgement.
_MOST_NOISE = 0.1  # For each task of a step, before it drowns what they teach.


@dataclasses.dataclass(frozen=True, kw_only=True)
class Calibration:
  """A config with one number changed, so that it spends a target epsilon.

  Attributes:
    solve: the changed number, one of `SOLVERS`.
    target_epsilon: the target.
    epsilon: the resulting epsilon, at most the target.
    delta: delta of both.
    level: the level of the guarantee.
    neighbours: the relation of the guarantee.
    caveat: a limit of the guarantee, or "".
    noise_multiplier: noise multiplier of the changed config.
    steps: number of steps of the changed config.
    drawn: "tasks" or (without an episode) "examples".
    per_step: expected number of them in a step.
    flag: command-line flag for the change.
  """

  solve: str
  target_epsilon: float
  epsilon: float
  delta: float
  level: str
  neighbours: report.Relation
  caveat: str
  noise_multiplier: float
  steps: int
  drawn: str
  per_step: float
  flag: str

  def sentence(self) -> str:
    """Write the answer, with the flag for it."""
    step = ""
    if self.solve == "tasks":
      step = f" of {self.per_step:g} {self.drawn}"
    relation = ""
    if report.is_replaced(self.neighbours):
      relation = f", {self.neighbours}"
    return (
        f"noise_multiplier {self.noise_multiplier:g} spends epsilon"
        f" {report.rounded_up(self.epsilon)} of {self.target_epsilon:g} for a"
        f" {self.level} (delta {self.delta:g}{relation}) at"
        f" steps={self.steps}{step}: {self.flag}"
    )


def calibrate(
    config: Run,
    *,
    epsilon: float,
    solve: str = "noise_multiplier",
    level: str | None = None,
    neighbours: report.Relation = "add-or-remove",
) -> Calibration:
  """Change one number of a config so that it spends a target epsilon.

  Args:
    config: a config; its other numbers are kept.
    epsilon: the target, above 0.
    solve: the number to change: "noise_multiplier" (the least), "steps" or
      "tasks" (of a step; the most).
    level: the level of the guarantee; None for `config.level`.
    neighbours: the relation of the guarantee.

  Raises:
    PlanError: a value is missing or out of range, or cannot be reached.
    UnsoundPlanError: the level has no guarantee.
  """
  _validate.one_of("solve", solve, SOLVERS)
  _validate.positive("epsilon", epsilon)
  release, steps = config.release, config.steps
  wanted: dict[str, Any] = dict(
      delta=config.delta, level=level or config.level, neighbours=neighbours
  )
  if solve == "noise_multiplier":
    release = config.calibrated(
        epsilon=epsilon, level=level, neighbours=neighbours
    ).release
    noise = release.mechanism.noise_multiplier
    flag = f"--config.mechanism.noise_multiplier={noise:g}"
  elif solve == "steps":
    steps = accounting.max_steps(release, target_epsilon=epsilon, **wanted)
    if not steps:
      raise PlanError(
          f"epsilon={epsilon:g} at level '{wanted['level']}' is exceeded by the"
          " first step: raise noise_multiplier or epsilon"
      )
    flag = f"--config.steps={steps}"
  else:
    release, flag = _with_most_tasks(
        release, steps=steps, target_epsilon=epsilon, **wanted
    )
  spent = accounting.guarantee(release, steps=steps, **wanted)
  return Calibration(
      solve=solve,
      target_epsilon=epsilon,
      epsilon=spent.epsilon,
      caveat=spent.caveat,
      noise_multiplier=release.mechanism.noise_multiplier,
      steps=steps,
      drawn="tasks" if release.plan.episode is not None else "examples",
      per_step=release.drawn_per_step,
      flag=flag,
      **wanted,
  )


def spend(
    config: Run,
    epsilon: float,
    *,
    neighbours: report.Relation = "add-or-remove",
    warn: Callable[[str], None] = logging.warning,
) -> tuple[Run, Calibration]:
  """Set the noise with which all steps spend a target for `config.level`.

  `warn` takes one sentence on a noise multiplier above a tenth of a step's
  tasks.

  Returns:
    the config with this noise, and the calibration.

  Raises:
    PlanError: epsilon cannot be reached, or only with more noise than all tasks
      of a step together; or no training unit fills a task.
    UnsoundPlanError: the level has no guarantee.
  """
  if not config.release.filled:
    task = config.release.plan.task_form
    raise PlanError(
        f"no unit of level '{config.release.levels[0]}' in the training data"
        f" has the {task.way} classes with {task.shot + task.query} examples"
        " each that a task takes, so nothing would be learned: take a smaller"
        " way, shot or query"
    )
  found = calibrate(config, epsilon=epsilon, neighbours=neighbours)
  share = found.noise_multiplier / found.per_step
  if share > _MOST_NOISE:
    quieter = dataclasses.replace(
        config.mechanism, noise_multiplier=_MOST_NOISE * found.per_step
    )
    spent = accounting.guarantee(
        config.release.replace(mechanism=quieter),
        steps=config.steps, delta=config.delta, level=config.level,
        neighbours=neighbours,
    ).epsilon
    # The noise is found to within a hundredth of epsilon.
    reached = report.rounded_up(1.01 * spent)
    advice = ", which is much:"
    if spent < _MOST_USEFUL:
      advice = ": give it,"
    text = (
        f"epsilon {epsilon:g} needs noise_multiplier"
        f" {found.noise_multiplier:g}, more than a tenth of the"
        f" {found.per_step:g} {found.drawn} of a step, so the model would learn"
        f" little; with steps={config.steps} on {config.release.hierarchy} the"
        f" smallest useful epsilon is {reached}{advice} take fewer steps,"
        f" or train on more units of level '{found.level}'"
    )
    if share > 1:
      raise PlanError(text)
    warn(text)
  noise = {"mechanism.noise_multiplier": found.noise_multiplier}
  return config.replace(noise), found


def _with_most_tasks(
    release: plan_lib.Release, **wanted: Any
) -> tuple[plan_lib.Release, str]:
  """Return the release with the most tasks per step, and the flag for it."""
  plan = accounting.max_tasks(release, **wanted)
  first, *others = plan.stages
  if isinstance(first, plan_lib.Poisson):
    first = plan_lib.Poisson(five_digits(first.p, math.floor))
    plan = dataclasses.replace(plan, stages=(first, *others))
  if plan.episode is not None and plan.episode.form == "independent":
    flag = f"--config.plan.episode.tasks={plan.episode.tasks}"
  else:
    stages = tuple(stages_lib.stage_text(stage) for stage in plan.stages)
    flag = f'--config.plan.stages="{stages}"'
  return release.replace(plan=plan), flag
