"""Computes a privacy statement again from what it says was run.

  episodic-dp verify WORKDIR/guarantee.json
  episodic-dp verify --statement=FILE --public_key=KEY.pub --weights=MODEL

A statement is the guarantee.json of a run, or what episodic-dp account wrote
(--statement=FILE, --format=json). It names hierarchy, plan, mechanism and
steps; from these every guarantee is computed anew, and set beside the stated
one. The exit status is 1, and one sentence says why, where the statement does
not hold: it promises more, or leaves an assumption out, or is damaged.

What is checked is arithmetic. That the run was as the statement says, that the
data had those sizes and that weights belong to it, nobody can see in the
statement. With the public key of whom you trust, --public_key
checks who promised it: the signature beside the statement (episodic-dp sign),
and with --weights that it is about these weights.
"""

from collections.abc import Sequence
import textwrap

from absl import flags

from episodic_dp.accounting import signature as signature_lib
from episodic_dp.accounting import statement_files
from episodic_dp.cli import app
from episodic_dp.output import quoting
from episodic_dp.output import tables

_WIDTH = 80
_COLUMNS = ("level", "stated", "recomputed", "verdict")
# Printed where a statement holds.
LIMITS = (
    "Checked: the numbers follow from what the statement says was run. No"
    " statement can show that the run drew its samples so, that the data had"
    " these sizes, that the noise was added once under a key that stayed"
    " secret, or that some weights came of it: for that you have the word of"
    " whoever publishes it."
)


def define_flags() -> None:
  """Of the statement, and of who signed it."""
  flags.DEFINE_string(
      "statement", None, "The privacy statement (.json); or name it alone."
  )
  flags.DEFINE_string(
      "public_key", None, "The public key (PEM) of who should have signed."
  )
  flags.DEFINE_string(
      "signature", None, "The signature; STATEMENT.sig if left out."
  )
  flags.DEFINE_string(
      "weights", None, "The file or folder of weights that was signed."
  )


def main(argv: Sequence[str]) -> None:
  """Verifies the statement named by an argument or by --statement."""
  values = flags.FLAGS
  named = [path for path in (*argv[1:], values.statement) if path is not None]
  if len(named) != 1:
    app.fail(
        "give one privacy statement, such as episodic-dp verify"
        " WORKDIR/guarantee.json"
    )
  if values.public_key is None and (values.signature or values.weights):
    app.fail(
        "a signature is checked with the public key of who should have signed:"
        " give --public_key=FILE, from a source that you trust"
    )
  run(
      named[0],
      public_key=values.public_key,
      signature=values.signature,
      weights=values.weights,
  )


def run(
    path: str,
    *,
    public_key: str | None = None,
    signature: str | None = None,
    weights: str | None = None,
) -> None:
  """Prints the levels of a statement beside what its entries give.

  Args:
    path: a guarantee.json, or what episodic-dp account wrote.
    public_key: the file of a public key; None does not ask who signed.
    signature: the file of the signature; None for `path`.sig.
    weights: the file or folder of weights that the signature is about.

  Raises:
    PlanError: the file is no statement, or does not hold; one sentence.
    SignatureError: it was not signed so; one sentence.
  """
  content, signed = statement_files.read(path), None
  if public_key is not None:
    signed = statement_files.signed(
        path, content, public_key, signature, weights
    )
  verification = statement_files.compute(path, content)
  print(tables.text(_COLUMNS, verification.rows()))
  statement_files.check(path, verification)
  print()
  for why in verification.stated["no_guarantee"].values():
    said = f"{why[:1].upper()}{why[1:]}."
    print(textwrap.fill(quoting.printable(said), _WIDTH))
  stated = verification.stated["guarantees"].values()
  for caveat in dict.fromkeys(s["caveat"] for s in stated if s["caveat"]):
    print(textwrap.fill(caveat, _WIDTH))
  print(textwrap.fill(LIMITS, _WIDTH))
  if signed is not None:
    print(_promise(signed, weights))


def _promise(signed: signature_lib.Signed, weights: str | None) -> str:
  """What a valid signature adds."""
  about = "for no weights"
  if weights is not None:
    about = f"for the weights {weights}"
  elif signed.weights is not None:
    about = (
        f"for the weights {signed.weights}, which were not looked at: give"
        " them by --weights"
    )
  signer = f"The holder of the key {signed.public_key}"
  return f"{signer} signed this statement {about}."
