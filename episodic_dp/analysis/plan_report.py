"""A proposal of tasks, steps and noise, and what is said of it."""

from collections.abc import Sequence
import dataclasses
import math
import os
from typing import Any

from episodic_dp import accounting
from episodic_dp import plan as plan_lib
from episodic_dp.accounting import assumptions
from episodic_dp.accounting import report
from episodic_dp.analysis import alignment
from episodic_dp.analysis import calibration
from episodic_dp.analysis import planning
from episodic_dp.analysis import public_proxy
from episodic_dp.config import RunConfig
from episodic_dp.output import phases
from episodic_dp.output import tables

_BUDGETS = (20_000, 100_000, 500_000)  # Tasks, where none are given.
_PATIENCE = 30.0  # Minutes that the choice among these takes at most.
_COLUMNS = (
    "tasks a step", "steps", "noise multiplier", "epsilon",
    "signal to noise of a step", "effective steps", "minutes", "",
)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Proposal:
  """What `propose` found.

  Attributes:
    problem: what was asked, with what was measured of it.
    measured: on public tasks.
    rows: ways to spend the budget, or the best way of several budgets.
    choice: the one of them to take.
    least_epsilon: where even the choice is too noisy to learn, the least
      epsilon that is not (None where there is none); 0 otherwise.
  """

  problem: planning.Problem
  measured: public_proxy.Measured
  rows: Sequence[planning.Row]
  choice: planning.Row
  least_epsilon: float | None

  def minutes(self, row: planning.Row) -> float:
    """What its tasks take here; sampling and validation come on top."""
    return row.steps * row.tasks * self.measured.seconds_per_task / 60

  def why(self) -> str:
    """One sentence or two, about the choice."""
    choice = self.choice
    said = (
        f"{_short(choice.tasks)} tasks a step for {choice.steps} steps:"
        f" {100 * choice.share:.0f} % of a step is signal, so that they are"
        f" worth {_short(choice.score)} steps without noise."
    )
    total = choice.tasks * choice.steps
    others = [
        row for row in self.rows
        if abs(row.tasks * row.steps / total - 1) < 0.1 and row is not choice
    ]  # fmt: skip
    fewer = [row for row in others if row.tasks < choice.tasks]
    more = [row for row in others if row.tasks > choice.tasks]
    if fewer:
      said += (
          f" Steps of {_short(fewer[0].tasks)} tasks drown in noise"
          f" ({_short(fewer[0].score)})" + ("," if more else ".")
      )
    if more:
      said += (
          (" and of" if fewer else " Steps of")
          + f" {_short(more[-1].tasks)} are too few"
          f" ({_short(more[-1].score)})."
      )
    return said

  def warnings(self) -> list[str]:
    """Sentences that must not be missed."""
    problem, measured = self.problem, self.measured
    found = []
    if self.least_epsilon != 0:
      found.append(self._infeasible())
    if measured.warm.squared < 2 * measured.warm.error:
      found.append(
          "the alignment is hardly above its error: take the order of the"
          " rows for a guess"
      )
    if problem.config.release.hierarchy.copies:
      found.append(
          f"epsilon is that of one {problem.level}: records recur in several,"
          " and episodic-dp account says what is left of them"
      )
    read = (
        "no file of the data was read"
        if measured.proxy == "glyphs"
        else "of the data only validation tasks were computed with"
    )
    found.append(
        f"private data were not used: {read}, beside the public sizes of the"
        " hierarchy"
    )
    return found

  def _infeasible(self) -> str:
    problem = self.problem
    said = (
        f"epsilon {problem.epsilon:g} leaves at most {self.choice.score:.2g}"
        f" effective steps, and fewer than {planning.LEAST_SCORE:g} teach"
        " little:"
    )
    if self.least_epsilon is None:
      return f"{said} no epsilon helps with so few tasks, so give more --tasks"
    least = report.rounded_up(self.least_epsilon)
    return (
        f"{said} the least epsilon with which one of these rows has so many is"
        f" {least}; or take more participants and tasks"
    )

  def table(self) -> str:
    """For people."""
    problem, measured = self.problem, self.measured
    lines = [
        f"Public tasks: {measured.tasks} of {measured.proxy}; their gradients"
        f" of {measured.warm.parameters} entries agree by"
        f" {math.sqrt(measured.start.squared):.3f} at the start and"
        f" {math.sqrt(measured.warm.squared):.3f} after"
        f" {measured.warm_steps} steps without noise.",
        f"Clip norm {problem.clip_norm:g}: nine of ten are longer.",
        "",
        tables.text(_COLUMNS, [self._cells(row) for row in self.rows]),
        "",
        f"Epsilon is of one {problem.level} at delta {problem.delta:g}, by the"
        " accountant; effective steps, as",
        "many without noise, compare plans of this one learner"
        " (in a checkout: docs/choosing.md).",
        "",
        f"Chosen: {self.why()}",
    ]
    lines += [f"Note: {warning}." for warning in self.warnings()]
    return "\n".join(lines)

  def _cells(self, row: planning.Row) -> tuple[Any, ...]:
    return (
        _short(row.tasks),
        row.steps,
        f"{row.noise_multiplier:.4g}",
        report.rounded_up(row.epsilon),
        f"{row.signal_to_noise:.2f}",
        f"{row.score:.1f}",
        f"{self.minutes(row):.1f}",
        "chosen" if row is self.choice else "",
    )

  def as_dict(self) -> dict[str, Any]:
    """The same, JSON-able."""
    problem, measured = self.problem, self.measured
    return {
        "target_epsilon": problem.epsilon,
        "delta": problem.delta,
        "level": problem.level,
        "clip_norm": problem.clip_norm,
        "proxy": measured.proxy,
        "proxy_tasks": measured.tasks,
        "parameters": measured.warm.parameters,
        "start": _alignment(measured.start),
        "warm": _alignment(measured.warm) | {"steps": measured.warm_steps},
        "seconds_per_task": measured.seconds_per_task,
        "rows": [
            {
                "tasks": row.tasks,
                "steps": row.steps,
                "noise_multiplier": row.noise_multiplier,
                "epsilon": row.epsilon,
                "signal_to_noise": row.signal_to_noise,
                "effective_steps": row.score,
                "minutes": self.minutes(row),
                "chosen": row is self.choice,
                "flags": row.flags,
            }
            for row in self.rows
        ],
        "why": self.why(),
        "warnings": self.warnings(),
        "flags": self.choice.flags,
    }


