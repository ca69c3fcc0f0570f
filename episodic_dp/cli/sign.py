"""Signs a privacy statement, so that others can tell who promised it.

  episodic-dp sign --new_key=KEY
  episodic-dp sign --key=KEY --statement=WORKDIR/guarantee.json --weights=MODEL

The first makes a pair of Ed25519 keys: KEY, which stays with you, and KEY.pub,
which goes to everyone by a way that they trust. The second computes the
statement again and, where it holds, signs its file together with the weights
(a file, or a folder such as a checkpoint) as FILE.sig beside it. Whoever has
the four checks them by

  episodic-dp verify FILE --public_key=KEY.pub --weights=MODEL

pip install 'episodic_dp[sign]' brings the package that signs.
"""

from collections.abc import Sequence
import pathlib

from absl import flags

from episodic_dp.accounting import signature
from episodic_dp.accounting import statement_files
from episodic_dp.cli import app
from episodic_dp.output import files


def define_flags() -> None:
  """Of the keys and of what is signed."""
  flags.DEFINE_string(
      "new_key", None, "Make a pair of keys: this file, and .pub beside it."
  )
  flags.DEFINE_string("key", None, "Your private key (PEM, Ed25519).")
  flags.DEFINE_string("statement", None, "The privacy statement (.json).")
  flags.DEFINE_string(
      "weights", None, "The file or folder of the weights that it is about."
  )
  flags.DEFINE_string(
      "signature", None, "Where the signature goes; STATEMENT.sig if left out."
  )


def main(argv: Sequence[str]) -> None:
  """Makes keys, or signs."""
  del argv
  values = flags.FLAGS
  if values.new_key is not None:
    if any((values.key, values.statement, values.weights, values.signature)):
      app.fail("--new_key makes keys and signs nothing: give it alone")
    public, fingerprint = signature.new_key(values.new_key)
    print(
        f"{values.new_key} is your private key, for nobody else; {public} is"
        f" its public key, {fingerprint}"
    )
    return
  if values.key is None or values.statement is None:
    app.fail(
        "give --key=FILE and --statement=FILE, or --new_key=FILE to make a key"
    )
  run(
      values.statement,
      key=values.key,
      weights=values.weights,
      to=values.signature,
  )


def run(
    path: str, *, key: str, weights: str | None = None, to: str | None = None
) -> None:
  """Signs a statement that holds.

  Args:
    path: of the statement.
    key: the file of the private key.
    weights: a file or folder; None signs the statement alone.
    to: the file of the signature; None for `path`.sig.

  Raises:
    PlanError: the statement does not hold, or `to` is there and is no
      signature.
    SignatureError: the key or the weights cannot be used.
  """
  to = f"{path}{signature.SUFFIX}" if to is None else to
  if weights is not None and pathlib.Path(to).resolve().is_relative_to(
      pathlib.Path(weights).resolve()
  ):
    raise signature.SignatureError(
        f"{to} would lie among the weights {weights} and change them: give the"
        " folder of the weights alone, or another --signature"
    )
  statement_files.check_replaced(to, "signature", "signature", "--signature")
  content = statement_files.read(path)
  statement_files.check(path, statement_files.compute(path, content))
  signed = signature.sign(content, key, weights)
  files.write_json(to, signed)
  about = "no weights"
  if weights is not None:
    about = f"{weights} ({signed['weights']})"
  print(f"{to}: {path} and {about}, signed by the key {signed['public_key']}")
