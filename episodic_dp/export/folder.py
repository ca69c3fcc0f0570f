"""The files of an exported model: their names, digests, and who signed them.

A digest shows that a file is as it was exported, for whoever trusts
digests.json; a signature, who vouches for digests.json and so for all of them.
"""

from collections.abc import Mapping
import hashlib
import json
import os
import pathlib
import stat

from episodic_dp import errors
from episodic_dp.accounting import signature as signature_lib
from episodic_dp.accounting import statement_files
from episodic_dp.output import quoting

MODEL, STATEMENT, CARD = "model.json", "privacy_statement.json", "README.md"
DIGESTS = "digests.json"
SIGNATURE = f"{STATEMENT}{signature_lib.SUFFIX}"
_AGAIN = "get the folder again from whoever published it"


def digests(contents: Mapping[str, bytes]) -> bytes:
  """What digests.json holds: the SHA-256 of every other file."""
  found = {name: _sha256(content) for name, content in contents.items()}
  value = {"algorithm": "SHA-256", "files": dict(sorted(found.items()))}
  return (json.dumps(value, indent=2) + "\n").encode()


def read(folder: str | os.PathLike[str]) -> dict[str, bytes]:
  """The content of every file of a folder that is as it was exported.

  Raises:
    RunError: a file is missing, changed, beside those that were exported, or
      a link; one sentence that names it.
  """
  root = pathlib.Path(folder)
  if not os.path.lexists(root / DIGESTS):
    lack = f"has no {DIGESTS}" if os.path.lexists(root) else "does not exist"
    raise errors.RunError(
        f"{root} {lack}: give a folder that episodic-dp export wrote"
    )
  present = _present(root)
  contents = {DIGESTS: _content(root / DIGESTS)}
  wanted = _wanted(root / DIGESTS, contents[DIGESTS])
  for name in sorted(set(wanted) - present):
    raise errors.RunError(f"{root} lacks {name}: {_AGAIN}")
  for name in sorted(present - set(wanted) - {DIGESTS, SIGNATURE}):
    raise errors.RunError(
        f"{root / quoting.printable(name)} is not named in {DIGESTS}: remove it"
    )
  for name, digest in wanted.items():
    contents[name] = _content(root / name)
    if _sha256(contents[name]) != digest:
      raise errors.RunError(
          f"{root / name} is not as it was exported (its SHA-256 is not that in"
          f" {DIGESTS}): {_AGAIN}"
      )
  for name in (MODEL, STATEMENT):
    if name not in contents:
      raise errors.RunError(f"{root} lacks {name}: {_AGAIN}")
  return contents


def signer(
    folder: str | os.PathLike[str],
    contents: Mapping[str, bytes],
    public_key: str | os.PathLike[str],
) -> str:
  """The fingerprint of the key that signed the statement and all digests.

  Args:
    folder: of the model.
    contents: of its files, from `read`.
    public_key: the file of a public key, from a source that is trusted.

  Raises:
    SignatureError: it was not signed so; one sentence.
  """
  statement = pathlib.Path(folder) / STATEMENT
  signed = statement_files.signed(
      statement, contents[STATEMENT], public_key, None, None
  )
  found = f"sha256:{_sha256(contents[DIGESTS])}"
  if signed.weights != found:
    raise signature_lib.SignatureError(
        f"{statement}{signature_lib.SUFFIX} was made for other files than"
        f" {DIGESTS} names: {_AGAIN}"
    )
  return signed.public_key


def _present(root: pathlib.Path) -> set[str]:
  """The names of all files; RunError for whatever is none."""
  try:
    names = os.listdir(root)
    for name in names:
      if not stat.S_ISREG(os.lstat(root / name).st_mode):
        raise errors.RunError(
            f"{root / quoting.printable(name)} is a link or a folder, and a"
            " model has plain files only: remove it, or put the file itself in"
            " its place"
        )
  except OSError as e:
    raise errors.RunError(
        f"{root} cannot be read ({e.strerror}): give the right to read it"
    ) from e
  return set(names)


def _wanted(path: pathlib.Path, content: bytes) -> dict[str, str]:
  """Name -> digest, of a digests.json."""
  try:
    data = json.loads(content)
    found = data["files"]
    sound = data["algorithm"] == "SHA-256" and all(
        isinstance(name, str) and os.path.basename(name) == name
        and name not in ("", ".", "..", DIGESTS)
        and isinstance(digest, str) for name, digest in found.items()
    )
  except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
    sound = False
  if not sound:
    raise errors.RunError(
        f"{path} does not list files and digests: {_AGAIN}"
    )
  return found


def _content(path: pathlib.Path) -> bytes:
  try:
    return path.read_bytes()
  except OSError as e:
    raise errors.RunError(
        f"{path} cannot be read ({e.strerror}): give the right to read it"
    ) from e


def _sha256(content: bytes) -> str:
  return hashlib.sha256(content).hexdigest()
