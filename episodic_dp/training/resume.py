"""One rule for resuming: the same fingerprint, or a new key that is paid for.

A run's fingerprint covers everything that its steps are computed from. A
process that resumes a run under an equal fingerprint uses its key again, and
repeats lost steps bit for bit: they cost nothing twice. Under any other
fingerprint the run may only resume under a fresh key (`--resume=fork`), and
steps that may have been released since the last checkpoint are paid for again.

So no step is ever released under one noise with two contents. This holds
because the key file says, before a step begins, that it may have been taken:
`Segment.last` is raised ahead of the steps, by at most `checkpoint_every`.
Another release, other data or another learner is another run, and is refused.

The key file holds the secret, the fingerprints and these counters. Anyone who
knows the secret can subtract the noise, so its owner alone may read it. The key
that JAX draws from is derived from the secret and all fingerprints up to now.
"""

from collections.abc import Mapping, Sequence
import dataclasses
import hashlib
import hmac
import json
import os
import pathlib
import re
import secrets
from typing import Any

from absl import logging
import jax
import jaxlib
import numpy as np

from episodic_dp import _version
from episodic_dp import errors
from episodic_dp import private
from episodic_dp.data import dataset as dataset_lib
from episodic_dp.output import files
from episodic_dp.private import keys as private_keys
from episodic_dp.training import checkpoint as checkpoint_lib
from episodic_dp.training import workdir as workdir_lib

MODES = ("same", "fork", "auto", "must", "never")

_SECRET_BYTES = 32
_SCHEMA = 3
_BLOCK = 1 << 23  # bytes of data that are hashed at once
# A run with another of these is another run.
_OF_THE_RUN = ("release", "data", "learner")
# Computed by code: comparable only where nothing else differs.
_COMPUTED = ("program", "start")
# Settings of JAX that change no number: diagnostics, caches and addresses; the
# devices have their own entries.
_SILENT = re.compile(
    "log|debug|cache|dump|trace|profil|check|pprint|transfer|error|guard"
    "|platform|hlo_source|source_url|num_cpu_devices|distributed|visible"
)
_FEW = 3  # Differences that a sentence names.


@dataclasses.dataclass(frozen=True, kw_only=True)
class Segment:
  """Steps under one fingerprint, and so under one key.

  Attributes:
    first: the steps done before.
    last: no later step was begun; raised before steps are.
    fingerprint: name -> value or digest, as secret as the data.
  """

  first: int
  last: int
  fingerprint: dict[str, str] = dataclasses.field(repr=False)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunKey:
  """The secret of a run, and the steps that may have been taken under it.

  Attributes:
    path: of its file.
    secret: 32 bytes; not shown.
    seeded: whether they follow from a `private_seed`.
    segments: the last of which takes the next step.
  """

  path: pathlib.Path
  secret: bytes = dataclasses.field(repr=False)
  seeded: bool
  segments: tuple[Segment, ...]

  def jax_key(self) -> jax.Array:
    """Return the typed threefry key of the steps to come, shape []."""
    derived = self._keyed("samples and noise", self._history(None))
    return private.secret_key(derived[: private_keys.KEY_BYTES])

  def seal(self, step: int, digest: str, segments: int | None = None) -> str:
    """Return a value that binds a checkpoint to the run; it may be published.

    Args:
      step: of the checkpoint.
      digest: of its arrays.
      segments: how many had begun; None for all.
    """
    held = [self._history(segments), step, digest]
    return self._keyed("checkpoint", held).hex()

  def ranges(self, done: int) -> list[range]:
    """Return the steps to pay for: of earlier segments, and of this one."""
    *earlier, last = self.segments
    ranges = [range(s.first, s.last) for s in earlier]
    return [*ranges, range(last.first, done)]

  def raised(self, step: int) -> "RunKey":
    """Write that steps up to this one may be begun, before they are."""
    *earlier, last = self.segments
    segments = (*earlier, dataclasses.replace(last, last=step))
    return dataclasses.replace(self, segments=segments).written()

  def forked(self, step: int, fingerprint: dict[str, str]) -> "RunKey":
    """Write that the steps to come have a fresh key."""
    new = Segment(first=step, last=step, fingerprint=fingerprint)
    return dataclasses.replace(
        self, segments=(*self.segments, new)
    ).written()

  def written(self) -> "RunKey":
    """Write the file; it is on the disk when this returns."""
    workdir_lib.make_private(self.path.parent)
    files.write_text(self.path, self.text(), private=True)
    folder = os.open(self.path.parent, os.O_RDONLY)
    os.fsync(folder)
    os.close(folder)
    return self

  def text(self) -> str:
    """Return the content of the file, with a check value of its own."""
    fields = {
        "schema": _SCHEMA,
        "secret": self.secret.hex(),
        "seeded": self.seeded,
        "segments": [dataclasses.asdict(s) for s in self.segments],
    }
    fields["check"] = self._keyed("key file", fields).hex()
    return json.dumps(fields, indent=1, sort_keys=True) + "\n"

  def _history(self, count: int | None) -> list[Any]:
    """Return the fingerprints that the key follows from.

    A seeded run begins alike on any machine, so that its first key does not
    depend on what is computed on; nor on values of the configuration, of which
    the other parts tell what they change.
    """
    history: list[Any] = []
    for segment in self.segments[:count]:
      told = dict(segment.fingerprint)
      if self.seeded and not history:
        told = {k: told[k] for k in (*_OF_THE_RUN, *_COMPUTED) if k in told}
      history.append([segment.first, told])
    return history

  def _keyed(self, purpose: str, value: Any) -> bytes:
    """Return a keyed hash, unrelated for every purpose and value."""
    text = json.dumps([f"episodic_dp {purpose}", value], sort_keys=True)
    return hmac.digest(self.secret, text.encode(), "sha256")


