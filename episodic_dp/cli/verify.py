"""A privacy statement computed again: a table, and a sentence if it fails."""

import pathlib

from episodic_dp import accounting
from episodic_dp import plan as plan_lib
from episodic_dp.accounting import privacy_statement
from episodic_dp.output import tables

_COLUMNS = ("level", "stated", "recomputed", "verdict")


def run(path: str) -> None:
  """Prints the levels of a statement beside what its entries give.

  Args:
    path: a guarantee.json, or what episodic-dp account wrote.

  Raises:
    PlanError: the file is no statement, or does not hold; one sentence.
  """
  try:
    verification = accounting.verify(privacy_statement.loads(_read(path)))
  except (plan_lib.PlanError, plan_lib.UnsoundPlanError) as e:
    raise plan_lib.PlanError(f"--verify={path}: {e}") from e
  print(tables.text(_COLUMNS, verification.rows()))
  differences = verification.differences
  if not differences:
    return
  more = len(differences) - 1
  sentence = f"--verify={path} does not hold: {differences[0]}"
  if more:
    sentence += f" ({more} more difference{'s' if more > 1 else ''})"
  written, ours = (
      s["library"] for s in (verification.stated, verification.recomputed)
  )
  if written != ours:
    sentence += f"; it was written by {written} and computed again by {ours}"
  raise plan_lib.PlanError(sentence)


def _read(path: str) -> str:
  try:
    return pathlib.Path(path).read_text(encoding="utf-8")
  except (OSError, ValueError) as e:
    reason = getattr(e, "strerror", None) or "it is not text"
    raise plan_lib.PlanError(
        f"it cannot be read ({reason}): give the JSON file of a privacy"
        " statement"
    ) from e
