"""Computes a privacy statement again from what it says was run.

  episodic-dp verify WORKDIR/guarantee.json
  episodic-dp verify --statement=FILE

A statement is the guarantee.json of a run, or what episodic-dp account wrote
(--statement=FILE, --format=json). It names hierarchy, plan, mechanism and
steps; from these every guarantee is computed anew, and set beside the stated
one. The exit status is 1, and one sentence says why, where the statement does
not hold: it promises more, or leaves an assumption out, or is damaged.

What is checked is arithmetic. That the run was as the statement says, nobody
can see in the statement.
"""

from collections.abc import Sequence
import pathlib

from absl import flags

from episodic_dp import accounting
from episodic_dp import plan as plan_lib
from episodic_dp.accounting import privacy_statement
from episodic_dp.cli import app
from episodic_dp.output import tables

_COLUMNS = ("level", "stated", "recomputed", "verdict")


def define_flags() -> None:
  """Of the statement."""
  flags.DEFINE_string(
      "statement", None, "The privacy statement (.json); or name it alone."
  )


def main(argv: Sequence[str]) -> None:
  """Verifies the statement named by an argument or by --statement."""
  paths = [*argv[1:], flags.FLAGS.statement]
  named = [path for path in paths if path is not None]
  if len(named) != 1:
    app.fail(
        "give one privacy statement, such as episodic-dp verify"
        " WORKDIR/guarantee.json"
    )
  run(named[0])


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
    raise plan_lib.PlanError(f"{path}: {e}") from e
  print(tables.text(_COLUMNS, verification.rows()))
  differences = verification.differences
  if not differences:
    return
  more = len(differences) - 1
  sentence = f"{path} does not hold: {differences[0]}"
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
