"""Curves of epsilon around a config: what it would cost a little otherwise.

Each sweep is plain data for a picture and a JSON file: panels of lines, with
the config's own point on each line that passes through it.

  steps             epsilon after T steps
  noise_multiplier  epsilon over z
  tasks             epsilon over the tasks of a step, at the same z
  stages            epsilon when only the first k stages sample
  comparison        the printed theorem, what is true, and plain composition
"""

from collections.abc import Callable, Sequence
import dataclasses
from typing import Any

from episodic_dp import accounting
from episodic_dp import plan as plan_lib
from episodic_dp.analysis import sweep_comparison
from episodic_dp.analysis import sweep_parts
from episodic_dp.analysis import sweep_plans
from episodic_dp.config import RunConfig

_POINTS = 17


def sweep(
    name: str, config: RunConfig, result: dict[str, Any]
) -> dict[str, Any]:
  """The data of one sweep.

  Args:
    name: one of `SWEEPS`.
    config: of the curves' own points.
    result: of `costs.account` for it.

  Returns:
    "sweep", "delta", "steps", "noise_multiplier", "clip_unit", "stages" and
    "panels": a list of "title", "x_label", "y_label", "x_scale", "y_scale"
    ("log" or "linear"), "x_ticks" (value -> text, or None) and "lines": a list
    of "label", "style", "x", "y" (lists; null: no guarantee) and "own" ([x, y]
    of the config, or None). An infinite epsilon is the string "inf".

  Raises:
    PlanError: the name is unknown, or the config has nothing to sweep.
  """
  run = _swept(name, config, result)
  return {
      "sweep": name,
      "delta": run.delta,
      "steps": run.steps,
      "noise_multiplier": run.mechanism.noise_multiplier,
      "clip_unit": run.mechanism.clip_unit,
      "stages": result["entries"][0]["plan"]["stages"],
      "panels": SWEEPS[name](run),
  }


def check(
    names: Sequence[str], config: RunConfig, result: dict[str, Any]
) -> None:
  """Refuses what `sweep` would, before the first of several is drawn.

  Raises:
    PlanError: as `sweep`.
  """
  for name in names:
    run = _swept(name, config, result)
    if name == "comparison":
      sweep_comparison.compared_levels(run)


def _swept(
    name: str, config: RunConfig, result: dict[str, Any]
) -> sweep_parts.SweptRun:
  """What is swept; PlanError where there is nothing."""
  check_names([name])
  own = {
      level: g["epsilon"]
      for level, g in result["guarantees"].items()
      if g["epsilon"] != "inf"
  }
  if not own:
    raise plan_lib.PlanError(
        f"sweep '{name}' has nothing to draw: no level of this config has a"
        " finite epsilon; raise noise_multiplier, or see the reasons printed"
    )
  return sweep_parts.SweptRun(
      config.release, result["steps"], result["delta"], own
  )


def check_names(names: Sequence[str]) -> None:
  """PlanError for a sweep that does not exist."""
  for name in names:
    if name not in SWEEPS:
      raise plan_lib.PlanError(
          f"unknown sweep '{name}': choose among {', '.join(SWEEPS)}"
      )


# One function per sweep -------------------------------------------------------


def _steps(run: sweep_parts.SweptRun) -> list[dict[str, Any]]:
  """Epsilon after other numbers of steps."""
  steps = sweep_parts.steps_around(run.steps)
  lines = []
  for level in sweep_parts.with_progress(run.own, "steps"):
    values = accounting.epsilon_curve(
        run.release, steps=steps, delta=run.delta, level=level
    )
    lines.append(sweep_parts.line(level, steps, values, run.steps))
  return [
      sweep_parts.panel("ε over the number of steps", "steps T", lines, run)
  ]


