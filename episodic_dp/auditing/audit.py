"""Audits what a config describes: claimed and measured epsilon by level."""

from collections.abc import Sequence
import dataclasses
import math
from typing import Any

import numpy as np

from episodic_dp import accounting
from episodic_dp import plan as plan_lib
from episodic_dp.accounting import report
from episodic_dp.auditing import attack
from episodic_dp.auditing import bounds
from episodic_dp.auditing import canaries
from episodic_dp.auditing import natural
from episodic_dp.auditing import populations
from episodic_dp.output import phases

_POINTS = 7  # At most, on the axis of steps.
_SIMULATED = 20_000  # Runs of the law, from which the threshold comes.
_MOST_RUNS = 10_000_000  # More are not asked for.


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
  """How to audit.

  Attributes:
    steps: of each run.
    delta: at which both epsilons are stated.
    confidence: that all measured bounds of the last step hold together.
    runs: with the record, and as many without it.
    canary: "worst" or "natural".
    method: "many" runs of one canary, or "one" run of many canaries.
    canaries: m of the one run.
    seed: of keys, coins and simulated scores.

  Raises:
    ValueError: a value out of range, on construction.
  """

  steps: int
  delta: float
  confidence: float = 0.95
  runs: int = 50_000
  canary: str = "worst"
  method: str = "many"
  canaries: int = 1000
  seed: int = 0

  def __post_init__(self) -> None:
    for name, low, high in (
        ("steps", 1, 10**6), ("runs", 2, _MOST_RUNS), ("canaries", 2, 10**5)
    ):
      value = getattr(self, name)
      if not low <= value <= high:
        raise ValueError(
            f"--{name}={value} must be a whole number from {low} to {high}"
        )
    for name in ("delta", "confidence"):
      value = getattr(self, name)
      if not 0 < value < 1:
        raise ValueError(f"--{name}={value} must lie between 0 and 1")
    if self.canary == "natural" and self.method == "one":
      raise ValueError(
          "--canary=natural with --method=one: one run needs canaries with a"
          " coordinate each, use --canary=worst or --method=many"
      )


def audit(
    release: plan_lib.Release,
    options: Options,
    level: str | None = None,
) -> dict[str, Any]:
  """Everything that the command prints, as plain data.

  Args:
    release: whose claims are attacked.
    options: how.
    level: the one to audit; None for all that can be.

  Raises:
    PlanError, UnsoundPlanError, ValueError: nothing can be audited so.
  """
  wanted = [level] if level else list(release.levels)
  specs, skipped = [], {}
  for name in wanted:
    try:
      specs.append(_prepare(release, options, name))
    except (plan_lib.PlanError, ValueError) as e:
      if level or name == release.levels[0]:
        raise
      skipped[name] = str(e)
  # Bounds of all levels hold together.
  each = 1 - (1 - options.confidence) / len(specs)
  for spec in specs:
    _check_runs(spec, options, each)
  total = sum(spec.runs for spec in specs)
  levels = []
  with phases.phase("attacking"), phases.progress(total, "run") as bar:
    for spec in specs:
      bar.describe(spec.level)
      levels.append(_run(spec, options, each, bar))
  return {
      "stages": _stage_lines(release.hierarchy, release.plan),
      "clip_unit": release.mechanism.clip_unit,
      "noise_multiplier": release.mechanism.noise_multiplier,
      **dataclasses.asdict(options),
      "confidence_of_each_level": each,
      "levels": levels,
      "not_audited": skipped,
      "holds": all(row["holds"] for row in levels),
  }


def _stage_lines(
    hierarchy: plan_lib.Hierarchy, plan: plan_lib.SamplingPlan
) -> list[str]:
  """How many units each level has and how they are drawn, level by level."""
  return [
      f"{hierarchy.num_units(k)} {name} by {plan_lib.stage_text(stage)}"
      for k, (name, stage) in enumerate(zip(hierarchy.levels, plan.stages))
  ]


@dataclasses.dataclass(frozen=True, kw_only=True)
class AuditSpec:
  """What is run for one level.

  Attributes:
    level: the privacy unit.
    canary: the two data sets; of one run, the one.
    included: of one run, bool[canaries].
    grid: numbers of steps, rising; the last is that of the run.
    claims: the guarantee at each.
    runs: how many.
  """

  level: str
  canary: canaries.Canary
  included: np.ndarray | None
  grid: tuple[int, ...]
  claims: tuple[accounting.Guarantee, ...]
  runs: int


def _prepare(
    release: plan_lib.Release, options: Options, level: str
) -> AuditSpec:
  """Canaries and claims; refuses before anything is run."""
  grid = _grid(release.plan, options.steps)
  if options.method == "one":
    grid = grid[-1:]
    if level != release.levels[0]:
      raise plan_lib.PlanError(
          f"--method=one audits level '{release.levels[0]}', whose units"
          f" can be absent one by one; for level '{level}' use --method=many"
      )
    canary, included = canaries.many_in_one_run(
        release, canaries=options.canaries, seed=options.seed
    )
    runs, claims = 1, _claims(release, options, level, grid)
  else:
    small = populations.miniature(release, level)
    included, runs = None, 2 * options.runs
    claims = _claims(release, options, level, grid)
    if options.canary == "natural":
      canary = natural.mislabelled(small, level, seed=options.seed)
    else:
      add = claims[-1].direction == "add"
      canary = canaries.worst_case(
          small, level, direction="add" if add else "remove"
      )
  if not math.isfinite(claims[-1].epsilon):
    raise plan_lib.PlanError(
        f"level '{level}' has no finite epsilon after {grid[-1]} steps, so"
        " there is no claim to audit: use fewer --steps or more noise"
    )
  return AuditSpec(
      level=level, canary=canary, included=included, grid=grid, claims=claims,
      runs=runs,
  )


