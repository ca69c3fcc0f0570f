"""The secret key of a run: what sampling and noise are drawn from.

Whoever knows the key can subtract the noise, so it is kept apart from all that
a run publishes: `WORKDIR/private/key`, readable by its owner only, and nowhere
else (no log, checkpoint, export or configuration holds it). It must survive as
long as the run can be resumed: a step taken again under another key would be a
second release of the same step.
"""

import hashlib
import os
import pathlib
import re
import secrets

import jax

from episodic_dp import private
from episodic_dp.training import errors

FOLDER = "private"
FILE = "key"
_BYTES = 8  # What `private.secret_key` takes.


def path(workdir: str | os.PathLike) -> pathlib.Path:
  """Where the key of the run lies."""
  return pathlib.Path(workdir) / FOLDER / FILE


def private_folder(workdir: str | os.PathLike) -> pathlib.Path:
  """`WORKDIR/private`, made with mode 0700."""
  folder = pathlib.Path(workdir) / FOLDER
  folder.mkdir(mode=0o700, parents=True, exist_ok=True)
  folder.chmod(0o700)  # mkdir leaves an existing folder as it is
  return folder


def create(
    workdir: str | os.PathLike, *, private_seed: int | None = None
) -> jax.Array:
  """Draws the run's key and writes its file (mode 0600) before any use.

  Args:
    workdir: the work directory.
    private_seed: None for 64 bits from the operating system; an integer for a
      reproducible run, whose guarantee says so.

  Returns:
    A typed threefry key, shape [].

  Raises:
    RunError: the file exists already.
  """
  if private_seed is None:
    data = secrets.token_bytes(_BYTES)
  else:
    # A hash, so that neighbouring seeds give unrelated keys; all 64 bits are
    # used (`jax.random.key` keeps 32 bits of a Python integer).
    text = f"episodic_dp private seed {int(private_seed)}"
    data = hashlib.sha256(text.encode()).digest()[:_BYTES]
  private_folder(workdir)
  target = path(workdir)
  try:
    handle = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
  except FileExistsError as e:
    raise errors.RunError(
        f"{target} exists, and a new run must not reuse a key: start in"
        " another --workdir"
    ) from e
  with os.fdopen(handle, "w") as f:
    f.write(data.hex() + "\n")
    f.flush()
    os.fsync(f.fileno())
  return private.secret_key(data)


def load(workdir: str | os.PathLike) -> jax.Array:
  """The key of a run that is resumed.

  Raises:
    RunError: the file is missing or does not hold a key.
  """
  target = path(workdir)
  remedy = (
      "put the file back, or start a new run in another --workdir (a run"
      " cannot go on under a new key: steps taken twice would cost privacy"
      " twice)"
  )
  try:
    text = target.read_text(encoding="ascii")
  except FileNotFoundError as e:
    raise errors.RunError(
        f"the secret key {target} of this run is missing: {remedy}"
    ) from e
  except (OSError, UnicodeDecodeError) as e:
    raise errors.RunError(
        f"the secret key {target} of this run cannot be read: {remedy}"
    ) from e
  if not re.fullmatch(f"[0-9a-f]{{{2 * _BYTES}}}\n", text):
    raise errors.RunError(
        f"the secret key {target} of this run is damaged: {remedy}"
    )
  return private.secret_key(bytes.fromhex(text.strip()))