def fingerprint(
    parts: Mapping[str, str], config: Mapping[str, Any]
) -> dict[str, str]:
  """Return everything that the steps of a run are computed from.

  Args:
    parts: "release", "data", "learner", "start" (digest of the first state) and
      "program" (digest of a step as it is lowered).
    config: JSON-able description of the run.
  """
  device = jax.devices()[0]
  found = dict(parts) | {
      "episodic_dp": _version.__version__,
      "jax": jax.__version__,
      "jaxlib": jaxlib.__version__,
      "numpy": np.__version__,
      "device": f"{device.platform} {device.device_kind}",
      "devices": str(jax.device_count()),
      "processes": str(jax.process_count()),
      "processor": _processor(),
      # Without names of folders, such as that of a dump.
      "XLA_FLAGS": " ".join(
          flag
          for flag in os.environ.get("XLA_FLAGS", "").split()
          if "/" not in flag
      ),
      "LIBTPU_INIT_ARGS": os.environ.get("LIBTPU_INIT_ARGS", ""),
  }
  for name, value in jax.config.values.items():
    if not _SILENT.search(name):
      found[name] = str(value)
  for name, value in _flat(json.loads(json.dumps(config)), "config").items():
    found[name] = json.dumps(value)
  return dict(sorted(found.items()))