def _claims(
    release: plan_lib.Release,
    options: Options,
    level: str,
    grid: Sequence[int],
) -> tuple[accounting.Guarantee, ...]:
  return tuple(
      accounting.guarantee(release, steps=t, delta=options.delta, level=level)
      for t in grid
  )


def _grid(plan: plan_lib.SamplingPlan, steps: int) -> tuple[int, ...]:
  """Numbers of steps, about evenly spaced on a log axis.

  Whole passes where there are passes.
  """
  unit = 1
  first = plan.stages[0]
  if isinstance(first, plan_lib.RandomAllocation):
    unit = first.steps
    if steps % unit:
      raise plan_lib.PlanError(
          f"--steps={steps} is not a whole number of passes of {unit} steps:"
          f" use --steps={max(unit, steps - steps % unit)}"
      )
  points = np.geomspace(1, steps // unit, _POINTS)
  return tuple(sorted({unit * int(round(x)) for x in points}))


def _check_runs(spec: AuditSpec, options: Options, confidence: float) -> None:
  """Refuses an audit that could not find the claim to be wrong."""
  if spec.included is not None:
    _check_canaries(spec, spec.included, options, confidence)
    return
  claim = spec.claims[-1].epsilon

  def reaches(runs):
    counted = runs if options.canary == "worst" else runs - runs // 2
    return bounds.most_epsilon(counted, options.delta, confidence) > claim

  if reaches(options.runs):
    return
  needed = options.runs
  while needed < _MOST_RUNS and not reaches(needed):
    needed *= 2
  remedy = f"use --runs={needed}" if reaches(needed) else (
      "use fewer --steps, or more noise"
  )
  most = bounds.most_epsilon(options.runs, options.delta, confidence)
  raise ValueError(
      f"--runs={options.runs} can show at most epsilon {most:.3g} at"
      f" --delta={options.delta:g}, and level '{spec.level}' claims"
      f" {report.rounded_up(claim)}, so that this audit could not fail:"
      f" {remedy}, or a larger --delta"
  )


def _check_canaries(
    spec: AuditSpec, included: np.ndarray, options: Options, confidence: float
) -> None:
  """As `_check_runs`, for one run with many canaries."""
  claim = spec.claims[-1].epsilon
  right = bounds.one_run_bound(
      np.where(included, 1.0, -1.0), included, delta=options.delta,
      confidence=confidence,
  )
  if right.epsilon <= claim:
    raise ValueError(
        f"--canaries={options.canaries} can show at most epsilon"
        f" {right.epsilon:.3g} at --delta={options.delta:g}, and level"
        f" '{spec.level}' claims {report.rounded_up(claim)}, so that this"
        " audit could not fail: use more --canaries and a --delta well below"
        " 1 / canaries, or fewer --steps"
    )


def _run(
    spec: AuditSpec, options: Options, confidence: float, bar: phases.Progress
) -> dict[str, Any]:
  """The attack on one level, as plain data."""
  one = options.method == "one"
  bounds_of = _bound_of_one_run if one else _bounds_of_many_runs
  found = bounds_of(spec, options, confidence, bar)
  last, claim = found[-1], spec.claims[-1]
  hierarchy = spec.canary.present.hierarchy
  return {
      "level": spec.level,
      "neighbours": claim.neighbours,
      "claimed": claim.epsilon,
      "measured": last.epsilon,
      "share": last.epsilon / claim.epsilon if claim.epsilon else None,
      "holds": last.epsilon <= claim.epsilon,
      "bound": last.as_dict(),
      "direction_of_claim": claim.direction,
      "attacked": " > ".join(_stage_lines(hierarchy, spec.canary.release.plan)),
      "curve": [
          {"steps": c.steps, "claimed": c.epsilon, "measured": b.epsilon}
          for c, b in zip(spec.claims, found)
      ],
      "assumptions": list(claim.assumptions),
  }


def _bound_of_one_run(
    spec: AuditSpec, options: Options, confidence: float, bar: phases.Progress
) -> list[bounds.Bound]:
  """The bound after the last step, of one run with many canaries."""
  scores = attack.one_run(spec.canary, steps=options.steps, seed=options.seed)
  bar.update(1)
  bound = bounds.one_run_bound(
      scores, spec.included, delta=options.delta, confidence=confidence
  )
  return [bound]


def _bounds_of_many_runs(
    spec: AuditSpec, options: Options, confidence: float, bar: phases.Progress
) -> list[bounds.Bound]:
  """The bound at every point of the grid, of many runs of one canary."""
  made = attack.many_runs(
      spec.canary, runs=options.runs, steps=options.steps, seed=options.seed,
      progress=bar.update,
  )
  simulated = _simulated(spec, options)
  return [
      bounds.lower_bound(
          made.with_record[:, t - 1], made.without_record[:, t - 1],
          delta=options.delta, confidence=confidence,
          threshold=_threshold(options, confidence, simulated, t - 1),
      )
      for t in spec.grid
  ]


def _simulated(spec: AuditSpec, options: Options) -> tuple[np.ndarray, ...]:
  """Scores of runs that follow the law, with and without the record."""
  rng = np.random.default_rng(options.seed)
  return tuple(
      spec.canary.score.simulated(
          rng, _SIMULATED, options.steps, present=present
      )
      for present in (True, False)
  )


def _threshold(
    options: Options,
    confidence: float,
    simulated: tuple[np.ndarray, ...],
    column: int,
) -> float | None:
  """Fixed before the runs where their law is known; else a half chooses it."""
  if options.canary == "natural":
    return None
  present, absent = (scores[:, column] for scores in simulated)
  return bounds.best_threshold(
      present, absent, delta=options.delta, confidence=confidence,
      runs=options.runs,
  )
