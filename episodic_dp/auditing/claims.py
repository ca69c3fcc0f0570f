"""Audit the claims of a release: claimed and measured epsilon by level."""

from collections.abc import Callable, Sequence
import dataclasses
import math
from typing import Any, NamedTuple

import numpy as np
import scipy

from episodic_dp import accounting
from episodic_dp import plan as plan_lib
from episodic_dp.accounting import report
from episodic_dp.auditing import attack
from episodic_dp.auditing import bounds
from episodic_dp.auditing import canaries
from episodic_dp.errors import PlanError
from episodic_dp.errors import RunError
from episodic_dp.output import phases
from episodic_dp.output import plotting
from episodic_dp.output import tables

_POINTS = 7  # Most points on the axis of steps.
_LEAST = 20_000  # Fewest simulated runs for choosing thresholds.
# The probability that an audit of sound levels finds a wrong law.
_FALSE_ALARM = 1e-6

Audited = tuple[canaries.Canary, dict[int, accounting.Guarantee]]
"""A canary of a level, and its claim after each of some numbers of steps."""


class Measured(NamedTuple):
  """The result of an attack.

  Attributes:
    bounds: number of steps -> lower bound on epsilon.
    distance: the largest distance between the distribution of a total in the
      runs and in simulated runs, of independent steps with the claimed noise.
    allowed: the distance that chance exceeds as rarely as an audit may be
      wrong.
  """

  bounds: dict[int, bounds.Bound]
  distance: float
  allowed: float


def audit(
    release: plan_lib.Release,
    level: str | None = None,
    *,
    steps: int,
    runs: int,
    delta: float = 0.01,
    confidence: float = 0.95,
    seed: int = 0,
) -> dict[str, Any]:
  """Attack the claims of a release; return plain data.

  Args:
    release: the release that makes the claims.
    level: the level to audit; None for all that can be audited.
    steps: number of steps of each run.
    runs: number of runs with the record, and of runs without it.
    delta: delta of both epsilons.
    confidence: joint confidence of all measured bounds of the last step.
    seed: seed of the runs' keys.

  Returns:
    The arguments, "stages", "clip_unit", "noise_multiplier", "holds",
    "not_audited" (level -> reason) and "levels": a list of "level",
    "neighbours", "claimed", "measured", "share", "holds", "distance" and
    "allowed_distance" (see `measure`), "bound", "attacked", "curve" and
    "assumptions".

  Raises:
    PlanError, UnsoundPlanError, RunError: nothing can be audited with these.
  """
  audited: dict[str, Audited] = {}
  skipped = {}
  for name in [level] if level else release.levels:
    try:
      audited[name] = _prepare(release, name, steps, delta)
    except ValueError as e:
      if level or name == release.levels[0]:
        raise
      skipped[name] = str(e)
  # The bounds of all levels hold together.
  each = 1 - (1 - confidence) / len(audited)
  most = bounds.most_epsilon(runs, delta, _of_one_threshold(each))
  for name, (_, claims) in audited.items():
    claim = claims[steps].epsilon
    if most <= claim:
      raise RunError(
          f"--runs={runs} can show at most epsilon {most:.3g} at"
          f" delta={delta:g}, but level '{name}' claims"
          f" {report.rounded_up(claim)}, so this audit could not fail: use more"
          " --runs, fewer --steps or more noise"
      )
  rows = []
  with (
      phases.phase("attacking"),
      phases.progress(2 * runs * len(audited), "run") as bar,
  ):
    for canary, claims in audited.values():
      measured = measure(
          canary, [*claims], runs=runs, delta=delta, confidence=each, seed=seed,
          false_alarm=_FALSE_ALARM / len(audited), progress=bar.update,
      )
      rows.append(_row(canary, claims, measured))
  return {
      "stages": release.stage_lines,
      "clip_unit": release.mechanism.clip_unit,
      "noise_multiplier": release.mechanism.noise_multiplier,
      "steps": steps,
      "delta": delta,
      "confidence": confidence,
      "runs": runs,
      "seed": seed,
      "levels": rows,
      "not_audited": skipped,
      "holds": all(row["holds"] for row in rows),
  }