def begin(
    place: workdir_lib.WorkDirectory,
    checkpoints: checkpoint_lib.Checkpoints,
    found: dict[str, str],
    *,
    mode: str,
    private_seed: int | None,
) -> tuple[RunKey, int]:
  """Return the key to go on with and the step of the last checkpoint.

  Writes the key file, where the key is new or forked, and nothing else.

  Args:
    place: the work directory, which this process alone uses.
    checkpoints: those in it.
    found: the fingerprint of the run as it is now.
    mode: "same" for an equal fingerprint alone; "fork" or "auto" to go on under
      a fresh key with another one; "must" as "auto", in a folder that was
      opened before, and "never" where no run was begun.
    private_seed: None for 256 bits from the operating system; an integer for a
      reproducible run, whose guarantee says so.

  Raises:
    RunError: the folder holds another run, or one that cannot be resumed.
  """
  step = checkpoints.latest() or 0
  if not place.key.exists():
    if place.begun:
      raise _lost(place, "is missing")
    secret = secrets.token_bytes(_SECRET_BYTES)
    if private_seed is not None:
      text = f"episodic_dp private seed {int(private_seed)}"
      secret = hashlib.sha256(text.encode()).digest()
    segment = Segment(first=0, last=0, fingerprint=found)
    key = RunKey(
        path=place.key,
        secret=secret,
        seeded=private_seed is not None,
        segments=(segment,),
    )
    return key.written(), 0
  key = load(place)
  _check_seed(key, private_seed)
  last = key.segments[-1]
  if step < last.first:
    raise errors.RunError(
        f"the run in {place.folder} went on under another key after step"
        f" {last.first}, and its checkpoint of that step is gone: put it back,"
        " or choose another --workdir"
    )
  if step:
    _check_checkpoint(key, checkpoints, step)
  before = last.fingerprint
  names = [k for k in found | before if before.get(k) != found.get(k)]
  if not names:
    return key, step
  _check_same_run(place.folder, names, before, found)
  differ = _differences(names, before, found)
  if mode not in ("fork", "auto", "must"):
    ahead = last.last - step
    raise errors.RunError(
        f"the run in {place.folder} is resumed with {differ}: resume it as it"
        " was, which costs nothing, or add --resume=fork, which goes on from"
        f" step {step} under a fresh key and pays for {ahead} steps again that"
        " may have been released since"
    )
  logging.warning(
      "the run in %s goes on from step %d under a fresh key, with %s",
      place.folder, step, differ,
  )
  return key.forked(step, found), step


def check_mode(place: workdir_lib.WorkDirectory, mode: str) -> None:
  """Refuse a folder that `--resume` says is another.

  Raises:
    RunError: "must" and no run was begun, "never" and one was.
  """
  if mode == "must" and not place.known:
    raise errors.RunError(
        f"--resume=must, and no run was ever begun in {place.folder}: mount or"
        " name the work directory of the run"
    )
  if mode == "never" and place.begun:
    raise errors.RunError(
        f"--resume=never, and {place.folder} holds a run: choose another"
        " --workdir"
    )


def load(place: workdir_lib.WorkDirectory) -> RunKey:
  """Return the key of a run.

  Raises:
    RunError: the file is missing, or differs in any byte from what was written.
  """
  try:
    text = place.key.read_text(encoding="ascii")
    fields = json.loads(text)
    key = RunKey(
        path=place.key,
        secret=bytes.fromhex(fields["secret"]),
        seeded=fields["seeded"],
        segments=tuple(Segment(**s) for s in fields["segments"]),
    )
    whole = hmac.compare_digest(key.text(), text)
  except FileNotFoundError as e:
    raise _lost(place, "is missing") from e
  except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as e:
    raise _lost(place, "is damaged or of another version") from e
  if not whole or not key.segments:
    raise _lost(place, "is damaged or of another version")
  return key


def _lost(place: workdir_lib.WorkDirectory, how: str) -> errors.RunError:
  return errors.RunError(
      f"the secret key {place.key} of the run in {place.folder} {how}: put the"
      " file back (--key_file names that of a run on an object store), or"
      " start a new run in another --workdir"
  )


def _check_seed(key: RunKey, private_seed: int | None) -> None:
  """Refuse a key that was made otherwise than the guarantee would say."""
  text = f"episodic_dp private seed {private_seed}"
  seeded = hashlib.sha256(text.encode()).digest() == key.secret
  if seeded != (private_seed is not None) or seeded != key.seeded:
    raise errors.RunError(
        "the key of this run does not follow from"
        f" private_seed={private_seed}: resume with the --config.private_seed"
        " that it was started with, or choose another --workdir"
    )


