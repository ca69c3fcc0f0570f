"""What is known of a config without data: its plan, rates and guarantees."""

import dataclasses
from typing import Any

import numpy as np

from episodic_dp import accounting
from episodic_dp import plan as plan_lib
from episodic_dp.analysis.inspection import rates as rates_lib
from episodic_dp.config import describe

_CURVE_POINTS = 24


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlanSummary:
  """A described config, and what it costs.

  Attributes:
    hierarchy: the public sizes.
    plan: what every step draws.
    mechanism: what every step releases.
    steps: T, no more than a target epsilon allows.
    delta: of all guarantees.
    rates: of every level, in tree order.
    guarantees: level -> guarantee, where one is proved.
    reasons: level -> why there is none.
    curve_steps: where the curves were computed.
    curves: level -> epsilon at curve_steps, for finite guarantees.
  """

  hierarchy: plan_lib.Hierarchy
  plan: plan_lib.SamplingPlan
  mechanism: plan_lib.Mechanism
  steps: int
  delta: float
  rates: tuple[rates_lib.Rates, ...]
  guarantees: dict[str, accounting.Guarantee]
  reasons: dict[str, str]
  curve_steps: tuple[int, ...]
  curves: dict[str, list[float]]


def summarize(config: Any) -> PlanSummary:
  """Everything that a config says before any data are read.

  Args:
    config: a ConfigDict; see `describe`, and `steps`, `delta` and, optionally,
      `target_epsilon` and `target_level`.

  Raises:
    PlanError, UnsoundPlanError: one sentence.
  """
  release = describe.describe(config)
  hierarchy, plan = release.hierarchy, release.plan
  for name in ("steps", "delta"):
    if config.get(name) is None:
      raise plan_lib.PlanError(f"config.{name} is missing: set it")
  steps, delta = _steps(config, release), config.delta
  guarantees, reasons = {}, {}
  for level in hierarchy.levels:
    try:
      guarantees[level] = accounting.guarantee(
          release, steps=steps, delta=delta, level=level
      )
    except plan_lib.UnsoundPlanError as e:
      reasons[level] = str(e)
  # From the first to the last step, closer where the curve bends.
  share = np.linspace(0, 1, _CURVE_POINTS) ** 2
  points = np.unique((1 + (steps - 1) * share).round().astype(int))
  finite = [k for k, g in guarantees.items() if np.isfinite(g.epsilon)]
  curves = {
      level: accounting.epsilon_curve(
          release, steps=points.tolist(), delta=delta, level=level
      )
      for level in finite
  }
  return PlanSummary(
      hierarchy=hierarchy,
      plan=plan,
      mechanism=release.mechanism,
      steps=steps,
      delta=delta,
      rates=rates_lib.rates(hierarchy, plan),
      guarantees=guarantees,
      reasons=reasons,
      curve_steps=tuple(points.tolist()),
      curves=curves,
  )


def _steps(config: Any, release: plan_lib.Release) -> int:
  """The steps of the config, or those that its target epsilon allows."""
  target = config.get("target_epsilon")
  if target is None:
    return config.steps
  level = config.get("target_level") or release.levels[0]
  most = accounting.max_steps(
      release, target_epsilon=target, delta=config.delta, level=level,
      limit=config.steps,
  )
  if not most:
    raise plan_lib.PlanError(
        f"target_epsilon={target} at level '{level}' is passed by the first"
        " step: raise noise_multiplier or target_epsilon"
    )
  return most
