"""The sweep `comparison`: the printed theorem beside what is true of a plan."""

from collections.abc import Mapping
import dataclasses
from typing import Any

import numpy as np

from episodic_dp import accounting
from episodic_dp import plan as plan_lib
from episodic_dp.accounting.profiles import amplification
from episodic_dp.accounting.profiles import unit_profile
from episodic_dp.analysis import sweep_parts
from episodic_dp.analysis import sweep_plans

_THIS = "corrected, this config"
_PRINTED = "as printed (not valid)"
_STYLES = ("own", "other")  # Of this config, and with tasks drawn otherwise.


@dataclasses.dataclass(frozen=True, eq=False)
class _Compared:
  """One level of a run, and what is compared of it.

  Attributes:
    run: the config's.
    level: below the first.
    eta: the largest probability that a step draws a unit.
    distance: of a unit, in standard deviations of the noise.
    releases: name -> the release whose true guarantee is drawn, at most two.
    profiles: name -> what one step of it tells.
  """

  run: sweep_parts.SweptRun
  level: str
  eta: float
  distance: float
  releases: Mapping[str, plan_lib.Release]
  profiles: Mapping[str, unit_profile.UnitProfiles]

  @property
  def title(self) -> str:
    stages = self.run.hierarchy.level_index(self.level) + 1
    return f"{self.level}: {stages} stages, η = {self.eta:.4g}"

  @property
  def plain(self) -> str:
    return f"no amplification (distance {self.distance:g})"


def compared_levels(run: sweep_parts.SweptRun) -> list[str]:
  """The levels that the comparison has panels of.

  Raises:
    PlanError: there is none; one sentence.
  """
  levels = [
      level for k, level in enumerate(run.hierarchy.levels)
      if k > 0 and level in run.own and sweep_parts.largest_sensitivity(
          accounting.unit_profiles(run.release, level)
      ) is not None
  ]
  passes = isinstance(run.plan.stages[0], plan_lib.RandomAllocation)
  if passes or not levels:
    raise plan_lib.PlanError(
        "sweep 'comparison' is about single steps that draw a tree: it needs"
        " a level below the first with a guarantee, no record that recurs and"
        " no RandomAllocation; leave it out of --sweep, or try --config=glyphs"
    )
  return levels


def comparison(run: sweep_parts.SweptRun) -> list[dict[str, Any]]:
  """Two panels a level below the first: delta of a step, epsilon over steps.

  Raises:
    PlanError: the plan has nothing to compare; one sentence.
  """
  panels = []
  for level in sweep_parts.with_progress(compared_levels(run), "comparison"):
    compared = _compare(run, level)
    panels += [_one_step(compared), _over_steps(compared)]
  return panels


def _compare(run: sweep_parts.SweptRun, level: str) -> _Compared:
  """What is drawn of a level: this config, and its tasks drawn otherwise."""
  releases = {_THIS: run.release}
  other = sweep_plans.with_other_sampler(run.hierarchy, run.plan)
  if other is not None:
    name = f"corrected, tasks by {type(other.stages[0]).__name__}"
    releases[name] = run.release.replace(plan=other)
  profiles = {
      name: accounting.unit_profiles(release, level)
      for name, release in releases.items()
  }
  distance = sweep_parts.largest_sensitivity(profiles[_THIS])
  assert distance is not None  # Levels without one are not compared.
  return _Compared(
      run,
      level,
      plan_lib.inclusion_rate(run.hierarchy, run.plan, level),
      distance,
      releases,
      profiles,
  )


def _one_step(compared: _Compared) -> dict[str, Any]:
  """The panel of delta(epsilon) of one step."""
  run, profiles = compared.run, compared.profiles
  # To where the true delta of a step is far below the one asked for.
  end = 1.0
  while end < 64 and max(
      _delta(p, np.asarray([end]))[0] for p in profiles.values()
  ) > run.delta / 100:
    end *= 1.25
  epsilons = np.geomspace(end / 1000, end, 121)
  lines = [
      sweep_parts.line(name, epsilons, _delta(p, epsilons), style=style)
      for (name, p), style in zip(profiles.items(), _STYLES)
  ]
  z = run.mechanism.noise_multiplier
  lines += [
      sweep_parts.line(
          _PRINTED, epsilons,
          [
              accounting.theorem3_as_printed(compared.eta, e, z)
              for e in epsilons
          ],
          style="invalid",
      ),
      sweep_parts.line(
          compared.plain, epsilons,
          amplification.hockey_stick(epsilons, compared.distance),
          style="plain",
      ),
  ]
  title = f"{compared.title}\nδ(ε) of one step"
  return sweep_parts.panel(title, "ε", lines, run) | {
      "y_label": "δ", "y_range": [run.delta / 100, 1.0]
  }


def _delta(
    profiles: unit_profile.UnitProfiles, epsilons: np.ndarray
) -> np.ndarray:
  """float64[n]: the delta of one step in the worse direction."""
  return np.max([
      unit_profile.profile(profiles, epsilons, direction)
      for direction in amplification.DIRECTIONS
  ], axis=0)


def _over_steps(compared: _Compared) -> dict[str, Any]:
  """The panel of epsilon over the number of steps."""
  run = compared.run
  steps = sweep_parts.steps_around(run.steps)
  lines = []
  for (name, release), style in zip(compared.releases.items(), _STYLES):
    values = accounting.epsilon_curve(
        release, steps=steps, delta=run.delta, level=compared.level
    )
    lines.append(sweep_parts.line(
        name, steps, values, run.steps if name == _THIS else None, style
    ))
  # The subsampled Gaussian that the paper proposes to account with: rate eta,
  # noise z; and the Gaussian alone.
  z = run.mechanism.noise_multiplier
  for name, rate, distance, style in (
      (_PRINTED, compared.eta, 1 / z, "invalid"),
      (compared.plain, 1.0, compared.distance, "plain"),
  ):
    values = [
        accounting.epsilon(1.0, rate, distance, steps=t, delta=run.delta)
        for t in steps
    ]
    lines.append(sweep_parts.line(name, steps, values, style=style))
  return sweep_parts.panel(
      f"{compared.title}\nε over the number of steps", "steps T", lines, run
  )
