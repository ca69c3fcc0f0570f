"""One rule for resuming: the same fingerprint, or a new key that is charged.

A run's fingerprint covers everything that its steps are computed from. A
process that resumes a run with an equal fingerprint uses its key again, and
repeats lost steps bit for bit, at no further cost. With another fingerprint the
run may resume only under a fresh key (`--resume=fork`), and steps that may have
been released since the last checkpoint are charged again.

So no step is ever released under one noise with two contents. The key file
guarantees this: it records that a step may have been taken before the step
starts. `Segment.last` is raised ahead of the steps, by at most
`checkpoint_every`. Another release, other data or another learner make another
run, which is refused.

The key file holds the secret, the fingerprints and these counters. Anyone who
knows the secret can subtract the noise, so only its owner may read it. JAX's
key is derived from the secret and all fingerprints so far.
"""

from collections.abc import Callable, Mapping, Sequence
import dataclasses
import hashlib
import hmac
import json
import operator
import os
import pathlib
import re
import secrets
from typing import Any

from absl import logging
from etils import epath
import jax

from episodic_dp import private
from episodic_dp.data import dataset as dataset_lib
from episodic_dp.errors import RunError
from episodic_dp.output import files
from episodic_dp.private import keys as private_keys
from episodic_dp.training import checkpoint as checkpoint_lib
from episodic_dp.training import metrics
from episodic_dp.training import settings
from episodic_dp.training import workdir as workdir_lib

_SECRET_BYTES = 32
_SCHEMA = 3
# A run that differs in one of these is another run.
_OF_THE_RUN = ("release", "data", "learner", "private_seed")
# Computed by code: comparable only if nothing else differs.
_COMPUTED = ("program", "start")
# Of a lowered program: operations that run code outside of it, but for those of
# JAX's and XLA's own libraries, whose versions are compared.
_HOST_CODE = re.compile(
    r"custom_call @\W?(?!(lapack|cublas|cusolver|cu|hipblas|hipsolver|hip)_"
    r"|(mhlo|chlo|xla)\.|Sharding|SPMD|TopK|ApproxTopK|Eigh|Qr|LuDecomposition"
    r"|ProductOfElementaryHouseholderReflectors|annotate_device_placement"
    r"|tpu_custom_call|__(gpu|cudnn|cublas)\$)"
    r"|stablehlo\.(send|recv|infeed|outfeed)\b"
)
# Of the fingerprint: name of a key -> [first, last] of its steps, as JSON.
_OTHERS = "steps under other keys"
_FEW = 3  # Most differences that a message names.


