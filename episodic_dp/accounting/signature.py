"""Who promises a privacy statement: a detached signature (Ed25519).

A statement that holds says nothing of who wrote it, nor which weights it is
about. A signature is over the bytes of both: the statement's file and the
weights, a file or a folder. It shows that the holder of a key promised this
statement for these weights, and not that the promise is true.

The mathematics is that of the package `cryptography`, which the extra "sign"
installs.
"""

import base64
from collections.abc import Callable, Mapping
import hashlib
import os
import pathlib
import stat
from typing import Any, NamedTuple, TYPE_CHECKING

from episodic_dp import errors
from episodic_dp.output import files

if TYPE_CHECKING:
  from cryptography.hazmat.primitives.asymmetric import ed25519

SUFFIX = ".sig"  # Of the signature beside its statement.
_ALGORITHM = "Ed25519"
_FIELDS = ("algorithm", "statement", "weights", "public_key", "signature")
# No signature for anything else is one of a statement.
_CONTEXT = "episodic_dp privacy statement 1"


class SignatureError(ValueError):
  """A key, a signature or weights that do not fit; one sentence."""


class Signed(NamedTuple):
  """What a valid signature shows.

  Attributes:
    public_key: the fingerprint of the key that signed, "SHA256:...".
    weights: the digest of the weights that were signed; None if none were.
  """

  public_key: str
  weights: str | None


def new_key(path: str | os.PathLike) -> tuple[pathlib.Path, str]:
  """Make a key pair: `path` for its owner alone, and `path`.pub for all.

  Returns:
    the file of the public key, and its fingerprint.

  Raises:
    SignatureError: one of the files is there already, or cannot be written.
  """
  _, serialization, ed25519 = _cryptography()
  private = pathlib.Path(path)
  public = private.with_name(f"{private.name}.pub")
  for place in (private, public):
    if place.exists():
      raise SignatureError(f"{place} exists: choose another name for a new key")
  key = ed25519.Ed25519PrivateKey.generate()
  with files.replacing(private, private=True) as f:
    f.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
  with files.replacing(public) as f:
    f.write_bytes(
        key.public_key().public_bytes(
            serialization.Encoding.PEM,
            serialization.PublicFormat.SubjectPublicKeyInfo,
        )
    )
  return public, _fingerprint(key.public_key())


def sign(
    statement: bytes,
    key: str | os.PathLike,
    weights: str | os.PathLike | None = None,
) -> dict[str, Any]:
  """Sign the bytes of a statement, and the weights that it is about.

  Args:
    statement: the content of its file.
    key: the file of a private key (PEM, Ed25519).
    weights: a file or a folder, or None to sign the statement alone.

  Returns:
    The signature as plain data for JSON; `verify` reads it.

  Raises:
    SignatureError: the key or the weights cannot be used.
  """
  _, serialization, ed25519 = _cryptography()
  private = _load(
      key,
      lambda data: serialization.load_pem_private_key(data, password=None),
      ed25519.Ed25519PrivateKey,
      "a private",
  )
  found = None if weights is None else weights_digest(weights)
  digest = _statement_digest(statement)
  return {
      "algorithm": _ALGORITHM,
      "statement": digest,
      "weights": found,
      "public_key": _fingerprint(private.public_key()),
      "signature": base64.b64encode(
          private.sign(_message(digest, found))
      ).decode(),
  }


def verify(
    statement: bytes,
    signature: Any,
    public_key: str | os.PathLike,
    weights: str | os.PathLike | None = None,
    *,
    name: str = "the signature",
) -> Signed:
  """Check that the holder of a key signed this statement and these weights.

  Args:
    statement: the content of its file.
    signature: what `sign` gave, perhaps through JSON.
    public_key: the file of the public key (PEM, Ed25519), from a source that
      is trusted.
    weights: a file or a folder; None does not look at the weights.
    name: of the signature, for messages.

  Raises:
    SignatureError: says which of them is not what was signed.
  """
  exceptions, serialization, ed25519 = _cryptography()
  public = _load(
      public_key,
      serialization.load_pem_public_key,
      ed25519.Ed25519PublicKey,
      "a public",
  )
  stated = _checked(signature, name)
  if stated["statement"] != _statement_digest(statement):
    raise SignatureError(
        f"{name} is of another statement: this one was changed, or the"
        " signature belongs to another file"
    )
  try:
    public.verify(
        base64.b64decode(stated["signature"], validate=True),
        _message(stated["statement"], stated["weights"]),
    )
  except (exceptions.InvalidSignature, ValueError) as e:
    own, named = _fingerprint(public), stated["public_key"]
    why = "it was changed"
    if named != own:
      why = f"it names {errors.shown(named)}, so somebody else signed"
    raise SignatureError(
        f"{name} is not of the key {own}: {why}"
    ) from e
  if weights is not None:
    if stated["weights"] is None:
      raise SignatureError(
          "no weights were signed with this statement, so that nothing says"
          f" whether {os.fspath(weights)} belongs to it: leave the weights out"
      )
    found = weights_digest(weights)
    if found != stated["weights"]:
      raise SignatureError(
          f"{os.fspath(weights)} has the digest {found} and {stated['weights']}"
          " was signed: these are other weights"
      )
  return Signed(_fingerprint(public), stated["weights"])


