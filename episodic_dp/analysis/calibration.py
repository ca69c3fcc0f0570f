"""What an epsilon allows: the noise, the steps or the tasks of a config."""

from collections.abc import Callable
import dataclasses
import math
from typing import Any

from episodic_dp import accounting
from episodic_dp import plan as plan_lib
from episodic_dp.accounting import report
from episodic_dp.config import RunConfig

_DIGITS = 5


@dataclasses.dataclass(frozen=True, kw_only=True)
class Calibration:
  """A config with one number changed, so that it spends an asked epsilon.

  Attributes:
    solve: what was changed, one of `SOLVERS`.
    target_epsilon: what was asked for.
    epsilon: what is spent, at most the target.
    delta: of both.
    level: whose guarantee it is.
    noise_multiplier: of the changed config, and so are the rest.
    steps: how many there are.
    drawn: what a step draws, "tasks" or (without an episode) "examples".
    per_step: how many of them are expected.
    flags: of the command line, for the change.
  """

  solve: str
  target_epsilon: float
  epsilon: float
  delta: float
  level: str
  noise_multiplier: float
  steps: int
  drawn: str
  per_step: float
  flags: tuple[str, ...]

  def sentence(self) -> str:
    """The answer, with the flags that make it so."""
    noise = f"noise_multiplier {self.noise_multiplier:g}"
    answer, rest = {
        "noise_multiplier": (f"{noise} spends", f"at {self.steps} steps"),
        "steps": (f"{self.steps} steps spend", f"with {noise}"),
        "tasks": (
            f"{self.per_step:g} {self.drawn} per step spend",
            f"at {self.steps} steps with {noise}",
        ),
    }[self.solve]
    return (
        f"{answer} epsilon {report.rounded_up(self.epsilon)} of"
        f" {self.target_epsilon:g} for a {self.level} (delta {self.delta:g})"
        f" {rest}: {' '.join(self.flags)}"
    )

  def as_dict(self) -> dict[str, Any]:
    """Its attributes, JSON-able."""
    return dataclasses.asdict(self) | {"flags": list(self.flags)}


def asked_epsilon(config: RunConfig, epsilon: float | None) -> float:
  """The epsilon, or where it is None that of the config.

  Raises:
    PlanError: there is none, or it is out of range.
  """
  epsilon = config.target_epsilon if epsilon is None else epsilon
  if epsilon is None:
    raise plan_lib.PlanError(
        "no epsilon is asked for: give --epsilon=3 or --config.target_epsilon=3"
    )
  if not (epsilon > 0 and math.isfinite(epsilon)):
    raise plan_lib.PlanError(
        f"epsilon {epsilon!r} must be a positive finite number, such as"
        " --epsilon=3"
    )
  return epsilon


def calibrate(
    config: RunConfig,
    *,
    solve: str = "noise_multiplier",
    epsilon: float | None = None,
    delta: float | None = None,
    level: str | None = None,
) -> Calibration:
  """Changes one number of a config so that it spends an epsilon.

  Args:
    config: whose other numbers are kept.
    solve: which number: "noise_multiplier" (the least), "steps" or "tasks" (of
      a step; the most).
    epsilon: the one asked for; None for `config.target_epsilon`.
    delta: None for `config.delta`.
    level: None for `config.level`.

  Raises:
    PlanError: a value is missing or out of range, or cannot be reached.
    UnsoundPlanError: the level has no guarantee.
  """
  if solve not in SOLVERS:
    raise plan_lib.PlanError(
        f"solve={solve!r} must be one of {', '.join(SOLVERS)}"
    )
  epsilon = asked_epsilon(config, epsilon)
  problem = _Problem(
      release=config.release,
      steps=config.steps,
      epsilon=epsilon,
      delta=config.delta if delta is None else delta,
      level=level or config.level,
  )
  solved, flags = SOLVERS[solve](problem)
  release = solved.release
  tasks = release.plan.episode is not None
  count = plan_lib.tasks_per_step if tasks else plan_lib.examples_per_step
  return Calibration(
      solve=solve,
      target_epsilon=epsilon,
      epsilon=solved.spent(),
      delta=solved.delta,
      level=solved.level,
      noise_multiplier=release.mechanism.noise_multiplier,
      steps=solved.steps,
      drawn="tasks" if tasks else "examples",
      per_step=count(release.hierarchy, release.plan),
      flags=flags,
  )


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Problem:
  """A run, and the epsilon that it may spend."""

  release: plan_lib.Release
  steps: int
  epsilon: float
  delta: float
  level: str

  def spent(self) -> float:
    return accounting.guarantee(
        self.release, steps=self.steps, delta=self.delta, level=self.level
    ).epsilon

  def with_parts(self, **parts: Any) -> "_Problem":
    return dataclasses.replace(self, release=self.release.replace(**parts))


_Solved = tuple[_Problem, tuple[str, ...]]


def _noise_multiplier(problem: _Problem) -> _Solved:
  if math.isinf(problem.release.mechanism.clip_norm):
    raise plan_lib.PlanError(
        "config.mechanism.clip_norm is infinite, and noise is a multiple of"
        " it: give --config.mechanism.clip_norm=1.0, or leave private=0 out of"
        " --config"
    )
  mechanism = accounting.calibrate(
      problem.release, steps=problem.steps, epsilon=problem.epsilon,
      delta=problem.delta, level=problem.level,
  )
  noise = _rounded(mechanism.noise_multiplier, math.ceil)
  mechanism = dataclasses.replace(mechanism, noise_multiplier=noise)
  return (
      problem.with_parts(mechanism=mechanism),
      (f"--config.mechanism.noise_multiplier={noise:g}",),
  )


def _steps(problem: _Problem) -> _Solved:
  found = accounting.max_steps(
      problem.release, target_epsilon=problem.epsilon, delta=problem.delta,
      level=problem.level,
  )
  if not found:
    raise plan_lib.PlanError(
        f"epsilon {problem.epsilon:g} at level '{problem.level}' is passed by"
        " the first step: raise noise_multiplier or epsilon"
    )
  return (
      dataclasses.replace(problem, steps=found), (f"--config.steps={found}",)
  )


def _tasks(problem: _Problem) -> _Solved:
  plan = accounting.max_tasks(
      problem.release, steps=problem.steps, target_epsilon=problem.epsilon,
      delta=problem.delta, level=problem.level,
  )
  first, *others = plan.stages
  if isinstance(first, plan_lib.Poisson):
    first = plan_lib.Poisson(_rounded(first.p, math.floor))
    plan = dataclasses.replace(plan, stages=(first, *others))
  solved = problem.with_parts(plan=plan)
  if plan.episode is not None and plan.episode.form == "independent":
    return solved, (f"--config.episode.tasks={plan.episode.tasks}",)
  stages = tuple(plan_lib.stage_text(stage) for stage in plan.stages)
  return solved, (f'--config.plan.stages="{stages}"',)


def _rounded(value: float, round_to: Callable[[float], int]) -> float:
  """Five significant digits, to the side that costs no more."""
  scale = 10.0 ** (_DIGITS - 1 - math.floor(math.log10(value)))
  return round_to(value * scale) / scale


SOLVERS: dict[str, Callable[[_Problem], _Solved]] = {
    "noise_multiplier": _noise_multiplier,
    "steps": _steps,
    "tasks": _tasks,
}