def _prepare(
    release: plan_lib.Release, level: str, steps: int, delta: float
) -> Audited:
  """Make the canary and the claims of a level before anything runs."""
  claims = {
      t: accounting.guarantee(release, steps=t, delta=delta, level=level)
      for t in _grid(release.plan, steps)
  }
  last = claims[steps]
  if not math.isfinite(last.epsilon):
    raise PlanError(
        f"level '{level}' has no finite epsilon after {steps} steps, so there"
        " is no claim to audit: use fewer --steps or more noise"
    )
  small = canaries.miniature(release, level)
  direction = "add" if last.direction == "add" else "remove"
  return canaries.worst_case(small, level, direction=direction), claims


def _grid(plan: plan_lib.SamplingPlan, steps: int) -> list[int]:
  """Choose numbers of steps, evenly on a log axis, in whole passes if any."""
  unit = plan.pass_steps or 1
  if steps % unit:
    raise PlanError(
        f"--steps={steps} is not a whole number of passes of {unit} steps:"
        f" use --steps={max(unit, steps - steps % unit)}"
    )
  points = np.geomspace(1, steps // unit, _POINTS)
  return sorted({unit * int(round(x)) for x in points})


def measure(
    canary: canaries.Canary,
    steps: Sequence[int],
    *,
    runs: int,
    delta: float,
    confidence: float,
    seed: int = 0,
    false_alarm: float = _FALSE_ALARM,
    progress: Callable[[int], None] | None = None,
) -> Measured:
  """Bound epsilon after each number of steps, and test the law of the steps.

  The bound is the larger one of two thresholds, which are wrong half as often
  each: one that simulated runs of the claimed law choose, and one that half of
  the real runs choose for the other half.

  A wrong law may leak more than any threshold shows. So both totals of both
  sides are compared with those of simulated runs, by the largest distance
  between two distribution functions. For n and m independent runs of one law,
  chance exceeds the allowed distance

      sqrt(ln(2 / a) / (2 n)) + sqrt(ln(2 / a) / (2 m))

  with probability 2 a at most (Massart, "The Tight Constant in the
  Dvoretzky-Kiefer-Wolfowitz Inequality", 1990); a is an eighth of
  `false_alarm`.
  """
  most, law = max(steps), attack.count_law(canary, steps=max(steps), seed=seed)
  simulated = max(runs, _LEAST)
  expected = attack.simulate(law, runs=simulated, steps=most, seed=seed)
  made = attack.many_runs(
      canary, runs=runs, steps=most, seed=seed, law=law, progress=progress
  )
  options: dict[str, Any] = dict(
      delta=delta, confidence=_of_one_threshold(confidence)
  )
  found = {}
  for t in steps:
    here = [side.scores[:, t - 1] for side in made]
    threshold = bounds.best_threshold(
        *(side.scores[:, t - 1] for side in expected), runs=runs, **options
    )
    better = max(
        bounds.measure_epsilon(*here, threshold=threshold, **options),
        bounds.measure_epsilon(*here, **options),
        key=lambda bound: bound.epsilon,
    )
    found[t] = dataclasses.replace(better, confidence=confidence)
  reference = attack.simulate(law, steps=most, seed=seed + 1)
  distances = []
  for side, other in zip(made, reference):
    for columns in zip(side.totals.T, other.totals.T):
      test = scipy.stats.ks_2samp(*columns, method="asymp")
      distances.append(test.statistic)
  log_odds = math.log(16 / false_alarm) / 2
  allowed = sum(
      math.sqrt(log_odds / len(side.totals))
      for side in (made.with_record, reference.with_record)
  )
  return Measured(found, float(max(distances)), allowed)


def _of_one_threshold(confidence: float) -> float:
  """Return the confidence of each of two bounds, of which the larger counts."""
  return (1 + confidence) / 2


def _row(
    canary: canaries.Canary,
    claims: dict[int, accounting.Guarantee],
    measured: Measured,
) -> dict[str, Any]:
  """Return the result of one level as plain data."""
  steps = max(claims)
  claim, last = claims[steps], measured.bounds[steps]
  return {
      "level": claim.level,
      "neighbours": claim.neighbours,
      "claimed": claim.epsilon,
      "measured": last.epsilon,
      "share": last.epsilon / claim.epsilon if claim.epsilon else None,
      "holds": (
          last.epsilon <= claim.epsilon
          and measured.distance <= measured.allowed
      ),
      "distance": measured.distance,
      "allowed_distance": measured.allowed,
      "bound": {"direction": last.direction, "confidence": last.confidence},
      "attacked": " > ".join(canary.release.stage_lines),
      "curve": [
          {
              "steps": t,
              "claimed": claims[t].epsilon,
              "measured": measured.bounds[t].epsilon,
          }
          for t in claims
      ],
      "assumptions": list(claim.assumptions),
  }


def table(result: dict[str, Any]) -> str:
  """Format the result of `audit` as a table, with its assumptions."""
  header = (
      "level", "claimed", "measured", "share", "delta", "confidence",
      "direction", "neighbours",
  )
  rows = []
  shared: dict[str, None] = {}
  for row in result["levels"]:
    share = "-"
    if row["share"] is not None:
      share = f"{100 * row['share']:.0f} %"
    rows.append((
        row["level"],
        report.rounded_up(row["claimed"]),
        report.rounded_down(row["measured"]),
        share,
        f"{result['delta']:g}",
        f"{100 * result['confidence']:g} %",
        row["bound"]["direction"],
        row["neighbours"],
    ))
    shared |= dict.fromkeys(row["assumptions"])
  lines = [
      f"steps={result['steps']}, noise multiplier"
      f" {result['noise_multiplier']:g} per {result['clip_unit']}",
      " > ".join(result["stages"]),
      "",
      tables.text(header, rows),
      "",
      "claimed: upper bound on epsilon by the accountant;",
      f"measured: lower bound on epsilon by {result['runs']} runs with a"
      " worst-case record and the same number without;",
      "all measured bounds hold together at the confidence.",
      "",
      "Attacked in place of the whole, at the same rates and distances:",
      *(f"  {row['level']}, in {row['attacked']}" for row in result["levels"]),
  ]
  for name, sentence in result["not_audited"].items():
    lines += ["", f"{name}: not audited", f"  {sentence}"]
  return "\n".join([
      *lines, "", "The claim assumes:", *(f"  - {s}" for s in shared)
  ])


def verdict(result: dict[str, Any]) -> str | None:
  """Return one sentence if a claim is refuted, else None."""
  found = []
  for row in result["levels"]:
    refuted = f"the claim for level '{row['level']}' is refuted: "
    if row["measured"] > row["claimed"]:
      found.append(
          f"{refuted}epsilon is at least"
          f" {report.rounded_down(row['measured'])} at delta"
          f" {result['delta']:g} (confidence {100 * result['confidence']:g} %),"
          f" and {row['claimed']:.4g} is claimed"
      )
    if row["distance"] > row["allowed_distance"]:
      found.append(
          f"{refuted}the noise or the independence of the steps is not as"
          f" claimed (distance {row['distance']:.2g} from simulated runs, where"
          f" chance exceeds {row['allowed_distance']:.2g} once in"
          f" {1 / _FALSE_ALARM:,.0f} audits at most)"
      )
  return "; ".join(found) or None


@plotting.styled
def draw(result: dict[str, Any]) -> plotting.Figure:
  """Plot claimed and measured epsilon over the steps, a panel per level."""
  rows = result["levels"]
  figure = plotting.figure(4.4, width=1.2 + 4.2 * len(rows))
  figure.suptitle(
      f"{' > '.join(result['stages'])}\nz = {result['noise_multiplier']:g} per"
      f" {result['clip_unit']}, δ = {result['delta']:g}"
  )
  (panels,) = figure.subplots(1, len(rows), squeeze=False)
  for axes, row in zip(panels, rows):
    steps, claimed, measured = (
        [point[name] for point in row["curve"]]
        for name in ("steps", "claimed", "measured")
    )
    axes.fill_between(steps, measured, claimed, color="0.92", linewidth=0)
    axes.plot(steps, claimed, label="claimed: at most", **plotting.series(0))
    axes.plot(
        steps, measured, **plotting.series(1),
        label=f"measured: at least ({100 * result['confidence']:g} %)",
    )
    axes.set_title(row["level"])
    axes.set_xlabel("steps T")
    axes.set_ylabel(f"ε ({row['neighbours']})")
    if len(steps) > 1:
      axes.set_xscale("log")
    plotting.ticks(axes.xaxis, steps)
    axes.set_ylim(bottom=0)
    axes.legend(loc="upper left")
  return figure