@dataclasses.dataclass(frozen=True, kw_only=True)
class Segment:
  """Steps under one fingerprint, and so under one key.

  Attributes:
    first: the steps done before.
    last: no later step has started; raised before steps start.
    fingerprint: name -> value or digest, as secret as the data.
  """

  first: int
  last: int
  fingerprint: dict[str, str] = dataclasses.field(repr=False)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunKey:
  """The secret of a run, and the steps that may have been taken under it.

  Attributes:
    path: path of its file.
    record: public file with the steps of all keys of the folder. It outlives a
      key file that is replaced by an older one.
    secret: 32 bytes; not shown.
    segments: in order; the next step belongs to the last one.
  """

  path: pathlib.Path
  record: epath.Path = dataclasses.field(repr=False)
  secret: bytes = dataclasses.field(repr=False)
  segments: tuple[Segment, ...]

  def jax_key(self) -> jax.Array:
    """Return the typed threefry key of the next steps, shape []."""
    derived = self._keyed("samples and noise", self._history(None))
    return private.secret_key(derived[: private_keys.KEY_BYTES])

  def seal(self, step: int, digest: str, segments: int | None = None) -> str:
    """Return a value that binds a checkpoint to the run; it may be published.

    Args:
      step: step of the checkpoint.
      digest: digest of its arrays.
      segments: number of segments so far; None for all.
    """
    held = [self._history(segments), step, digest]
    return self._keyed("checkpoint", held).hex()

  def name(self, segments: int | None = None) -> str:
    """Return the name of the key after so many segments; it is public."""
    return self._keyed("name", self._history(segments)).hex()

  def others(self) -> dict[str, list[int]]:
    """Return name -> [first, last] of other keys of the folder."""
    return json.loads(self.segments[-1].fingerprint.get(_OTHERS, "{}"))

  def ranges(self) -> list[range]:
    """Return the steps to charge: of other keys, and last of this one."""
    last = self.segments[-1]
    others = sorted(self.others().values())
    return [*(range(*steps) for steps in others), range(last.first, last.last)]

  def raised(self, step: int) -> "RunKey":
    """Record on disk that steps up to this one may start, before they do."""
    last = dataclasses.replace(self.segments[-1], last=step)
    key = dataclasses.replace(self, segments=(*self.segments[:-1], last))
    key.write()
    return key

  def write(self) -> None:
    """Write the file and the record; they are on the disk on return."""
    last = self.segments[-1]
    steps = self.others() | {self.name(): [last.first, last.last]}
    # A record without its key is that of a lost key: the key comes first.
    workdir_lib.make_private(self.path.parent)
    files.write_text(self.path, self.text(), private=True)
    files.write_json(self.record, steps)
    folder = os.open(self.path.parent, os.O_RDONLY)
    os.fsync(folder)
    os.close(folder)

  def text(self) -> str:
    """Return the content of the file, including its check value."""
    fields = {
        "schema": _SCHEMA,
        "secret": self.secret.hex(),
        "segments": [dataclasses.asdict(s) for s in self.segments],
    }
    fields["check"] = self._keyed("key file", fields).hex()
    return json.dumps(fields, indent=1, sort_keys=True) + "\n"

  def _history(self, count: int | None) -> list[Any]:
    """Return the fingerprints that the key is derived from.

    A seeded run starts alike on any machine. Its first key depends neither on
    the machine nor on values of the configuration; the other parts cover all
    effects of these values.
    """
    history = [[s.first, s.fingerprint] for s in self.segments[:count]]
    first = self.segments[0].fingerprint
    if first["private_seed"] != str(None):
      names = ("release", "data", "learner", *_COMPUTED)
      history[0][1] = {k: first[k] for k in names}
    return history

  def _keyed(self, purpose: str, value: object) -> bytes:
    """Return a keyed hash, unrelated for every purpose and value."""
    text = json.dumps([f"episodic_dp {purpose}", value], sort_keys=True)
    return hmac.digest(self.secret, text.encode(), "sha256")


def fingerprint(
    parts: Mapping[str, str],
    config: Mapping[str, Any],
    private_seed: int | None = None,
    processes: Sequence[str] = (),
) -> dict[str, str]:
  """Return everything that the steps of a run are computed from.

  Args:
    parts: "release", "data", "learner", "start" (digest of the first state) and
      "program" (digest of the lowered step).
    config: JSON-able description of the run.
    private_seed: seed of the key, None for a secret key.
    processes: digests of the settings of all processes, the first one's first.
  """
  found = dict(parts) | {"private_seed": str(private_seed)} | settings.present()
  for number, one in enumerate(processes[1:], 1):
    found[f"settings of process {number}"] = one
  leaves = jax.tree.leaves_with_path(
      {"config": json.loads(json.dumps(config))},
      is_leaf=lambda value: not isinstance(value, dict),
  )
  for path, value in leaves:
    name = jax.tree_util.keystr(path, simple=True, separator=".")
    found[name] = json.dumps(value)
  return dict(sorted(found.items()))


