"""Compute a privacy statement again from its description of the run.

  episodic-dp verify WORKDIR

A statement is the guarantee.json of a run or the privacy_statement.json of an
exported model, whose folder may be given instead, or the output of episodic-dp
account (--statement=FILE, --format=json).
It describes hierarchy, plan, mechanism and steps. The command computes every
guarantee from them again and compares it with the stated one. A statement does
not hold if it promises more, leaves out an assumption, or is damaged. The exit
status is then 1, and one sentence gives the reason.

The command checks only the arithmetic. A statement cannot show that the run
followed it, that the data had these sizes, or that some weights belong to it.
To prove who published it, sign the file with minisign, gpg or sigstore.
"""

import textwrap

from absl import flags

from episodic_dp.accounting import report
from episodic_dp.accounting import statement
from episodic_dp.cli import app
from episodic_dp.output import phases
from episodic_dp.output import quoting
from episodic_dp.output import tables

_WIDTH = 80
_COLUMNS = ("level", "stated", "recomputed", "verdict")
# Printed for a statement that holds.
LIMITS = (
    "The numbers follow from the run that the statement describes. No statement"
    " can show that the run sampled in this way, that the data had these sizes,"
    " that the noise was added once under a secret key, or that some weights"
    " came from this run. Only its publisher can confirm that."
)


def define_flags() -> None:
  """Define no flag: the statement is an argument."""


def main(values: flags.FlagValues, path: str = "") -> None:
  """Print the levels of a statement next to the recomputed guarantees.

  Args:
    values: the flags.
    path: a work directory, the folder of a model, or a file of a statement.

  Raises:
    PlanError: the file is not a statement, or does not hold; one sentence.
    OSError: the file cannot be read.
  """
  if not path:
    app.fail(
        "give one privacy statement or work directory, as in episodic-dp verify"
        " WORKDIR"
    )
  with phases.phase("computing the guarantees again"):
    verification = statement.verify_file(path)
  print(tables.text(_COLUMNS, verification.rows()))
  verification.check(path)
  print()
  for why in verification.stated["no_guarantee"].values():
    said = f"{why[:1].upper()}{why[1:]}."
    print(textwrap.fill(quoting.printable(said), _WIDTH))
  stated = verification.stated["guarantees"].values()
  for caveat in report.stated_caveats(stated):
    print(textwrap.fill(caveat, _WIDTH))
  print(textwrap.fill(LIMITS, _WIDTH))