def _noise_multiplier(run: sweep_parts.SweptRun) -> list[dict[str, Any]]:
  """Epsilon with other noise."""
  own = run.mechanism.noise_multiplier
  # The curve goes on where the noise of a count of norms leaves no room for it.
  mechanism = run.mechanism.with_fixed_norm
  noises = [own * 2.0 ** (k / 4) for k in range(-8, _POINTS - 8)]

  def change(z):
    return dict(
        mechanism=dataclasses.replace(mechanism, noise_multiplier=z)
    )

  lines = sweep_parts.level_lines(run, "noise_multiplier", noises, change, own)
  return [sweep_parts.panel(
      f"ε over the noise, {run.steps} steps", "noise multiplier z", lines, run
  )]


def _tasks(run: sweep_parts.SweptRun) -> list[dict[str, Any]]:
  """Epsilon with more or fewer tasks a step, at the same noise."""
  plans = {sweep_plans.expected_tasks(run.hierarchy, run.plan): run.plan}
  for k in range(-_POINTS // 2, _POINTS // 2 + 1):
    other = sweep_plans.with_more_tasks(run.hierarchy, run.plan, 2.0 ** (k / 2))
    if other is not None:
      plans[sweep_plans.expected_tasks(run.hierarchy, other)] = other
  if len(plans) < 2:
    raise plan_lib.PlanError(
        f"sweep 'tasks' cannot change how many tasks stage"
        f" {run.plan.stages[0]} draws: use Poisson(p) or FixedSize(n) there"
    )
  lines = sweep_parts.level_lines(
      run, "tasks", sorted(plans), lambda x: dict(plan=plans[x]),
      sweep_plans.expected_tasks(run.hierarchy, run.plan),
  )
  what = (
      "tasks" if run.plan.episode else f"units of '{run.hierarchy.levels[0]}'"
  )
  return [sweep_parts.panel(
      f"ε over the {what} of a step, {run.steps} steps",
      f"expected {what} per step", lines, run,
  )]


def _stages(run: sweep_parts.SweptRun) -> list[dict[str, Any]]:
  """Epsilon when only the first k stages sample."""
  if run.mechanism.clip_unit == plan_lib.EPISODE:
    raise plan_lib.PlanError(
        "sweep 'stages' replaces stages by All(), which tasks cut out of drawn"
        " classes do not allow: use a config whose tasks are units of the"
        " hierarchy (form='unit')"
    )
  depth = run.hierarchy.depth

  def change(k):
    # The plan is only accounted: All() would not fit the episode's numbers.
    stages = (*run.plan.stages[:k], *[plan_lib.All()] * (depth - k))
    return dict(
        plan=plan_lib.SamplingPlan(
            stages, allow_short_units=run.plan.allow_short_units
        )
    )

  lines = sweep_parts.level_lines(
      run, "stages", list(range(1, depth + 1)), change, depth
  )
  for line in lines:
    # Without any sampling: the Gaussian alone, and no sampler's error.
    distance = sweep_parts.largest_sensitivity(
        accounting.unit_profiles(
            run.release.replace(**change(0)), line["label"]
        )
    )
    line["x"].insert(0, 0)
    line["y"].insert(0, None if distance is None else accounting.epsilon(
        1.0, 1.0, distance, steps=run.steps, delta=run.delta
    ))
  ticks = {0: "0\n(all of everything)"} | {
      k: f"{k}\n{'' if k == 1 else '+ '}{name}"
      for k, name in enumerate(run.hierarchy.levels, 1)
  }
  panel = sweep_parts.panel(
      f"ε over the stages that sample (the others take all), {run.steps} steps",
      "stages that sample, from the first level down", lines, run,
  )
  return [panel | {"x_scale": "linear", "x_ticks": ticks}]


SWEEPS: dict[str, Callable[[sweep_parts.SweptRun], list[dict[str, Any]]]] = {
    "steps": _steps,
    "noise_multiplier": _noise_multiplier,
    "tasks": _tasks,
    "stages": _stages,
    "comparison": sweep_comparison.comparison,
}
