"""Compute the guarantees of a config, or of several runs on the same people."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from episodic_dp import _validate
from episodic_dp import accounting
from episodic_dp import plain
from episodic_dp import plan as plan_lib
from episodic_dp.accounting import ledger as ledger_lib
from episodic_dp.accounting import report
from episodic_dp.accounting import statement
from episodic_dp.accounting.guarantee import by_level
from episodic_dp.errors import PlanError
from episodic_dp.output import tables
from episodic_dp.plan import validation
from episodic_dp.run import Run

_COLUMNS = (
    "level", "epsilon", "delta", "direction", "eta", "distance", "neighbours"
)


def account(config: Run, *, attacks: bool = False) -> dict[str, Any]:
  """Compute the guarantees of every level, as plain data.

  Args:
    config: the config.
    attacks: whether to compute what an attacker gains too.

  Returns:
    The privacy statement of a run of `config.steps`
    (`accounting.run_statement`), with `guarantees` (level -> the fields of
    `accounting.Guarantee.as_dict`) and `no_guarantee` (level -> the reason).

  Raises:
    PlanError: one sentence.
  """
  assert config.delta is not None  # `Run.resolved` computed it.
  return accounting.run_statement(
      _ledger(config),
      delta=config.delta,
      fixed_seed=config.private_seed is not None,
      start=config.model.start and (config.model.start_digest or ""),
      backbone=config.data.backbone,
      attacks=attacks,
  )


def _ledger(config: Run) -> accounting.Ledger:
  """Return the ledger of all steps of a run under one key."""
  return accounting.Ledger().add(
      config.release, config.steps, continued=False
  )


def table(config: Run, result: Mapping[str, Any]) -> str:
  """Format the result of `account` as a table, with its assumptions.

  Args:
    config: the config of `account`.
    result: its result.
  """
  release = config.release
  rows = []
  for level, g in result["guarantees"].items():
    rows.append((
        level, _text(g["epsilon"]), report.rounded_delta(g["delta"]),
        g["direction"], f"{g['inclusion_rate']:.4g}",
        _distance(release, level), g["neighbours"],
    ))
  return "\n".join([
      f"steps={config.steps}, one clipped gradient per"
      f" {release.mechanism.clip_unit}, noise multiplier"
      f" {release.mechanism.noise_multiplier:g}",
      " > ".join(release.stage_lines),
      _task_line(release),
      "",
      tables.text(_COLUMNS, rows),
      "",
      "eta: the largest probability that a step samples one unit.",
      "distance: the largest change of a step's sum by one unit, in standard",
      "deviations of the noise.",
      *_refused_lines(result["no_guarantee"]),
      *_assumed_lines(result["guarantees"]),
  ])


def _task_line(release: plan_lib.Release) -> str:
  """Describe the classes and the examples of a task."""
  episode = release.plan.episode
  if episode is None:
    return "no tasks: the network learns from single examples"
  level = release.levels[release.class_level]
  lacking = ""
  if release.filled < 1:
    lacking = f"\n{validation.lacking(release.filled)}"
  return (
      f"a task has {episode.way} classes ({level}), each with examples"
      f" for support ({episode.shot}) and query ({episode.query}){lacking}"
  )


def _distance(release: plan_lib.Release, level: str) -> str:
  """Format how far one unit of the level can move the sum of a step."""
  if not release.mechanism.guaranteed:
    return "-"
  units = accounting.unit_profiles(release, level)
  return f"{max(unit.tail[1] for unit in units):.4g}"


def _refused_lines(refused: Mapping[str, str]) -> list[str]:
  return [f"{level}: no guarantee ({why})" for level, why in refused.items()]


def _assumed_lines(guarantees: Mapping[str, Any]) -> list[str]:
  """List the caveats and assumptions of all levels, each once."""
  lines = ["", "Assumed:"]
  for g in guarantees.values():
    for sentence in (g["caveat"], *g["assumptions"]):
      line = f"  - {sentence}"
      if sentence and line not in lines:
        lines.append(line)
  return lines


def curve(config: Run, result: Mapping[str, Any]) -> dict[str, Any]:
  """Compute epsilon over delta, and what an attacker gains, for every level.

  Args:
    config: the config of `account`.
    result: result of `account` for it; the curve includes its delta.

  Returns:
    "steps", "noise_multiplier", "clip_unit", "delta" (of the config), "deltas"
    and "epsilons": level -> a list; "false_positive_rates" and
    "true_positive_rates": level -> a list. An infinite epsilon is the string
    "inf".
  """
  mechanism = config.release.mechanism
  deltas = sorted({result["delta"], *(10.0**-k for k in range(1, 13))})

  def guarantee(level: str, delta: float) -> accounting.Guarantee:
    return accounting.guarantee(
        config.release, steps=config.steps, delta=delta, level=level
    )

  rates = np.geomspace(0.01, 1, 9)[:-1].tolist()
  epsilons, gains = {}, {}
  for level in result["guarantees"]:
    found = [guarantee(level, delta).epsilon for delta in deltas]
    epsilons[level] = plain.to_plain(found)
    own = guarantee(level, result["delta"])
    gains[level] = [own.attack(rate).true_positive_rate for rate in rates]
  return {
      "steps": config.steps,
      "noise_multiplier": mechanism.noise_multiplier,
      "clip_unit": mechanism.clip_unit,
      "delta": result["delta"],
      "deltas": deltas,
      "epsilons": epsilons,
      "false_positive_rates": rates,
      "true_positive_rates": gains,
  }


# Several runs -----------------------------------------------------------------


def account_runs(
    paths: Sequence[str],
    *,
    delta: float | None,
    group: int = 1,
    same_levels: Sequence[str] = (),
) -> dict[str, Any]:
  """Compute the cost of several runs together.

  Args:
    paths: work directories, privacy statements, or ledgers as JSON.
    delta: in (0, 1); None for that of the statements.
    group: number of units that are added or removed together.
    same_levels: levels whose units are the same although the trees differ.

  Returns:
    "delta", "parts" (name -> level -> epsilon), "guarantees" (level ->
    `Guarantee.as_dict`), "no_guarantee" (level -> reason), and "ledger".

  Raises:
    PlanError: a file cannot be read or is not a ledger, the runs are not known
      to have the same units, or no delta is given; one sentence.
  """
  if len(set(paths)) < len(paths):
    raise PlanError(
        f"a run is named twice among {', '.join(paths)}: name each once"
    )
  statements = {path: _read(path) for path in paths}
  combined = ledger_lib.compose(statements, same_levels=same_levels)
  if delta is None:
    delta = _delta(statements)
  levels = combined.levels
  found, refused = _by_level(combined, levels, delta=delta, group=group)
  parts = {}
  for name, part in combined.parts.items():
    of_part, _ = _by_level(part, levels, delta=delta, group=group)
    parts[name] = {level: g["epsilon"] for level, g in of_part.items()}
  return {
      "delta": delta,
      "parts": parts,
      "guarantees": found,
      "no_guarantee": refused,
      "ledger": combined.ledger.as_dict(),
  }


def _read(path: str) -> Any:
  try:
    return statement.read(path)
  except (OSError, ValueError) as e:
    raise PlanError(
        f"{path} cannot be read ({e}): --ledger takes work directories with a"
        f" {statement.FILE}, privacy statements and ledgers"
    ) from e


def _delta(statements: Mapping[str, Any]) -> float:
  found = {
      _validate.fraction("delta", d["delta"])
      for d in statements.values()
      if "delta" in d
  }
  if len(found) != 1:
    raise PlanError(
        f"--ledger has statements with the deltas {sorted(found)}: give"
        " --delta=1e-5, or a smaller one"
    )
  return found.pop()


def _by_level(
    ledger: accounting.Ledger | ledger_lib.Combined,
    levels: Sequence[str],
    **options: Any,
) -> tuple[dict[str, Any], dict[str, str]]:
  """Return the guarantees as plain data, and reasons for the other levels."""
  found, refused = by_level(
      lambda level: ledger.guarantee(level, **options), levels
  )
  return (
      {level: guarantee.as_dict() for level, guarantee in found.items()},
      {level: str(error) for level, error in refused.items()},
  )


def runs_table(result: Mapping[str, Any]) -> str:
  """Format the result of `account_runs`."""
  found, refused = result["guarantees"], result["no_guarantee"]
  rows = []
  for name, epsilons in result["parts"].items():
    rows.append((name, *map(_text, map(epsilons.get, found))))
  rows.append(("together", *(_text(g["epsilon"]) for g in found.values())))
  return "\n".join([
      tables.text(("epsilon", *found), rows),
      "",
      _level_lines(found, refused),
      *_assumed_lines(found),
  ])


def group_table(config: Run, group: int) -> str:
  """Format the guarantee of a group of units, one line for each level."""
  ledger = _ledger(config)
  return _level_lines(
      *_by_level(ledger, ledger.levels, delta=config.delta, group=group)
  )


def _level_lines(found: Mapping[str, Any], refused: Mapping[str, str]) -> str:
  lines = []
  for level, g in found.items():
    lines.append(
        f"{level}: epsilon {_text(g['epsilon'])} at delta"
        f" {report.rounded_delta(g['delta'])} ({g['neighbours']})"
    )
  return "\n".join(lines + _refused_lines(refused))


def _text(epsilon: float | str | None) -> str:
  return "-" if epsilon is None else report.rounded_up(float(epsilon))