def weights_digest(path: str | os.PathLike) -> str:
  """Digest a file ("sha256:..."), or all files of a folder ("sha256-tree:...").

  That of a file is what sha256sum prints. That of a folder is of the names and
  digests of all files below it, in rising order of their names.

  Raises:
    SignatureError: there is nothing, a symbolic link, or a file that cannot be
      read.
  """
  path = pathlib.Path(path)
  try:
    if path.is_file():
      return f"sha256:{_digest_of(path)}"
    if not path.is_dir():
      raise SignatureError(f"{path} does not exist: give a file or a folder")
    found = {}
    for folder, folders, names in os.walk(path, onerror=_raise):
      for name in (*folders, *names):
        place = pathlib.Path(folder, name)
        kind = place.lstat().st_mode
        if not stat.S_ISREG(kind) and not stat.S_ISDIR(kind):
          raise SignatureError(
              f"{place} is a link or no plain file: sign a folder of files"
          )
        if stat.S_ISREG(kind):
          found[os.fsencode(place.relative_to(path).as_posix())] = place
    total = hashlib.sha256()
    for key, place in sorted(found.items()):
      # No file name holds a zero byte.
      total.update(key + b"\0" + _digest_of(place).encode())
  except OSError as e:
    raise SignatureError(
        f"{e.filename or path} cannot be read ({e.strerror}): give the right to"
        " read it"
    ) from e
  if not found:
    raise SignatureError(f"{path} holds no file: give the weights' folder")
  return f"sha256-tree:{total.hexdigest()}"


def _raise(error: OSError) -> None:
  raise error


def _digest_of(path: pathlib.Path) -> str:
  with path.open("rb") as f:
    return hashlib.file_digest(f, "sha256").hexdigest()


def _statement_digest(statement: bytes) -> str:
  return f"sha256:{hashlib.sha256(statement).hexdigest()}"


def _message(statement: str, weights: str | None) -> bytes:
  """What is signed. No digest holds a line break."""
  return "\n".join((_CONTEXT, statement, weights or "no weights")).encode()


def _checked(signature: Any, name: str) -> Mapping[str, Any]:
  """The fields of a signature, each of its kind."""
  if not isinstance(signature, Mapping) or set(signature) != set(_FIELDS):
    raise SignatureError(
        f"{name} is no signature: it needs the fields {', '.join(_FIELDS)} and"
        " no others"
    )
  for field in _FIELDS:
    value = signature[field]
    if not isinstance(value, str) and (field != "weights" or value is not None):
      raise SignatureError(f"{name} has no text as {field}: it was changed")
  if signature["algorithm"] != _ALGORITHM:
    raise SignatureError(
        f"{name} is not by the algorithm {_ALGORITHM}: sign the statement with"
        " episodic-dp sign"
    )
  return signature


def _load(
    path: str | os.PathLike,
    load: Callable[[bytes], Any],
    kind: type,
    what: str,
) -> Any:
  """A key of a PEM file, of one kind."""
  path = pathlib.Path(path)
  remedy = f"give {what} {_ALGORITHM} key as PEM (episodic-dp sign makes them)"
  try:
    data = path.read_bytes()
  except OSError as e:
    raise SignatureError(
        f"{path} cannot be read ({e.strerror}): {remedy}"
    ) from e
  exceptions, _, _ = _cryptography()
  try:
    key = load(data)
  except TypeError as e:  # It has a password.
    raise SignatureError(
        f"{path} is encrypted: {remedy}, without a password"
    ) from e
  except (ValueError, exceptions.UnsupportedAlgorithm) as e:
    raise SignatureError(f"{path} is no {what[2:]} key: {remedy}") from e
  if not isinstance(key, kind):
    raise SignatureError(f"{path} is a key of another kind: {remedy}")
  return key


def _fingerprint(key: "ed25519.Ed25519PublicKey") -> str:
  digest = hashlib.sha256(key.public_bytes_raw()).digest()
  return "SHA256:" + base64.b64encode(digest).decode().rstrip("=")


def _cryptography() -> tuple[Any, Any, Any]:
  """The modules exceptions, serialization and ed25519 of `cryptography`."""
  try:
    # Lazy import: an extra that only signatures need.
    from cryptography import exceptions
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ed25519
  except ImportError as e:
    raise SignatureError(
        "signatures need the package cryptography: pip install"
        " 'episodic_dp[sign]'"
    ) from e
  return exceptions, serialization, ed25519
