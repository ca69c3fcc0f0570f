"""The secret of a run, bound to it: its samples and noise follow from it.

Whoever knows the secret can subtract the noise, so it is kept apart from all
that a run publishes: `WORKDIR/private/key`, readable by its owner only, and
nowhere else (no log, checkpoint, export or configuration holds it). It must
survive as long as the run can be resumed: a step taken again under another key
would be a second release of the same step.

Beside the secret the file holds what the run's steps were determined by
(`identity`), and a check value over all of it, keyed with the secret. The key
that JAX draws from is derived from the secret and the whole history of the run,
so that what is not the same run draws other samples and other noise, even where
nobody compares.
"""

from collections.abc import Mapping, Sequence
import dataclasses
import hashlib
import hmac
import json
import os
import pathlib
import secrets
from typing import Any

import jax

from episodic_dp import errors
from episodic_dp import private
from episodic_dp.output import files
from episodic_dp.private import keys as private_keys

FOLDER = "private"
FILE = "key"
_BYTES = 32
_SCHEMA = 2  # 1 was a key of 16 hexadecimal digits and nothing else.
_REMEDY = (
    "put the file back, or start a new run in another --workdir (a run"
    " cannot go on under a new key: steps taken twice would cost privacy"
    " twice)"
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Segment:
  """Steps that were determined by the same parts.

  Attributes:
    after: the steps done before the first of them.
    parts: name -> digest (`identity.Identity.parts`).
    conditions: under which the parts were traced (`environment`).
  """

  after: int
  parts: Mapping[str, str]
  conditions: Mapping[str, str]


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunKey:
  """The secret of a run, and the history that it is bound to.

  Attributes:
    secret: 32 bytes; not shown.
    seeded: whether they follow from a `private_seed`.
    segments: the history, the last of which takes the next step.
  """

  secret: bytes = dataclasses.field(repr=False)
  seeded: bool
  segments: tuple[Segment, ...]

  def jax_key(self) -> jax.Array:
    """The typed threefry key of the steps to come, shape []."""
    derived = self._keyed("samples and noise", self._history(None))
    return private.secret_key(derived[: private_keys.KEY_BYTES])

  def seal(
      self,
      step: int,
      digests: Mapping[str, str],
      *,
      segments: int | None = None,
  ) -> str:
    """A check value that binds a checkpoint to the run; may be published.

    Args:
      step: of the checkpoint.
      digests: of what it holds.
      segments: how many of them had begun; None for all.
    """
    held = [self._history(segments), step, dict(digests)]
    return self._keyed("checkpoint", held).hex()

  def changed(self, segment: Segment) -> "RunKey":
    """The key of a run that goes on as another segment."""
    return dataclasses.replace(self, segments=(*self.segments, segment))

  def _history(self, segments: int | None) -> list[Any]:
    chosen = self.segments[:segments]
    return [[segment.after, dict(segment.parts)] for segment in chosen]

  def _keyed(self, purpose: str, value: Any) -> bytes:
    """A keyed hash of plain data: unrelated for every purpose and value."""
    text = json.dumps([f"episodic_dp {purpose}", value], sort_keys=True)
    return hmac.digest(self.secret, text.encode(), "sha256")

  def text(self) -> str:
    """What the file holds."""
    fields = {
        "schema": _SCHEMA,
        "secret": self.secret.hex(),
        "seeded": self.seeded,
        "segments": [dataclasses.asdict(s) for s in self.segments],
    }
    fields["check"] = self._keyed("key file", fields).hex()
    return json.dumps(fields, indent=1, sort_keys=True) + "\n"


def path(workdir: str | os.PathLike) -> pathlib.Path:
  """Where the secret of the run lies."""
  return pathlib.Path(workdir) / FOLDER / FILE


def private_folder(workdir: str | os.PathLike) -> pathlib.Path:
  """`WORKDIR/private`, made with mode 0700."""
  folder = pathlib.Path(workdir) / FOLDER
  folder.mkdir(mode=0o700, parents=True, exist_ok=True)
  folder.chmod(0o700)  # mkdir leaves an existing folder as it is
  return folder


def create(
    workdir: str | os.PathLike,
    parts: Mapping[str, str],
    conditions: Mapping[str, str],
    *,
    private_seed: int | None = None,
) -> RunKey:
  """Draws the run's secret and writes its file (mode 0600) before any use.

  Args:
    workdir: the work directory, which this process alone uses.
    parts: of the run, see `Segment`.
    conditions: likewise.
    private_seed: None for 256 bits from the operating system; an integer for a
      reproducible run, whose guarantee says so.

  Raises:
    RunError: the file exists already.
  """
  target = path(workdir)
  if target.exists():
    raise errors.RunError(
        f"{target} exists, and a new run must not reuse a key: start in"
        " another --workdir"
    )
  created = RunKey(
      secret=(
          secrets.token_bytes(_BYTES)
          if private_seed is None
          else seeded_secret(private_seed)
      ),
      seeded=private_seed is not None,
      segments=(Segment(after=0, parts=parts, conditions=conditions),),
  )
  write(workdir, created)
  return created


def seeded_secret(private_seed: int) -> bytes:
  """The secret of a reproducible run: unrelated for neighbouring seeds."""
  text = f"episodic_dp private seed {int(private_seed)}"
  return hashlib.sha256(text.encode()).digest()


def write(workdir: str | os.PathLike, key: RunKey) -> None:
  """Writes the file, in the place of one that is there at once."""
  private_folder(workdir)
  files.write_text(path(workdir), key.text(), private=True)


def load(workdir: str | os.PathLike) -> RunKey:
  """The secret of a run that is resumed.

  Raises:
    RunError: the file is missing, or differs in any byte from what was written.
  """
  target = path(workdir)
  try:
    text = target.read_text(encoding="ascii")
  except FileNotFoundError as e:
    raise errors.RunError(
        f"the secret key {target} of this run is missing: {_REMEDY}"
    ) from e
  except (OSError, UnicodeDecodeError) as e:
    raise errors.RunError(
        f"the secret key {target} of this run cannot be read: {_REMEDY}"
    ) from e
  found = _parsed(text)
  if found is None:
    raise errors.RunError(
        f"the secret key {target} of this run is damaged, or was written by"
        f" another version: {_REMEDY}"
    )
  return found


def _parsed(text: str) -> RunKey | None:
  """What the file holds, or None where this is not what was written."""
  try:
    fields = json.loads(text)
    key = RunKey(
        secret=bytes.fromhex(fields["secret"]),
        seeded=fields["seeded"],
        segments=_segments(fields["segments"]),
    )
    whole = hmac.compare_digest(key.text(), text)
  except (AttributeError, KeyError, TypeError, ValueError, RecursionError):
    return None
  return key if whole and key.segments else None


def _segments(values: Sequence[Mapping[str, Any]]) -> tuple[Segment, ...]:
  return tuple(Segment(**value) for value in values)
