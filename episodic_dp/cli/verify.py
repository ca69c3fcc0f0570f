"""Compute a privacy statement again from what it says was run.

  episodic-dp verify WORKDIR/guarantee.json

A statement is the guarantee.json of a run, or what episodic-dp account wrote
(--statement=FILE, --format=json). It names hierarchy, plan, mechanism and
steps; from these every guarantee is computed anew, and compared with the stated
one. The exit status is 1, and one sentence says why, where the statement does
not hold: it promises more, or leaves an assumption out, or is damaged.

The arithmetic is checked. That the run was as the statement says, that the data
had those sizes and that weights belong to it, nobody can see in the statement.
To know who published it, sign the file with minisign, gpg or sigstore.
"""

import textwrap

from absl import flags

from episodic_dp.accounting import statement
from episodic_dp.cli import app
from episodic_dp.output import phases
from episodic_dp.output import quoting
from episodic_dp.output import tables

_WIDTH = 80
_COLUMNS = ("level", "stated", "recomputed", "verdict")
# Printed where a statement holds.
LIMITS = (
    "Checked: the numbers follow from what the statement says was run. No"
    " statement can show that the run drew its samples so, that the data had"
    " these sizes, that the noise was added once under a key that stayed"
    " secret, or that some weights came of it: its publisher alone vouches for"
    " that."
)


def define_flags() -> None:
  """Define no flag: the statement is an argument."""


def main(values: flags.FlagValues, path: str = "") -> None:
  """Print the levels of a statement next to what its entries give.

  Args:
    values: the flags.
    path: a guarantee.json, or what episodic-dp account wrote.

  Raises:
    PlanError: the file is no statement, or does not hold; one sentence.
    OSError: the file cannot be read.
  """
  del values
  if not path:
    app.fail(
        "give one privacy statement, such as episodic-dp verify"
        " WORKDIR/guarantee.json"
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
  for caveat in dict.fromkeys(s["caveat"] for s in stated if s["caveat"]):
    print(textwrap.fill(caveat, _WIDTH))
  print(textwrap.fill(LIMITS, _WIDTH))
