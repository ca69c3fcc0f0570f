"""Compute and draw curves of epsilon around a config.

Each sweep is plain data for a figure and a JSON file: a line for each level,
with the config's own point marked.

  steps             epsilon after T steps
  noise_multiplier  epsilon over z
  tasks             epsilon over the tasks of a step, at the same z
  stages            epsilon when only the first k stages sample
  delta             epsilon at other deltas
"""

from collections.abc import Callable, Sequence
import dataclasses
import math
import os
import pathlib
from typing import Any

import numpy as np

from episodic_dp import accounting
from episodic_dp import errors
from episodic_dp import plan as plan_lib
from episodic_dp.config import RunConfig
from episodic_dp.output import files
from episodic_dp.output import phases
from episodic_dp.output import plotting

_POINTS = 17
_STEP_POINTS = 25

_Change = Callable[[Any], dict[str, Any]]


@dataclasses.dataclass(frozen=True)
class _Run:
  """A described config and its epsilons.

  Attributes:
    release: of every step.
    steps: number of steps.
    delta: of all guarantees.
    own: level -> the config's own epsilon, where that is finite.
  """

  release: plan_lib.Release
  steps: int
  delta: float
  own: dict[str, float]

  def epsilon(
      self, level: str, delta: float | None = None, **parts: Any
  ) -> float | None:
    """Return epsilon with other parts of the release, None for no guarantee."""
    try:
      return accounting.guarantee(
          self.release.replace(**parts), steps=self.steps,
          delta=delta or self.delta, level=level,
      ).epsilon
    except (errors.PlanError, errors.UnsoundPlanError):
      return None


def sweep(
    name: str, config: RunConfig, result: dict[str, Any]
) -> dict[str, Any]:
  """Compute the data of one sweep.

  Args:
    name: one of `SWEEPS`.
    config: of the curves' own points.
    result: of `costs.account` for it.

  Returns:
    "sweep", "delta", "steps", "noise_multiplier", "clip_unit", "stages",
    "x_label" and "lines": a list of "label", "x", "y" (lists; None: no
    guarantee) and "own" ([x, y] of the config). An infinite epsilon is the
    string "inf".

  Raises:
    PlanError: the name is unknown, or the config has nothing to sweep.
  """
  check_names([name])
  own = {
      level: g["epsilon"]
      for level, g in result["guarantees"].items()
      if g["epsilon"] != "inf"
  }
  if not own:
    raise errors.PlanError(
        f"sweep '{name}' has nothing to draw: no level of this config has a"
        " finite epsilon; raise noise_multiplier, or see the reasons printed"
    )
  run = _Run(config.release, result["steps"], result["delta"], own)
  with phases.phase(f"sweep {name}"):
    x_label, lines = SWEEPS[name](run)
  mechanism = run.release.mechanism
  return {
      "sweep": name,
      "delta": run.delta,
      "steps": run.steps,
      "noise_multiplier": mechanism.noise_multiplier,
      "clip_unit": mechanism.clip_unit,
      "stages": [plan_lib.stage_text(s) for s in run.release.plan.stages],
      "x_label": x_label,
      "lines": lines,
  }


def check_names(names: Sequence[str]) -> None:
  """Raise PlanError for a sweep that does not exist."""
  for name in names:
    if name not in SWEEPS:
      raise errors.PlanError(
          f"unknown sweep '{name}': choose among {', '.join(SWEEPS)}"
      )


_Swept = tuple[str, list[dict[str, Any]]]  # Label of the x axis, and lines.


def _lines(
    run: _Run, values: Sequence[Any], change: _Change, own: Any
) -> list[dict[str, Any]]:
  """Return a line per level: epsilon where `change(value)` is replaced."""
  return [
      _line(
          level, values,
          [
              run.own[level] if x == own else run.epsilon(level, **change(x))
              for x in values
          ],
          own,
      )
      for level in run.own
  ]


def _line(
    level: str, xs: Sequence[Any], ys: Sequence[float | None], own: Any
) -> dict[str, Any]:
  values = [y if y is None or math.isfinite(y) else "inf" for y in ys]
  return {
      "label": level, "x": list(xs), "y": values,
      "own": [own, values[list(xs).index(own)]],
  }


def _steps(run: _Run) -> _Swept:
  """Vary the number of steps."""
  spread = np.geomspace(1, 10 * run.steps, _STEP_POINTS).round().astype(int)
  steps = sorted({run.steps, *spread.tolist()})
  return "steps T", [
      _line(
          level, steps,
          accounting.epsilon_curve(
              run.release, steps=steps, delta=run.delta, level=level
          ),
          run.steps,
      )
      for level in run.own
  ]


def _noise_multiplier(run: _Run) -> _Swept:
  """Vary the noise."""
  own = run.release.mechanism.noise_multiplier
  # A fixed norm: with less noise a private quantile would leave no room.
  mechanism = run.release.mechanism.with_fixed_norm
  noises = [own * 2.0 ** (k / 4) for k in range(-8, _POINTS - 8)]

  def change(z: float) -> dict[str, Any]:
    return dict(mechanism=dataclasses.replace(mechanism, noise_multiplier=z))

  return "noise multiplier z", _lines(run, noises, change, own)