def _check_checkpoint(
    key: RunKey, checkpoints: checkpoint_lib.Checkpoints, step: int
) -> None:
  """Refuse a checkpoint that was not written under this key's history."""
  about = checkpoints.about(step)
  for count in range(len(key.segments), 0, -1):
    if step > key.segments[count - 1].last:
      break
    if about.get("seal") == key.seal(step, about["digest"], count):
      return
    if key.segments[count - 1].first != step:
      break
  raise errors.RunError(
      f"the checkpoint of step {step} in {checkpoints.folder} was not written"
      " under the secret key of this folder, or was changed since: put back the"
      " checkpoints that belong to the key, or choose another --workdir"
  )


def _check_same_run(
    folder: Any,
    differ: Sequence[str],
    before: Mapping[str, str],
    now: Mapping[str, str],
) -> None:
  """Refuse another run, which no fresh key makes the same."""
  other = [name for name in _OF_THE_RUN if name in differ]
  if not other and set(differ) <= set(_COMPUTED):
    other = ["learner, optimizer or first parameters, as they compute"]
  if other:
    fields = [name for name in differ if name.startswith("config.")]
    told = _differences(fields, before, now)
    raise errors.RunError(
        f"{folder} holds a run with another {' and another '.join(other)}"
        f"{f' ({told})' if told else ''}: choose a new folder, or resume it as"
        " it was"
    )


def _differences(
    differ: Sequence[str], before: Mapping[str, str], now: Mapping[str, str]
) -> str:
  """Name the first values that differ."""
  # Digests of what is computed say less than what they follow from.
  shown = [name for name in differ if name not in _COMPUTED]
  told = [
      f"{name}={now.get(name, 'absent')} (it was"
      f" {before.get(name, 'absent')})"
      for name in shown[:_FEW]
  ]
  more = len(shown) - len(told)
  return " and ".join(told) + (f" and {more} more changes" if more else "")


digest = checkpoint_lib.digest  # Of arrays.


def json_digest(value: Any) -> str:
  """Return SHA-256 of plain data, whatever the order of its fields."""
  text = json.dumps(value, sort_keys=True)
  return hashlib.sha256(text.encode()).hexdigest()


def program_digest(function: Any, *arguments: Any) -> str:
  """Return SHA-256 of a function of arrays as XLA is given it."""
  text = jax.jit(function).lower(*arguments).as_text()
  return hashlib.sha256(text.encode()).hexdigest()


def shapes(tree: Any) -> list[list[str]]:
  """Return name, shape and dtype of each array of a tree."""
  leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
  return [
      [jax.tree_util.keystr(path), str(jax.typeof(leaf))]
      for path, leaf in leaves
  ]


def data_digest(dataset: dataset_lib.Dataset) -> str:
  """Return SHA-256 of all that a step may read: images, labels, leaf rows.

  It is as secret as the data: anyone who has it can test a guess of all data.
  It lies in the key file alone.

  Args:
    dataset: its arrays may be mapped files, which are read once.
  """
  total = hashlib.sha256(f"{dataset.rotate} {dataset.targets}".encode())
  for array in (dataset.images, dataset.labels, dataset.hierarchy.leaf_rows):
    if array is None:
      total.update(b"-")
      continue
    total.update(f"{array.dtype}{array.shape}".encode())
    rows = max(1, _BLOCK * len(array) // max(1, array.nbytes))
    for start in range(0, len(array), rows):
      block = np.ascontiguousarray(array[start : start + rows])
      total.update(block.reshape(-1).view(np.uint8).data)
  return total.hexdigest()


def _flat(value: Any, name: str) -> dict[str, Any]:
  """Return dotted name -> value of nested objects."""
  if not isinstance(value, dict) or not value:
    return {name: value}
  found: dict[str, Any] = {}
  for key, child in value.items():
    found |= _flat(child, f"{name}.{key}")
  return found


def _processor() -> str:
  """Return a digest of the processor's instructions, which move roundings."""
  cores = len(os.sched_getaffinity(0))
  try:
    text = pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8")
  except (OSError, UnicodeDecodeError):
    return f"{cores} cores"
  lines = text.splitlines()
  names = ("model name", "flags", "Features")
  told = [line for line in lines if line.startswith(names)]
  return f"{cores} cores {json_digest(sorted(set(told)))[:12]}"
