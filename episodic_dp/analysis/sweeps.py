"""Curves of epsilon around a config: what it would cost a little otherwise.

Each sweep is plain data for a picture and a JSON file: panels of lines, with
the config's own point on each line that passes through it.

  steps             epsilon after T steps
  noise_multiplier  epsilon over z
  tasks             epsilon over the tasks of a step, at the same z
  stages            epsilon when only the first k stages sample
  comparison        the printed theorem, what is true, and plain composition
"""

from collections.abc import Callable, Iterable, Sequence
import dataclasses
import math
from typing import Any

import numpy as np
import tqdm

from episodic_dp import accounting
from episodic_dp import plan as plan_lib
from episodic_dp.accounting.profiles import amplification
from episodic_dp.accounting.profiles import unit_profile
from episodic_dp.config import describe

_POINTS = 17
_STEP_POINTS = 25


@dataclasses.dataclass(frozen=True)
class _Run:
  """A described config and what it costs."""

  release: plan_lib.Release
  steps: int
  delta: float
  own: dict[str, float]  # level -> its finite epsilon

  @property
  def hierarchy(self) -> plan_lib.Hierarchy:
    return self.release.hierarchy

  @property
  def plan(self) -> plan_lib.SamplingPlan:
    return self.release.plan

  @property
  def mechanism(self) -> plan_lib.Mechanism:
    return self.release.mechanism

  def epsilon(
      self, level: str, steps: int | None = None, **parts: Any
  ) -> float | None:
    """Epsilon with other parts of the release, or other steps.

    None where that has no guarantee.
    """
    try:
      return accounting.guarantee(
          self.release.replace(**parts), steps=steps or self.steps,
          delta=self.delta, level=level,
      ).epsilon
    except (plan_lib.PlanError, plan_lib.UnsoundPlanError):
      return None


