"""Several runs on the same people: their statements, read and composed."""

from collections.abc import Mapping, Sequence
import pathlib
from typing import Any

from episodic_dp import accounting
from episodic_dp import plan as plan_lib
from episodic_dp.accounting import ledger as ledger_lib
from episodic_dp.accounting import report
from episodic_dp.accounting import statement
from episodic_dp.output import tables

# Of a work directory.
_STATEMENT = "guarantee.json"


def account(
    paths: Sequence[str],
    *,
    delta: float | None,
    group: int = 1,
    same_levels: Sequence[str] = (),
) -> dict[str, Any]:
  """Compute what several runs cost together.

  Args:
    paths: work directories, privacy statements, or ledgers as JSON.
    delta: in (0, 1); None for that of the statements.
    group: how many units are added or removed together.
    same_levels: levels whose units are the same although the trees differ.

  Returns:
    "delta", "parts" (name -> level -> epsilon, None for no guarantee),
    "guarantees" (level -> `Guarantee.as_dict`), "no_guarantee" (level ->
    reason), and "ledger".

  Raises:
    PlanError: a file cannot be read or is no ledger, nothing says that the
      runs are about the same units, or no delta is given; one sentence.
  """
  statements: dict[str, Any] = {}
  for path in paths:
    if path in statements:
      raise plan_lib.PlanError(
          f"{path} is named twice in --ledger: a run is counted once"
      )
    statements[path] = _read(path)
  combined = ledger_lib.compose(statements, same_levels=same_levels)
  asked = _delta(statements) if delta is None else delta
  found, refused = {}, {}
  for level in combined.levels:
    try:
      found[level] = combined.guarantee(
          level, delta=asked, group=group
      ).as_dict()
    except plan_lib.UnsoundPlanError as e:
      refused[level] = str(e)
  return {
      "delta": asked,
      "parts": {
          name: {
              level: _epsilon(part, level, asked, group)
              for level in combined.levels
          }
          for name, part in combined.parts.items()
      },
      "guarantees": found,
      "no_guarantee": refused,
      "ledger": combined.ledger.as_dict(),
  }


def _read(path: str) -> Any:
  file = pathlib.Path(path)
  if file.is_dir():
    file = file / _STATEMENT
  try:
    return statement.loads(file.read_text(encoding="utf-8"))
  except (OSError, ValueError) as e:
    raise plan_lib.PlanError(
        f"{path} cannot be read ({e}): --ledger takes work directories with a"
        f" {_STATEMENT}, privacy statements and ledgers"
    ) from e


def _delta(statements: Mapping[str, Any]) -> float:
  found = {d["delta"] for d in statements.values() if "delta" in d}
  if len(found) != 1:
    raise plan_lib.PlanError(
        f"--ledger has statements of the deltas {sorted(found)}: give"
        " --delta=1e-5, or as small as is wanted"
    )
  return found.pop()


def _epsilon(
    part: accounting.Ledger, level: str, delta: float, group: int
) -> float | str | None:
  """Compute epsilon of one part alone."""
  try:
    found = part.guarantee(level, delta=delta, group=group)
  except plan_lib.UnsoundPlanError:
    return None
  return found.as_dict()["epsilon"]


def table(result: Mapping[str, Any]) -> str:
  """Format the result of `account`."""
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
  """Format the guarantee of a group, a line a level."""
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