def begin(
    place: workdir_lib.WorkDirectory,
    checkpoints: checkpoint_lib.Checkpoints,
    found: dict[str, str],
    *,
    mode: str,
) -> tuple[RunKey, int]:
  """Return the key to resume with and the step of the last checkpoint.

  Nothing is written; `RunKey.write` does so before the first step.

  Args:
    place: the work directory, which only this process uses.
    checkpoints: those in it.
    found: the fingerprint of the present run. The key comes from its private
      seed, or from 256 bits of the operating system.
    mode: "same" accepts an equal fingerprint only; "fork" and "auto" resume
      under a fresh key with another one.

  Raises:
    RunError: the folder holds another run, or one that cannot be resumed.
  """
  step = checkpoints.latest() or 0
  if not place.key.exists():
    if any((place.folder / name).exists() for name in workdir_lib.BEGUN):
      raise _lost(place, "is missing")
    workdir_lib.check_own(place.folder, place.key)
    secret = secrets.token_bytes(_SECRET_BYTES)
    if found["private_seed"] != str(None):
      text = f"episodic_dp private seed {found['private_seed']}"
      secret = hashlib.sha256(text.encode()).digest()
    segment = Segment(first=0, last=0, fingerprint=found | {_OTHERS: "{}"})
    key = RunKey(
        path=place.key, record=place.record, secret=secret, segments=(segment,)
    )
    return key, 0
  key, others = _completed(load(place), place, step)
  found = found | {_OTHERS: json.dumps(others, sort_keys=True)}
  last = key.segments[-1]
  if step < last.first or (step and not _belongs(key, checkpoints, step)):
    raise RunError(
        f"the last checkpoint in {checkpoints.folder}, of step {step}, was not"
        f" written under the secret key of this folder from step {last.first}"
        " on, or was changed since: restore the checkpoints that belong to"
        " the key, or choose another workdir"
    )
  before = last.fingerprint
  names = [k for k in found | before if before.get(k) != found.get(k)]
  if not names:
    return key, step
  other = [name for name in _OF_THE_RUN if name in names]
  if set(names) <= set(_COMPUTED):
    other = ["learner, optimizer or first parameters, as they compute"]
  differ = _differences(names, before, found)
  if other:
    detail = ""
    if differ:
      detail = f" ({differ})"
    raise RunError(
        f"{place.folder} holds a run that differs in"
        f" {' and '.join(other)}{detail}: choose a new folder, or resume it"
        " unchanged"
    )
  if mode not in ("fork", "auto"):
    ahead = last.last - step
    raise RunError(
        f"the run in {place.folder} is resumed with {differ}: resume it"
        " unchanged, which costs nothing, begin another workdir, or give"
        " resume='fork' (in a command --resume=fork), which resumes from step"
        f" {step} under a fresh key and charges {ahead} steps again that may"
        " have been released since"
    )
  logging.warning(
      "the run in %s resumes from step %d under a fresh key, with %s",
      place.folder, step, differ,
  )
  if last.last > last.first:
    others[key.name()] = [last.first, last.last]
  found[_OTHERS] = json.dumps(others, sort_keys=True)
  forked = Segment(first=step, last=step, fingerprint=found)
  return dataclasses.replace(key, segments=(*key.segments, forked)), step


def load(place: workdir_lib.WorkDirectory) -> RunKey:
  """Return the key of a run.

  Raises:
    RunError: the file differs in any byte from the one that was written.
  """
  try:
    text = place.key.read_text(encoding="ascii")
    fields = json.loads(text)
    key = RunKey(
        path=place.key,
        record=place.record,
        secret=bytes.fromhex(fields["secret"]),
        segments=tuple(Segment(**s) for s in fields["segments"]),
    )
    if not hmac.compare_digest(key.text(), text):
      raise ValueError("its check value is wrong")
  except (
      AttributeError, IndexError, KeyError, OSError, RecursionError, TypeError,
      ValueError,
  ) as e:
    raise _lost(place, "is damaged or of another version") from e
  return key


def _completed(
    key: RunKey, place: workdir_lib.WorkDirectory, step: int
) -> tuple[RunKey, dict[str, list[int]]]:
  """Return a key that knows all steps which a file shows, and other keys.

  A key file from a backup knows fewer steps than the record, and both know
  fewer than the metrics and checkpoints if these are newer. A line of metrics
  names its key; all others are counted for the present one. One more step is
  counted than the newest line shows: a kill may have prevented the next line.

  Args:
    key: as its file describes it.
    place: the work directory.
    step: step of the last checkpoint.

  Returns:
    the key, and the steps of the folder's other keys as in `RunKey.others`.
  """
  present = key.name()
  known = [*_recorded(place), *key.others().items()]
  for count, segment in enumerate(key.segments, 1):
    known.append((key.name(count), [segment.first, segment.last]))
  steps: dict[str, list[int]] = {}
  for name, (first, last) in known:
    if last > first or name == present:
      steps[name] = [first, max(last, steps.get(name, [0, 0])[1])]
  steps[present][1] = max(step, steps[present][1])
  newer: dict[str, list[int]] = {}
  for path in (place.folder / metrics.FILE, place.diagnostics):
    for line in metrics.read(path):
      name, done = str(line.get(metrics.KEY, present)), line["step"]
      first, last = steps.get(name, [done - 1, 0])
      if done > last:
        newer.setdefault(name, []).extend([first, done + 1])
  steps |= {name: [min(found), max(found)] for name, found in newer.items()}
  _, last = steps.pop(present)
  segment = dataclasses.replace(key.segments[-1], last=last)
  segments = (*key.segments[:-1], segment)
  return dataclasses.replace(key, segments=segments), steps