def sweep(name: str, config: Any, result: dict[str, Any]) -> dict[str, Any]:
  """The data of one sweep.

  Args:
    name: one of `SWEEPS`.
    config: a ConfigDict; see `describe`.
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
  run = _Run(
      describe.describe(config), result["steps"], result["delta"], own
  )
  return {
      "sweep": name,
      "delta": run.delta,
      "steps": run.steps,
      "noise_multiplier": run.mechanism.noise_multiplier,
      "clip_unit": run.mechanism.clip_unit,
      "stages": result["entries"][0]["plan"]["stages"],
      "panels": SWEEPS[name](run),
  }


def check_names(names: Sequence[str]) -> None:
  """PlanError for a sweep that does not exist."""
  for name in names:
    if name not in SWEEPS:
      raise plan_lib.PlanError(
          f"unknown sweep '{name}': choose among {', '.join(SWEEPS)}"
      )


# One function per sweep -------------------------------------------------------


def _steps(run: _Run) -> list[dict[str, Any]]:
  steps = _around(run.steps, 1, 10 * run.steps)
  lines = []
  for level in _watched(run.own, "steps"):
    values = accounting.epsilon_curve(
        run.release, steps=steps, delta=run.delta, level=level
    )
    lines.append(_line(level, steps, values, run.steps))
  return [_panel("ε over the number of steps", "steps T", lines, run)]


def _noise_multiplier(run: _Run) -> list[dict[str, Any]]:
  own = run.mechanism.noise_multiplier
  # The curve goes on where the noise of a count of norms leaves no room for it.
  mechanism = run.mechanism.with_fixed_norm
  noises = [own * 2.0 ** (k / 4) for k in range(-8, _POINTS - 8)]

  def change(z):
    return dict(
        mechanism=dataclasses.replace(mechanism, noise_multiplier=z)
    )

  lines = _lines(run, "noise_multiplier", noises, change, own)
  return [_panel(
      f"ε over the noise, {run.steps} steps", "noise multiplier z", lines, run
  )]


def _tasks(run: _Run) -> list[dict[str, Any]]:
  plans = {_drawn(run.hierarchy, run.plan): run.plan}
  for k in range(-_POINTS // 2, _POINTS // 2 + 1):
    other = _scaled(run.hierarchy, run.plan, 2.0 ** (k / 2))
    if other is not None:
      plans[_drawn(run.hierarchy, other)] = other
  if len(plans) < 2:
    raise plan_lib.PlanError(
        f"sweep 'tasks' cannot change how many tasks stage"
        f" {run.plan.stages[0]} draws: use Poisson(p) or FixedSize(n) there"
    )
  lines = _lines(
      run, "tasks", sorted(plans), lambda x: dict(plan=plans[x]),
      _drawn(run.hierarchy, run.plan),
  )
  what = (
      "tasks" if run.plan.episode else f"units of '{run.hierarchy.levels[0]}'"
  )
  return [_panel(
      f"ε over the {what} of a step, {run.steps} steps",
      f"expected {what} per step", lines, run,
  )]


def _stages(run: _Run) -> list[dict[str, Any]]:
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

  lines = _lines(run, "stages", list(range(1, depth + 1)), change, depth)
  for line in lines:
    # Without any sampling: the Gaussian alone, and no sampler's error.
    distance = _own_distance(
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
  panel = _panel(
      f"ε over the stages that sample (the others take all), {run.steps} steps",
      "stages that sample, from the first level down", lines, run,
  )
  return [panel | {"x_scale": "linear", "x_ticks": ticks}]


def _comparison(run: _Run) -> list[dict[str, Any]]:
  levels = [
      level for k, level in enumerate(run.hierarchy.levels)
      if k > 0 and level in run.own and _own_distance(
          accounting.unit_profiles(run.release, level)
      ) is not None
  ]
  passes = isinstance(run.plan.stages[0], plan_lib.RandomAllocation)
  if passes or not levels:
    raise plan_lib.PlanError(
        "sweep 'comparison' is about single steps that draw a tree: it needs"
        " a level below the first with a guarantee, no record that recurs and"
        " no RandomAllocation; try --config=glyphs"
    )
  panels = []
  for level in _watched(levels, "comparison"):
    panels += _compared(run, level)
  return panels


def _compared(run: _Run, level: str) -> list[dict[str, Any]]:
  """delta(epsilon) of a step, and epsilon over steps, of one level."""
  stages = run.hierarchy.level_index(level) + 1
  z = run.mechanism.noise_multiplier
  eta = plan_lib.inclusion_rate(run.hierarchy, run.plan, level)
  # name -> the plan whose true guarantee is drawn
  plans = {"corrected, this config": run.plan}
  other = _other_sampler(run.hierarchy, run.plan)
  if other is not None:
    plans[f"corrected, tasks by {type(other.stages[0]).__name__}"] = other
  kinds = {
      name: accounting.unit_profiles(run.release.replace(plan=p), level)
      for name, p in plans.items()
  }
  distance = _own_distance(kinds["corrected, this config"])
  assert distance is not None
  plain = f"no amplification (distance {distance:g})"
  printed = "as printed (not valid)"

  def largest(units, epsilons):
    return np.max([
        unit_profile.profile(units, epsilons, d)
        for d in amplification.DIRECTIONS
    ], axis=0)

  # To where the true delta of a step is far below the one asked for.
  end = 1.0
  while end < 64 and max(
      largest(k, np.asarray([end]))[0] for k in kinds.values()
  ) > run.delta / 100:
    end *= 1.25
  epsilons = np.geomspace(end / 1000, end, 121)
  step_lines = [
      _line(name, epsilons, largest(k, epsilons), style=style)
      for (name, k), style in zip(kinds.items(), ("own", "other"))
  ]
  step_lines += [
      _line(
          printed, epsilons,
          [accounting.theorem3_as_printed(eta, e, z) for e in epsilons],
          style="invalid",
      ),
      _line(
          plain, epsilons, amplification.hockey_stick(epsilons, distance),
          style="plain",
      ),
  ]
  one = f"{level}: {stages} stages, η = {eta:.4g}"
  left = _panel(f"{one}\nδ(ε) of one step", "ε", step_lines, run) | {
      "y_label": "δ", "y_range": [run.delta / 100, 1.0]
  }

  steps = _around(run.steps, 1, 10 * run.steps)
  lines = []
  for (name, p), style in zip(plans.items(), ("own", "other")):
    values = accounting.epsilon_curve(
        run.release.replace(plan=p), steps=steps, delta=run.delta, level=level
    )
    lines.append(_line(
        name, steps, values, run.steps if style == "own" else None, style
    ))
  # The subsampled Gaussian that the paper proposes to account with: rate eta,
  # noise z; and the Gaussian alone.
  for name, rate, d, style in (
      (printed, eta, 1 / z, "invalid"), (plain, 1.0, distance, "plain")
  ):
    values = [
        accounting.epsilon(1.0, rate, d, steps=t, delta=run.delta)
        for t in steps
    ]
    lines.append(_line(name, steps, values, style=style))
  right = _panel(f"{one}\nε over the number of steps", "steps T", lines, run)
  return [left, right]


SWEEPS: dict[str, Callable[[_Run], list[dict[str, Any]]]] = {
    "steps": _steps,
    "noise_multiplier": _noise_multiplier,
    "tasks": _tasks,
    "stages": _stages,
    "comparison": _comparison,
}


# Pieces -----------------------------------------------------------------------


def _lines(
    run: _Run, name: str, values: Sequence[Any],
    change: Callable[[Any], dict[str, Any]], own: Any,
) -> list[dict[str, Any]]:
  """One line per level: epsilon where `change(value)` is replaced in the run.

  The config's own epsilon is known and not computed again.
  """
  found: dict[str, list[float | None]] = {level: [] for level in run.own}
  asked = [(level, x) for x in values for level in run.own]
  for level, x in _watched(asked, name):
    found[level].append(
        run.own[level] if x == own else run.epsilon(level, **change(x))
    )
  return [_line(level, values, found[level], own) for level in run.own]


def _line(
    label: str, xs: Iterable[Any], ys: Iterable[float | None],
    own: Any = None, style: str = "level",
) -> dict[str, Any]:
  x_values = [float(x) if isinstance(x, float) else int(x) for x in xs]
  y_values = [_number(y) for y in ys]
  point = None if own is None else [own, y_values[x_values.index(own)]]
  return {
      "label": label, "style": style, "x": x_values, "y": y_values,
      "own": point,
  }


def _number(value: float | None) -> float | str | None:
  if value is None or math.isfinite(value):
    return None if value is None else float(value)
  return "inf"


def _panel(
    title: str, x_label: str, lines: list[dict[str, Any]], run: _Run
) -> dict[str, Any]:
  return {
      "title": title,
      "x_label": x_label,
      "y_label": f"ε at δ = {run.delta:g}",
      "x_scale": "log",
      "y_scale": "log",
      "x_ticks": None,
      "y_range": None,
      "lines": lines,
  }


def _around(own: int, low: int, high: int) -> list[int]:
  """Whole numbers from low to high, evenly in the logarithm, `own` among them.
  """
  numbers = np.geomspace(low, high, _STEP_POINTS).round().astype(int)
  return sorted({own, *numbers.tolist()})


def _own_distance(kinds: unit_profile.UnitProfiles) -> float | None:
  """The largest d_b of units of a tree; None for units that recur."""
  trees = [k for k in kinds if isinstance(k, amplification.Amplification)]
  if not trees or len(trees) < len(kinds):
    return None
  return max(kind.unit_sensitivity for kind in trees)


def _drawn(
    hierarchy: plan_lib.Hierarchy, plan: plan_lib.SamplingPlan
) -> float:
  """The expected tasks (without an episode: primary units) of a step."""
  if plan.episode is not None:
    return plan_lib.tasks_per_step(hierarchy, plan)
  units = hierarchy.num_units(0)
  return units * float(plan.stages[0].rate(np.asarray([units]))[0])


def _scaled(
    hierarchy: plan_lib.Hierarchy, plan: plan_lib.SamplingPlan, factor: float
) -> plan_lib.SamplingPlan | None:
  """The plan with about `factor` times the tasks, or None."""
  stage, episode = plan.stages[0], plan.episode
  try:
    if episode is not None and episode.form == "independent":
      assert episode.tasks is not None
      tasks = max(1, round(episode.tasks * factor))
      return dataclasses.replace(
          plan, episode=dataclasses.replace(episode, tasks=tasks)
      )
    other: plan_lib.Stage
    if isinstance(stage, plan_lib.Poisson):
      other = plan_lib.Poisson(stage.p * factor)
    elif isinstance(stage, plan_lib.FixedSize):
      disjoint = episode is not None and episode.form == "disjoint"
      unit = episode.way if episode is not None and disjoint else 1
      other = plan_lib.FixedSize(unit * max(1, round(stage.n * factor / unit)))
    elif isinstance(stage, plan_lib.RandomAllocation):
      other = plan_lib.RandomAllocation(max(1, round(stage.steps / factor)))
    else:
      return None
    result = dataclasses.replace(plan, stages=(other, *plan.stages[1:]))
    plan_lib.validate(hierarchy, result)
    return result
  except (plan_lib.PlanError, plan_lib.UnsoundPlanError):
    return None


def _other_sampler(
    hierarchy: plan_lib.Hierarchy, plan: plan_lib.SamplingPlan
) -> plan_lib.SamplingPlan | None:
  """The plan with tasks by FixedSize in place of Poisson, or the reverse."""
  stage, units = plan.stages[0], hierarchy.num_units(0)
  other: plan_lib.Stage
  try:
    if isinstance(stage, plan_lib.Poisson):
      other = plan_lib.FixedSize(max(1, round(stage.p * units)))
    elif isinstance(stage, plan_lib.FixedSize):
      other = plan_lib.Poisson(min(1.0, stage.n / units))
    else:
      return None
    result = dataclasses.replace(plan, stages=(other, *plan.stages[1:]))
    plan_lib.validate(hierarchy, result)
    return result
  except (plan_lib.PlanError, plan_lib.UnsoundPlanError):
    return None


def _watched(items: Iterable[Any], name: str) -> Iterable[Any]:
  """The items, with a progress bar for people who wait over two seconds."""
  items = list(items)
  return tqdm.tqdm(
      items, desc=f"sweep {name}", delay=2, leave=False, disable=None
  )
