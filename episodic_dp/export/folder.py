"""Name and read the files of an exported model, each with its digest.

A digest shows that a file is as it was exported, if digests.json is trusted.
"""

from collections.abc import Mapping
import hashlib
import json
import os
import pathlib
import stat

from episodic_dp import errors
from episodic_dp.output import quoting

MODEL, STATEMENT, CARD = "model.json", "privacy_statement.json", "README.md"
DIGESTS = "digests.json"
_MOST_BYTES = 2**32  # Of one file: no model of this library is as large.
_AGAIN = "get the folder again from its publisher"


def digests(contents: Mapping[str, bytes]) -> bytes:
  """Return digests.json: the SHA-256 of every other file."""
  found = {name: _sha256(content) for name, content in contents.items()}
  value = {"algorithm": "SHA-256", "files": dict(sorted(found.items()))}
  return (json.dumps(value, indent=2) + "\n").encode()


def read(folder: str | os.PathLike[str]) -> dict[str, bytes]:
  """Return the content of every file of a folder that is as it was exported.

  Raises:
    RunError: a file is missing, changed, added, too large or a link; one
      sentence that names it.
  """
  root = pathlib.Path(folder)
  if not os.path.lexists(root / DIGESTS):
    lack = f"has no {DIGESTS}" if os.path.lexists(root) else "does not exist"
    raise errors.RunError(
        f"{root} {lack}: give a folder that episodic-dp export wrote"
    )
  present = set(os.listdir(root))
  for name in sorted(present):
    found = os.lstat(root / name)
    if not stat.S_ISREG(found.st_mode) or found.st_size > _MOST_BYTES:
      raise errors.RunError(
          f"{root / quoting.printable(name)} is a link, a folder or too large,"
          " and a model has plain files only: remove it"
      )
  contents = {DIGESTS: (root / DIGESTS).read_bytes()}
  wanted = _wanted(root / DIGESTS, contents[DIGESTS])
  for name in sorted({*wanted, MODEL, STATEMENT} - present):
    raise errors.RunError(f"{root} lacks {name}: {_AGAIN}")
  for name in sorted({*present, MODEL, STATEMENT} - {*wanted, DIGESTS}):
    raise errors.RunError(
        f"{root / quoting.printable(name)} is not named in {DIGESTS}: remove it"
    )
  for name, digest in wanted.items():
    contents[name] = (root / name).read_bytes()
    if _sha256(contents[name]) != digest:
      raise errors.RunError(
          f"{root / name} is not as it was exported (its SHA-256 is not that in"
          f" {DIGESTS}): {_AGAIN}"
      )
  return contents


def _wanted(path: pathlib.Path, content: bytes) -> dict[str, str]:
  """Return name -> digest of a digests.json."""
  try:
    data = json.loads(content)
    found: dict[str, str] = data["files"]
    sound = data["algorithm"] == "SHA-256" and all(
        os.path.basename(name) == name and name not in ("", ".", "..", DIGESTS)
        for name in found
    )
  except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
    sound = False
  if not sound:
    raise errors.RunError(f"{path} does not list files and digests: {_AGAIN}")
  return found


def _sha256(content: bytes) -> str:
  return hashlib.sha256(content).hexdigest()
