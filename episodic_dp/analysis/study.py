"""Reads the statements of several runs and says what they cost together."""

from collections.abc import Sequence
import os
import pathlib
from typing import Any

from episodic_dp import accounting
from episodic_dp import plan as plan_lib
from episodic_dp.accounting import privacy_statement
from episodic_dp.accounting import report
from episodic_dp.accounting import studies
from episodic_dp.output import tables

# Of a work directory.
_STATEMENT = "guarantee.json"
# The fields of `account`.
_RESULT = (
    "delta", "fixed_seed", "lineages", "starts", "parts", "guarantees",
    "no_guarantee", "ledger",
)  # fmt: skip
# Of these, what goes into the next study beside the ledger.
_STATED = ("delta", "fixed_seed", "lineages", "starts")


def read(
    paths: Sequence[str], *, same_levels: Sequence[str] = ()
) -> studies.Study:
  """The study of work directories, statements and ledgers (JSON files).

  Args:
    paths: folders with a guarantee.json, or JSON files.
    same_levels: levels whose units are the same although the trees differ.

  Raises:
    PlanError: a file cannot be read or is no ledger, or nothing says that the
      runs are about the same units; one sentence.
  """
  described = {}
  for path in paths:
    if path in described:
      raise plan_lib.PlanError(
          f"{path} is named twice in --ledger: a run is counted once"
      )
    described[path] = _read(path)
  return studies.compose(described, same_levels=same_levels)


def _read(path: str | os.PathLike) -> Any:
  file = pathlib.Path(path)
  if file.is_dir():
    file = file / _STATEMENT
  try:
    found = privacy_statement.loads(file.read_text(encoding="utf-8"))
  except plan_lib.PlanError as e:
    raise plan_lib.PlanError(f"{path}: {e}") from e
  except (OSError, ValueError) as e:
    reason = getattr(e, "strerror", None) or "it is not text"
    raise plan_lib.PlanError(
        f"{file} cannot be read ({reason}): --ledger takes work directories"
        f" with a {_STATEMENT}, privacy statements and ledgers"
    ) from e
  # What --format=json printed of another study holds its ledger.
  printed = isinstance(found, dict) and set(found) == set(_RESULT)
  if printed and isinstance(found["ledger"], dict):
    levels = [*found["guarantees"], *found["no_guarantee"]]
    stated = {name: found[name] for name in _STATED}
    return found["ledger"] | stated | {"levels": levels}
  return found


def account(
    study: studies.Study, *, delta: float | None, group: int = 1
) -> dict[str, Any]:
  """Everything that the command prints of a study, as plain data.

  Args:
    study: of `read`.
    delta: in (0, 1); None for that of the statements.
    group: how many units are added or removed together.

  Returns:
    "delta", "fixed_seed" (whether a run follows from a seed in its config),
    "lineages" (run -> numbers of its processes), "starts" (runs that begin with
    given weights), "parts" (name -> level -> epsilon, None for no guarantee),
    "guarantees" (level -> `Guarantee.as_dict`), "no_guarantee" (level ->
    reason), and "ledger". `read` takes all of it, in a file, as one part of a
    study.

  Raises:
    PlanError: the statements' deltas differ and none is given.
  """
  asked = study.delta if delta is None else delta
  if asked is None:
    stated = ", ".join(f"{name} has {d:g}" for name, d in study.deltas.items())
    raise plan_lib.PlanError(
        f"the delta is not plain ({stated or 'no file of --ledger has one'}):"
        " give --delta=1e-5, or as small as is wanted"
    )
  found, refused = {}, {}
  for level in study.levels:
    try:
      found[level] = study.guarantee(level, delta=asked, group=group).as_dict()
    except plan_lib.UnsoundPlanError as e:
      refused[level] = str(e)
  return {
      "delta": asked,
      "fixed_seed": study.fixed_seed,
      "lineages": {name: [*line] for name, line in study.lineages.items()},
      "starts": list(study.starts),
      "parts": {
          name: _epsilons(part, study.levels, asked, group)
          for name, part in study.parts.items()
      },
      "guarantees": found,
      "no_guarantee": refused,
      "ledger": study.ledger.as_dict(),
  }


def _epsilons(
    part: accounting.Ledger, levels: Sequence[str], delta: float, group: int
) -> dict[str, float | str | None]:
  """Level -> epsilon of one part alone."""
  result: dict[str, float | str | None] = {}
  for level in levels:
    try:
      found = part.guarantee(level, delta=delta, group=group)
      result[level] = found.as_dict()["epsilon"]
    except (plan_lib.PlanError, plan_lib.UnsoundPlanError):
      result[level] = None
  return result


def table(result: dict[str, Any]) -> str:
  """The result of `account`, for people."""
  levels = list(result["guarantees"])
  rows = [
      (name, *(_text(epsilons.get(level)) for level in levels))
      for name, epsilons in result["parts"].items()
  ]
  found = result["guarantees"].values()
  rows.append(("together", *(_text(g["epsilon"]) for g in found)))
  lines = [
      tables.text(("epsilon", *levels), rows),
      "",
      *(
          f"{level}: epsilon {_text(g['epsilon'])} at delta {g['delta']:g}"
          f" ({g['neighbours']})"
          for level, g in result["guarantees"].items()
      ),
  ]
  for level, reason in result["no_guarantee"].items():
    lines += ["", f"{level}: no guarantee", f"  {reason}"]
  sentences = dict.fromkeys(
      sentence
      for g in found
      for sentence in (*filter(None, [g["caveat"]]), *g["assumptions"])
  )
  return "\n".join([
      *lines, "", "Assumed:", *(f"  - {sentence}" for sentence in sentences)
  ])


def _text(epsilon: float | str | None) -> str:
  return "-" if epsilon is None else report.rounded_up(float(epsilon))


def group_table(
    ledger: accounting.Ledger, *, delta: float, group: int
) -> str:
  """A line a level: the guarantee of a group."""
  lines = []
  for level in ledger.levels:
    try:
      found = ledger.guarantee(level, delta=delta, group=group)
      lines.append(
          f"{level}: epsilon {report.rounded_up(found.epsilon)} at delta"
          f" {delta:g} ({found.neighbours})"
      )
    except plan_lib.UnsoundPlanError as e:
      lines.append(f"{level}: no guarantee ({e})")
  return "\n".join(lines)
