"""What is known of a config without data: its plan, rates and guarantees."""

import dataclasses

import numpy as np

from episodic_dp import accounting
from episodic_dp import plan as plan_lib
from episodic_dp.analysis.inspection import rates as rates_lib
from episodic_dp.config import RunConfig

_CURVE_POINTS = 24


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlanSummary:
  """A described config, and what it costs.

  Attributes:
    release: what every step draws and releases.
    steps: T, no more than a target epsilon allows.
    delta: of all guarantees.
    rates: of every level, in tree order.
    guarantees: level -> guarantee, where one is proved.
    reasons: level -> why there is none.
    curve_steps: where the curves were computed.
    curves: level -> epsilon at curve_steps, for finite guarantees.
  """

  release: plan_lib.Release
  steps: int
  delta: float
  rates: tuple[rates_lib.Rates, ...]
  guarantees: dict[str, accounting.Guarantee]
  reasons: dict[str, str]
  curve_steps: tuple[int, ...]
  curves: dict[str, list[float]]


def summarize(config: RunConfig) -> PlanSummary:
  """Everything that a config says before any data are read.

  Raises:
    PlanError, UnsoundPlanError: one sentence.
  """
  release, steps = config.release, config.planned_steps
  delta = config.delta
  guarantees, reasons = {}, {}
  for level in release.levels:
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
      release=release,
      steps=steps,
      delta=delta,
      rates=rates_lib.rates(release.hierarchy, release.plan),
      guarantees=guarantees,
      reasons=reasons,
      curve_steps=tuple(points.tolist()),
      curves=curves,
  )