def _tasks(run: _Run) -> _Swept:
  """Vary the tasks of a step, at the same noise."""
  hierarchy, plan = run.release.hierarchy, run.release.plan
  own = expected_tasks(hierarchy, plan)
  plans = {own: plan}
  for k in range(-_POINTS // 2, _POINTS // 2 + 1):
    other = with_more_tasks(hierarchy, plan, 2.0 ** (k / 2))
    if other is not None:
      plans[expected_tasks(hierarchy, other)] = other
  if len(plans) < 2:
    raise errors.PlanError(
        f"sweep 'tasks' cannot change how many tasks stage {plan.stages[0]}"
        " draws: use Poisson(p) or FixedSize(n) there"
    )
  drawn = "tasks" if plan.episode else f"units of '{hierarchy.levels[0]}'"
  lines = _lines(run, sorted(plans), lambda x: dict(plan=plans[x]), own)
  return f"expected {drawn} per step", lines


def _stages(run: _Run) -> _Swept:
  """Let only the first k stages sample, and the others take all."""
  if run.release.mechanism.clip_unit == plan_lib.EPISODE:
    raise errors.PlanError(
        "sweep 'stages' replaces stages by All(), which tasks cut out of drawn"
        " classes do not allow: use a config whose tasks are units of the"
        " hierarchy (form='unit')"
    )
  plan, depth = run.release.plan, run.release.hierarchy.depth

  def change(k: int) -> dict[str, Any]:
    # The plan is only accounted: All() would not fit the episode's numbers.
    stages = (*plan.stages[:k], *[plan_lib.All()] * (depth - k))
    return dict(plan=plan_lib.SamplingPlan(
        stages, allow_short_units=plan.allow_short_units
    ))

  label = "stages that sample, from the first level down"
  return label, _lines(run, range(depth + 1), change, depth)


def _delta(run: _Run) -> _Swept:
  """Vary delta: the whole (epsilon, delta) curve."""
  deltas = sorted({run.delta, *(10.0 ** (-k / 2) for k in range(2, 25))})
  return "δ", _lines(run, deltas, lambda delta: dict(delta=delta), run.delta)


SWEEPS: dict[str, Callable[[_Run], _Swept]] = {
    "steps": _steps,
    "noise_multiplier": _noise_multiplier,
    "tasks": _tasks,
    "stages": _stages,
    "delta": _delta,
}


# Plans with other numbers of tasks ------------------------------------------


def expected_tasks(
    hierarchy: plan_lib.Hierarchy, plan: plan_lib.SamplingPlan
) -> float:
  """Return the expected tasks (without an episode: primary units) of a step."""
  if plan.episode is not None:
    return plan_lib.tasks_per_step(hierarchy, plan)
  units = hierarchy.num_units(0)
  return units * float(plan.stages[0].rate(np.asarray([units]))[0])


def with_more_tasks(
    hierarchy: plan_lib.Hierarchy, plan: plan_lib.SamplingPlan, factor: float
) -> plan_lib.SamplingPlan | None:
  """Return the plan with about `factor` times the tasks, None if none fits."""
  stage, episode = plan.stages[0], plan.episode
  form = episode.form if episode is not None else None
  try:
    if episode is not None and form == "independent":
      tasks = max(1, round((episode.tasks or 1) * factor))
      return dataclasses.replace(
          plan, episode=dataclasses.replace(episode, tasks=tasks)
      )
    if isinstance(stage, plan_lib.Poisson):
      other: plan_lib.Stage = plan_lib.Poisson(stage.p * factor)
    elif isinstance(stage, plan_lib.FixedSize):
      way = episode.way if episode is not None and form == "disjoint" else 1
      other = plan_lib.FixedSize(way * max(1, round(stage.n * factor / way)))
    elif isinstance(stage, plan_lib.RandomAllocation):
      other = plan_lib.RandomAllocation(max(1, round(stage.steps / factor)))
    else:
      return None
    found = dataclasses.replace(plan, stages=(other, *plan.stages[1:]))
    plan_lib.validate(hierarchy, found)
  except (errors.PlanError, errors.UnsoundPlanError):
    return None
  return found


# Files ----------------------------------------------------------------------


def write(data: dict[str, Any], folder: str | os.PathLike) -> pathlib.Path:
  """Write FOLDER/sweep_NAME.json and .png of one sweep; return the figure.

  Raises:
    OSError: the folder cannot be written.
  """
  path = pathlib.Path(folder) / f"sweep_{data['sweep']}.png"
  files.write_json(path.with_suffix(".json"), data)
  plotting.save(draw(data), path)
  return path


def title(data: dict[str, Any]) -> str:
  """Write two lines: the stages, and the noise and delta."""
  return (
      f"{' > '.join(data['stages'])}\nz = {data['noise_multiplier']:g} per"
      f" {data['clip_unit']}, δ = {data['delta']:g}"
  )


@plotting.styled
def draw(data: dict[str, Any]) -> plotting.Figure:
  """Draw one sweep, with the config's own points."""
  figure = plotting.figure(4.6)
  axes = figure.subplots()
  for number, line in enumerate(data["lines"]):
    look = plotting.series(number)
    # A gap where there is no guarantee or no finite one.
    values = [math.nan if y in (None, "inf") else y for y in line["y"]]
    axes.plot(line["x"], values, label=line["label"], **look | {"marker": ""})
    axes.plot(*line["own"], **look | {"markersize": 9})
  if data["sweep"] != "stages":
    axes.set_xscale("log")
  axes.set_yscale("log")
  axes.set_title(title(data), loc="left")
  axes.set_xlabel(data["x_label"])
  axes.set_ylabel("ε")
  axes.legend()
  return figure