def _recorded(
    place: workdir_lib.WorkDirectory,
) -> list[tuple[str, list[int]]]:
  """Return (name, [first, last]) of every key in the record of a folder.

  Raises:
    RunError: it is damaged.
  """
  if not place.record.exists():
    return []  # A run of an earlier version.
  try:
    found = json.loads(place.record.read_text(encoding="utf-8"))
    return [
        (name, [operator.index(first), operator.index(last)])
        for name, (first, last) in found.items()
    ]
  except (AttributeError, OSError, RecursionError, TypeError, ValueError) as e:
    raise RunError(
        f"{place.record} cannot be read, which holds the steps that were"
        " released: restore the file, or start a new run in another workdir"
    ) from e


def _lost(place: workdir_lib.WorkDirectory, how: str) -> RunError:
  return RunError(
      f"the secret key {place.key} of the run in {place.folder} {how}: restore"
      " the file (key_file names that of a run on an object store), or"
      " start a new run in another workdir"
  )


def _belongs(
    key: RunKey, checkpoints: checkpoint_lib.Checkpoints, step: int
) -> bool:
  """Return whether a checkpoint was written under this key's history.

  A fork starts with a checkpoint of the previous segment.
  """
  about = checkpoints.about(step)
  for count in range(len(key.segments), 0, -1):
    segment = key.segments[count - 1]
    seal = key.seal(step, about["digest"], count)
    if about.get("seal") == seal and step <= segment.last:
      return True
    if segment.first != step:
      break
  return False


def _differences(
    differ: Sequence[str], before: Mapping[str, str], now: Mapping[str, str]
) -> str:
  """List the first values that differ."""
  # Without digests, which are secret and explain less than named values.
  hidden = (*_OF_THE_RUN, *_COMPUTED, _OTHERS)
  shown = [n for n in differ if n not in hidden]
  named = [
      f"{name}={now.get(name, 'absent')} (it was"
      f" {before.get(name, 'absent')})"
      for name in shown[:_FEW]
  ]
  if _OTHERS in differ:
    named.append("a key file that is older than the steps of another key")
  if len(shown) > _FEW:
    named.append(f"{len(shown) - _FEW} more changes")
  return " and ".join(named)


digest = checkpoint_lib.digest  # Digest of arrays.


def json_digest(value: object) -> str:
  """Return SHA-256 of plain data, whatever the order of its fields."""
  return files.sha256(json.dumps(value, sort_keys=True).encode())


def program_digest(function: Callable[..., Any], *arguments: Any) -> str:
  """Return SHA-256 of a function of arrays; see `program_text`."""
  text = program_text(jax.jit(function).lower(*arguments))
  return files.sha256(text.encode())


def program_text(lowered: jax.stages.Lowered) -> str:
  """Return a program as text, which determines its values.

  Raises:
    RunError: it calls Python or another library, which the text does not show.
  """
  text = lowered.as_text()
  if _HOST_CODE.search(text):
    raise RunError(
        "the network or learner calls Python or a library while it computes"
        " (jax.pure_callback, io_callback, jax.debug or jax.ffi), so a resumed"
        " run could compute something else under the same noise: write it with"
        " JAX alone"
    )
  return text


def shapes(tree: checkpoint_lib.Arrays) -> list[list[str]]:
  """Return name, shape and dtype of each array of a tree."""
  leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
  return [
      [jax.tree_util.keystr(path), str(jax.typeof(leaf))]
      for path, leaf in leaves
  ]


def data_digest(dataset: dataset_lib.Dataset) -> str:
  """Return SHA-256 of all that a step may read: images, labels, leaf rows.

  It is as secret as the data: anyone who has it can test a guess of all data.
  It is stored in the key file only.

  Args:
    dataset: its arrays may be mapped files, which are read once.
  """
  arrays = (dataset.images, dataset.labels, dataset.hierarchy.leaf_rows)
  # None has a separate digest.
  return json_digest([dataset.rotate, dataset.targets, *map(digest, arrays)])