def _short(number: float) -> str:
  """Without digits that nobody reads."""
  return f"{number:.0f}" if number >= 9.95 else f"{number:.1f}"


def _alignment(found: alignment.Alignment) -> dict[str, Any]:
  return {
      "alignment": math.sqrt(found.squared),
      "squared": found.squared,
      "squared_error": found.error,
      "norm_quantiles": {
          str(q): found.quantile(q) for q in (0.1, 0.25, 0.5, 0.75, 0.9)
      },
  }


def propose(
    config: RunConfig,
    *,
    epsilon: float | None = None,
    delta: float | None = None,
    level: str | None = None,
    tasks: int | None = None,
    minutes: float | None = None,
    proxy: str = "glyphs",
    data_dir: str | os.PathLike[str] | None = None,
    download: bool = False,
) -> Proposal:
  """Tasks per step, steps, noise and clip norm for an epsilon and a budget.

  Args:
    config: whose sampler, data and learner are kept.
    epsilon: not to be passed; None for `config.target_epsilon`.
    delta: None for `config.delta`.
    level: whose guarantee it is; None for `config.level`.
    tasks: of all steps together.
    minutes: in their place, turned into tasks by timing steps here; without
      either several budgets are compared.
    proxy: the public tasks, one of `public_proxy.PROXIES`.
    data_dir: of proxy "validation".
    download: likewise.

  Raises:
    PlanError: something is missing, out of range or cannot be reached.
    UnsoundPlanError: the level has no guarantee.
    ValueError, FileNotFoundError: the data of the proxy cannot be read.
  """
  epsilon = calibration.asked_epsilon(config, epsilon)
  delta, level = delta or config.delta, level or config.level
  _check(config, delta, level, tasks, minutes)
  public_proxy.check(config, proxy)
  with phases.phase("taking gradients of public tasks"):
    measured = public_proxy.measure(
        config, proxy, data_dir=data_dir, download=download
    )
  clip_norm = planning.clip_norm(measured.start, measured.warm)
  problem = planning.Problem(
      config=config, epsilon=epsilon, delta=delta, level=level,
      clip_norm=clip_norm, gradient=measured.clipped(clip_norm),
  )  # fmt: skip
  with phases.phase("calibrating the noise"):
    return solve(problem, measured, tasks=tasks, minutes=minutes)


def solve(
    problem: planning.Problem,
    measured: public_proxy.Measured,
    *,
    tasks: int | None = None,
    minutes: float | None = None,
) -> Proposal:
  """The proposal, of what was measured; see `propose`."""
  if minutes is not None:
    tasks = int(60 * minutes / measured.seconds_per_task)
  if tasks is not None:
    rows, choice = problem.choose(tasks)
  else:
    rows = [problem.choose(budget)[1] for budget in _BUDGETS]
    seconds = measured.seconds_per_task
    quick = [
        row for row in rows
        if row.steps * row.tasks * seconds <= 60 * _PATIENCE
    ]  # fmt: skip
    choice = (quick or rows[:1])[-1]
  least: float | None = 0.0
  if choice.score < planning.LEAST_SCORE:
    least = problem.least_epsilon(rows, planning.LEAST_SCORE)
  return Proposal(
      problem=problem, measured=measured, rows=rows, choice=choice,
      least_epsilon=least,
  )  # fmt: skip


def _check(
    config: RunConfig,
    delta: float,
    level: str,
    tasks: int | None,
    minutes: float | None,
) -> None:
  """PlanError or UnsoundPlanError, before anything is measured."""
  if None not in (tasks, minutes):
    raise plan_lib.PlanError(
        f"--tasks={tasks} and --minutes={minutes} are two budgets: give one"
    )
  least = planning.LEAST_STEPS
  if tasks is not None and tasks < least:
    raise plan_lib.PlanError(
        f"--tasks={tasks} are fewer than {least} steps of one task: give more,"
        f" such as --tasks={100 * least}"
    )
  if minutes is not None and not (minutes > 0 and math.isfinite(minutes)):
    raise plan_lib.PlanError(f"--minutes={minutes} must be positive")
  config.check_complete()
  planning.check(config)
  assumptions.refuse_un_noised(config.release.mechanism)
  accounting.guarantee(config.release, steps=1, delta=delta, level=level)
