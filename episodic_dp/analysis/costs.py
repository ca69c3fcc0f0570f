"""Compute the guarantees of a config, as data or a table."""

from collections.abc import Sequence
from typing import Any

from episodic_dp import accounting
from episodic_dp import plan as plan_lib
from episodic_dp.accounting import report
from episodic_dp.config import RunConfig
from episodic_dp.output import tables
from episodic_dp.plan import stages

_COLUMNS = (
    "level", "epsilon", "delta", "direction", "eta", "q", "p", "distances",
    "neighbours",
)


def account(config: RunConfig) -> dict[str, Any]:
  """Compute the guarantees of every level, as plain data.

  Returns:
    The privacy statement of a run of `config.planned_steps`
    (`accounting.run_statement`): among others `guarantees` (level -> the fields
    of `accounting.Guarantee.as_dict`) and `no_guarantee` (level -> the reason).

  Raises:
    PlanError: one sentence.
  """
  return accounting.run_statement(
      accounting.Ledger().add(
          config.release, config.planned_steps, continued=False
      ),
      delta=config.delta,
      fixed_seed=config.private_seed is not None,
      start=config.model.start and (config.model.start_digest or ""),
  )


def table(result: dict[str, Any]) -> str:
  """Write the result of `account` as a table, with its assumptions."""
  (entry,) = accounting.Ledger.from_dict(result).entries
  release = entry.release
  hierarchy, mechanism = release.hierarchy, release.mechanism
  lines = [
      f"{entry.steps} steps, noise multiplier"
      f" {mechanism.noise_multiplier:g} per {mechanism.clip_unit}",
      " > ".join(
          f"{hierarchy.num_units(k)} {level} by {stages.stage_text(stage)}"
          for k, (level, stage) in enumerate(
              zip(hierarchy.levels, release.plan.stages)
          )
      ),
      "",
      _classified(release),
      _private(list(result["guarantees"])),
      "",
  ]
  rows = []
  for level, g in result["guarantees"].items():
    kinds = g["units"]
    # The largest rates and distances over the kinds of units of the level.
    q, p = (_largest(kinds, name) for name in ("parent_rate", "own_rate"))
    lengths = [
        (*kind.get("outer_distances", ()), kind[name])
        for kind in kinds
        for name in ("own_distance", "distance")
        if name in kind
    ]
    longest = [max(column) for column in zip(*lengths)]
    epsilon = g["epsilon"]
    rows.append((
        level,
        report.rounded_up(float(epsilon)),
        f"{g['delta']:g}",
        g["direction"],
        f"{g['inclusion_rate']:.4g}",
        q,
        p,
        ", ".join(f"{d:.4g}" for d in longest) or "-",
        g["neighbours"],
    ))
  lines += [
      tables.text(_COLUMNS, rows),
      "",
      "eta: the largest probability that a step draws one unit; q: that its",
      "parent is chosen; p: that it is drawn then; distances, in standard",
      "deviations of the noise: how far the sum moves where a stage above does",
      "not choose the unit's path and, last, without the unit itself.",
  ]
  for level, reason in result["no_guarantee"].items():
    lines += ["", f"{level}: no guarantee", f"  {reason}"]
  shared = _shared([g["assumptions"] for g in result["guarantees"].values()])
  if shared:
    lines += ["", "Assumed throughout:"]
    lines += [f"  - {sentence}" for sentence in shared]
  for level, g in result["guarantees"].items():
    own = [s for s in g["assumptions"] if s not in shared]
    if g["caveat"] and g["caveat"] not in g["assumptions"]:
      own.append(g["caveat"])
    if own:
      lines += ["", f"For {level}:", *(f"  - {sentence}" for sentence in own)]
  return "\n".join(lines)


def _classified(release: plan_lib.Release) -> str:
  """Name the level that tasks classify, and the examples of a task."""
  hierarchy, plan = release.hierarchy, release.plan
  episode, leaf = plan.episode, hierarchy.levels[-1]
  if episode is None:
    return f"What is classified: every {leaf} by itself, by its label."
  if episode.way == 1:
    return f"What is learned: a function for every task, of its {leaf} units."
  level = stages.class_level(hierarchy, plan)
  apart = ""
  if level < hierarchy.depth - 2:
    apart = (
        f", no {hierarchy.levels[level + 1]} being in both the support and the"
        " query"
    )
  return (
      f"What is classified: the {hierarchy.levels[level]}. A task has"
      f" {episode.way} classes, each with {episode.shot + episode.query}"
      f" examples of level '{leaf}'{apart}."
  )


def _private(levels: Sequence[str]) -> str:
  """Name the levels that have a guarantee."""
  if not levels:
    return "Whose privacy: nobody's, no level has a guarantee."
  units = " or ".join(f"one {level}" for level in levels)
  return (
      f"Whose privacy: that of {units} with all that lies in it, each with the"
      " epsilon of its row."
  )


def _largest(kinds: Sequence[dict[str, Any]], name: str) -> str:
  """Write the largest value of a field that some kinds have, "-" for none."""
  values = [kind[name] for kind in kinds if name in kind]
  return f"{max(values):.4g}" if values else "-"


def _shared(lists: Sequence[Sequence[str]]) -> list[str]:
  """Return the sentences that all lists have, in the order of the first."""
  if not lists:
    return []
  return [s for s in lists[0] if all(s in other for other in lists)]
