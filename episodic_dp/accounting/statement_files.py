"""Privacy statements in files: read, computed again, and who signed them."""

from collections.abc import Mapping
import contextlib
import os
import pathlib

from episodic_dp import plan as plan_lib
from episodic_dp.accounting import privacy_statement
from episodic_dp.accounting import signature as signature_lib
from episodic_dp.output import phases

_Path = str | os.PathLike[str]


def read(path: _Path) -> bytes:
  """The content of a statement's file; PlanError if it cannot be read."""
  try:
    return pathlib.Path(path).read_bytes()
  except OSError as e:
    raise plan_lib.PlanError(
        f"{path}: it cannot be read ({e.strerror}): give the JSON file of a"
        " privacy statement"
    ) from e


def compute(path: _Path, content: bytes) -> privacy_statement.Verification:
  """The statement beside what its entries give; PlanError if it is none."""
  try:
    with phases.phase("computing the guarantees again"):
      return privacy_statement.verify(privacy_statement.loads(_text(content)))
  except (plan_lib.PlanError, plan_lib.UnsoundPlanError) as e:
    raise plan_lib.PlanError(f"{path}: {e}") from e


def check(path: _Path, verification: privacy_statement.Verification) -> None:
  """PlanError unless the statement holds."""
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


def check_replaced(path: _Path, field: str, what: str, flag: str) -> None:
  """PlanError where something else than JSON of a kind would be replaced.

  Args:
    path: of a file that is to be written.
    field: that a file of the kind has.
    what: the kind.
    flag: that named the file.
  """
  place, found = pathlib.Path(path), None
  with contextlib.suppress(OSError, plan_lib.PlanError):
    if place.is_file():  # No pipe, for which reading would wait.
      found = privacy_statement.loads(_text(place.read_bytes()))
  known = isinstance(found, Mapping) and field in found
  if os.path.lexists(place) and not known:
    raise plan_lib.PlanError(
        f"{path} is there already and is no {what}: choose another name as"
        f" {flag}"
    )


def signed(
    path: _Path,
    content: bytes,
    public_key: _Path,
    signature: _Path | None,
    weights: _Path | None,
) -> signature_lib.Signed:
  """Who signed a statement, and which weights.

  Args:
    path: of the statement.
    content: of that file.
    public_key: the file of a public key, from a source that is trusted.
    signature: the file of the signature; None for `path`.sig.
    weights: the file or folder of weights that should have been signed with it;
      None does not look at them.

  Raises:
    SignatureError: names the file that does not fit.
  """
  where = f"{path}{signature_lib.SUFFIX}" if signature is None else signature
  if signature is None and not os.path.lexists(where):
    raise signature_lib.SignatureError(
        f"{path} is not signed (there is no {where}): leave out --public_key,"
        " or ask whoever published it to sign it"
    )
  try:
    data = privacy_statement.loads(_text(read(where)))
  except plan_lib.PlanError as e:
    raise signature_lib.SignatureError(
        f"{where} cannot be read as a signature: give the file that episodic-dp"
        " sign wrote"
    ) from e
  return signature_lib.verify(
      content, data, public_key, weights, name=os.fspath(where)
  )


def _text(content: bytes) -> str:
  try:
    return content.decode("utf-8")
  except UnicodeDecodeError as e:
    raise plan_lib.PlanError(
        "it is not text: give the JSON file of a privacy statement"
    ) from e
