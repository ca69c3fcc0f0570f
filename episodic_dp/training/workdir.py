"""The work directory: one run at a time, one configuration, room to write."""

from collections.abc import Callable, Iterator, Mapping, Sequence
import contextlib
import dataclasses
import errno
import fcntl
import json
import os
import pathlib
import shlex
import shutil
import tempfile
from typing import Any, IO

from absl import logging

from episodic_dp.plan.errors import shown
from episodic_dp.training import errors
from episodic_dp.training import mirror
from episodic_dp.training import remote
from episodic_dp.training import stores

CONFIG = "config.json"
_CHECKPOINTS = "checkpoints"
_OF_A_RUN = (CONFIG, remote.KEY, _CHECKPOINTS, "metrics.jsonl")
# What flock answers on a mount that knows no locks, some NFS and FUSE ones.
_WITHOUT_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS)
_ROOM = 64 * 2**20  # bytes: seven small checkpoints and the pictures

# What may differ when a run is resumed. The first group changes neither the
# steps nor what is drawn. The second changes how the sum of a step's tasks is
# laid out, and so its rounding alone: samples and noise are the same bits (see
# `binding`). The third changes steps that are still to come: it is refused
# while steps after the last checkpoint have left a trace, since these would be
# taken a second time, differently, under the same noise.
# What a path names is compared by its digest, and code by what it computes
# (`binding`).
_REPORTING = ("delta", "evaluation.test_tasks", "evaluation.seed",
              "model.start", "model.source_digest")
_REMEDIES = {
    "model.start_digest": (
        "give --config.model.start the file of weights that it was started with"
    ),
    "model.shapes_digest": (
        "give the network of config.model.name the parameters that it had"
    ),
}
_RESTORE = (
    "restore the file, or move it away and resume the run, which writes it"
    " anew"
)
# Of the model: what is known once its network is made.
_RECORDED = ("start_digest", "source_digest", "shapes_digest")
_COMPUTED = ("hierarchy",)
_OF_ANOTHER = "with the --config that it was started with"
_FEW = 3  # Fields that a sentence names.
_LAYOUT = ("compute.devices", "compute.microbatch_size", "compute.resident")
_FUTURE = ("steps", "target_epsilon", "privacy_unit", "compute", "evaluation",
           "fine_tuning", "private_diagnostics")


@dataclasses.dataclass(frozen=True, kw_only=True)
class WorkDirectory:
  """A work directory that one process alone uses.

  Attributes:
    folder: where its files lie while they are used.
    publish: called when files of the run should outlast this machine: before
      the first step, and after every checkpoint. Does nothing for a folder of
      this machine; see `mirror` for those on an object store.
  """

  folder: pathlib.Path
  publish: Callable[[], None] = lambda: None


@contextlib.contextmanager
def opened(
    workdir: str | os.PathLike,
    *,
    resume: str = "auto",
    key_file: str | os.PathLike | None = None,
) -> Iterator[WorkDirectory]:
  """Makes the work directory, checks that it takes files, and locks it.

  What fails before a run began in it leaves it as it was.

  Args:
    workdir: a folder, or an address on an object store (gs://, s3://), whose
      run then works in a temporary folder (`mirror`).
    resume: "auto"; "must" refuses what was never opened as a work directory,
      "never" what holds a run.
    key_file: where the secret key of a run on an object store lies, on this
      machine; None for `private/` on the store.

  Raises:
    RunError: it cannot be made or written, its disk is full, another process
      trains in it, or `resume` refuses it.
  """
  check_key_file(workdir, key_file)
  if stores.is_url(workdir):
    store = stores.Store(os.fspath(workdir))
    there = store.names()
    if resume == "must" and not there:
      raise _never_opened(store.url)
    if resume == "never" and any(_of_a_run(name) for name in there):
      raise _holds_a_run(store.url)
    with mirror.opened(store, key_file=key_file) as copy:
      _check_room(copy.folder, "set TMPDIR to a folder with room")
      yield WorkDirectory(folder=copy.folder, publish=copy.publish)
    return
  folder = pathlib.Path(workdir).absolute()
  if resume == "must" and not (folder / remote.LOCK).exists():
    raise _never_opened(str(folder))
  with _locked(folder):
    if resume == "never" and any((folder / n).exists() for n in _OF_A_RUN):
      raise _holds_a_run(str(folder))
    yield WorkDirectory(folder=folder)


def check_key_file(
    workdir: str | os.PathLike, key_file: str | os.PathLike | None
) -> None:
  """Refuses a key apart from its run, where both would lie on this machine.

  Raises:
    RunError: one sentence.
  """
  if key_file is not None and not stores.is_url(workdir):
    raise errors.RunError(
        f"--key_file={key_file} is for a run on an object store: leave it out;"
        f" the key of this run lies in {workdir}/private"
    )


@contextlib.contextmanager
def _locked(folder: pathlib.Path) -> Iterator[None]:
  """Makes the folder, and keeps other processes out of it."""
  try:
    before, made = _there(folder), _to_be_made(folder)
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=folder) as probe:
      probe.write(b"\0" * 4096)
      probe.flush()
    lock = open(folder / remote.LOCK, "w")
  except OSError as e:
    raise errors.RunError(
        f"the work directory {folder} cannot be written"
        f" ({e.strerror or e}): choose another --workdir or mend this one"
    ) from e
  with lock:
    _take(lock, folder)
    try:
      _check_room(folder, "make room or choose another --workdir")
      yield
    except Exception:
      # Without a configuration no step was taken, and the key has no use.
      if not (folder / CONFIG).exists():
        _remove(folder, _there(folder) - before, made)
      raise


def _there(folder: pathlib.Path) -> set[str]:
  """The names in a folder; none where there is no folder."""
  return {path.name for path in folder.iterdir()} if folder.is_dir() else set()


def _to_be_made(folder: pathlib.Path) -> list[pathlib.Path]:
  """The folder and those above it that do not exist, the innermost first."""
  return [path for path in (folder, *folder.parents) if not path.exists()]


def _remove(
    folder: pathlib.Path, names: set[str], made: list[pathlib.Path]
) -> None:
  """Removes what was made, as far as that can be done."""
  with contextlib.suppress(OSError):
    for name in names:
      path = folder / name
      if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
      else:
        path.unlink()
    for path in made:
      path.rmdir()  # Fails where another run was put into it.


def _check_room(folder: pathlib.Path, remedy: str) -> None:
  room = shutil.disk_usage(folder).free
  if room < _ROOM:
    raise errors.RunError(
        f"the disk of the work directory {folder} has {room >> 20} MiB left and"
        f" a run needs {_ROOM >> 20}: {remedy}"
    )


def _take(lock: IO[str], folder: pathlib.Path) -> None:
  """Locks the file, where its file system can."""
  taken = errors.RunError(
      f"another process is training in {folder}: wait for it, stop it, or"
      " choose another --workdir"
  )
  try:
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    # A process whose run was refused removes its lock.
    if os.fstat(lock.fileno()).st_nlink == 0:
      raise taken
  except BlockingIOError as e:
    raise taken from e
  except OSError as e:
    if e.errno not in _WITHOUT_LOCKS:
      raise errors.RunError(
          f"the work directory {folder} cannot be locked ({e.strerror or e}):"
          " choose another --workdir or mend this one"
      ) from e
    logging.warning(
        "the file system of %s knows no locks (%s): see to it that no second"
        " process trains in it",
        folder,
        e.strerror or e,
    )


def _never_opened(workdir: str) -> errors.RunError:
  """The sentence for --resume=must where there is nothing."""
  return errors.RunError(
      f"--resume=must, and no run was ever begun in {workdir}: mount or name"
      " the work directory of the run, or start one with --resume=auto"
  )


def _of_a_run(name: str) -> bool:
  return any(name == n or name.startswith(n + "/") for n in _OF_A_RUN)


def _holds_a_run(workdir: str) -> errors.RunError:
  """The sentence for --resume=never where there is a run."""
  return errors.RunError(
      f"--resume=never, and {workdir} holds a run: choose another --workdir, or"
      " go on with it by --resume=auto"
  )


def read_config(folder: str | os.PathLike) -> dict[str, Any]:
  """The configuration of the run of `episodic-dp train` in this folder.

  Raises:
    RunError: there is none, it is damaged, or it is of `episodic-dp pvi`.
  """
  value = _read_config(folder)
  if "visit" in value:
    raise errors.RunError(
        f"{folder} holds a run of episodic-dp pvi, which prints and writes its"
        " scores itself: give the --workdir of a run of episodic-dp train"
    )
  return value


def _read_config(folder: str | os.PathLike) -> dict[str, Any]:
  path = pathlib.Path(folder) / CONFIG
  try:
    value = json.loads(path.read_text(encoding="utf-8"))
  except (FileNotFoundError, NotADirectoryError) as e:
    raise _no_run(pathlib.Path(folder)) from e
  except (OSError, ValueError, RecursionError) as e:
    raise errors.RunError(
        f"{path} cannot be read ({e}): {_RESTORE}"
    ) from e
  if not isinstance(value, dict):
    raise errors.RunError(
        f"{path} does not hold a configuration: {_RESTORE}"
    )
  return value


def _no_run(path: pathlib.Path) -> errors.RunError:
  """The sentence where no run is; names one that lies beside or below."""
  where = f"{path / CONFIG} does not exist"
  remedy = "give the --workdir of a run that was started with episodic-dp train"
  near = sorted(path.glob("*"))
  if path.is_file():
    where, near = f"{path} is a file", [path.parent]
  runs = [str(p) for p in near if os.path.isfile(p / CONFIG)]
  if runs:
    remedy = "give the folder of a run, such as --workdir="
    remedy += shlex.quote(runs[0])
  return errors.RunError(f"{where}: {remedy}")


def check_config(
    folder: str | os.PathLike, config: Mapping[str, Any], *, clean: bool
) -> list[str]:
  """Refuses to resume a run under another configuration.

  Args:
    folder: the work directory; one without a configuration passes.
    config: nested, JSON-able.
    clean: whether no step after the last checkpoint has left a trace; then
      what shapes only the steps to come may change (more steps, for one).

  Returns:
    What differs of how sums are laid out, each as "name before -> now".

  Raises:
    RunError: names the field, the data before all others.
  """
  if not (pathlib.Path(folder) / CONFIG).exists():
    return []
  relaid, refused = [], []
  old, new = _flat(_read_config(folder)), _flat(json.loads(json.dumps(config)))
  for name in sorted({*old, *new}, key=_telling):
    before, after = old.get(name, "absent"), new.get(name, "absent")
    if before != after and name == "model.source_digest":
      logging.warning(
          "the file of config.model.name=%r has changed since the run in %s"
          " began: it goes on if the network computes what it did",
          new.get("model.name"),
          folder,
      )
    if before == after or _under(name, _REPORTING):
      continue
    if {str(before), str(after)} == {"absent", "None"}:
      continue  # A field that earlier versions did not have, and is not set.
    if _under(name, _LAYOUT):
      if before != "absent":  # Earlier versions wrote fewer of them.
        relaid.append(f"{name.partition('.')[2]} '{before}' -> '{after}'")
      continue
    if _under(name, _FUTURE) and clean:
      continue
    refused.append((name, before, after))
  if refused:
    raise errors.RunError(_differs(pathlib.Path(folder), refused))
  return relaid


def _differs(
    folder: pathlib.Path, refused: Sequence[tuple[str, Any, Any]]
) -> str:
  """The sentence about fields that a run cannot be resumed with: the first."""
  name, before, after = refused[0]
  as_before = _all_as_before(refused)
  if _under(name, _FUTURE):
    remedy = (
        f"resume once {as_before}, let it stop at a checkpoint, then change it"
    )
  else:
    remedy = _REMEDIES.get(name, f"resume {as_before}")
    remedy += " or choose another --workdir"
  began, resumed = f"with config.{name}={before!r}", f"with {after!r}"
  if before == "absent":
    began = f"without config.{name}"
  if after == "absent":
    resumed = "without it"
  if "absent" in (before, after):
    remedy += (
        f"; if {folder / CONFIG} is damaged, move it away and run the same"
        " command again"
    )
  return (
      f"the run in {folder} was started {began} and is resumed {resumed}, which"
      f" would draw other steps under the same key: {remedy}"
  )


def _all_as_before(refused: Sequence[tuple[str, Any, Any]]) -> str:
  """How to resume with the values that all fields had."""
  # What is computed of the others is not typed.
  computed = (*_REMEDIES, *_COMPUTED)
  named = [field for field in refused if not _under(field[0], computed)]
  ways = dict.fromkeys(_as_before(*r) for r in named or refused[:1])
  if len(ways) > _FEW or _OF_ANOTHER in ways:
    return _OF_ANOTHER
  return " and ".join(ways)


def _as_before(name: str, before: Any, after: Any) -> str:
  """How to resume with the value that a field had, as flags."""
  if before in ("absent", None):
    return f"without --config.{name}"
  if after == "absent" or name == "data.name":  # Of another preset or file.
    return _OF_ANOTHER
  if isinstance(before, list):
    return f'with --config.{name}="{tuple(before)}"'
  return f"with --config.{name}={shlex.quote(str(before))}"


def warn_without_config(folder: pathlib.Path) -> None:
  """Says that a run goes on whose configuration is gone."""
  path = folder / CONFIG
  if not path.exists():
    logging.warning(
        "%s was missing: what determines the run's steps was compared with its"
        " key, and the file is written anew",
        path,
    )


def first_difference(
    old: Mapping[str, Any], new: Mapping[str, Any]
) -> tuple[str, str, str] | None:
  """The name and the two values of the first field that differs, or None.

  Args:
    old: nested, of objects and lists.
    new: likewise.
  """
  before, after = (_flat(value, lists=True) for value in (old, new))
  for name in sorted({*before, *after}):
    values = before.get(name, "absent"), after.get(name, "absent")
    if values[0] != values[1]:
      return name, shown(values[0]), shown(values[1])
  return None


def check_before_data(
    folder: str | os.PathLike, config: Mapping[str, Any]
) -> None:
  """Refuses what `check_config` will, as far as that needs no data.

  Args:
    folder: the work directory; one without a configuration passes.
    config: nested, JSON-able; what a run records of its network may be absent.

  Raises:
    RunError: names the field.
  """
  if not (pathlib.Path(folder) / CONFIG).exists():
    return
  model = dict(config.get("model") or {})
  before = _read_config(folder).get("model")
  if isinstance(before, dict):
    for name in _RECORDED:
      if model.get(name) is None and name in before:
        model[name] = before[name]
  check_config(folder, dict(config) | {"model": model}, clean=True)
  done, steps = _steps_done(pathlib.Path(folder)), config.get("steps")
  if isinstance(steps, int) and done > steps:
    raise too_few_steps(folder, done, steps)


def _steps_done(folder: pathlib.Path) -> int:
  """The step of the last checkpoint, by its name; 0 where there is none."""
  names = (path.name for path in (folder / _CHECKPOINTS).glob("*"))
  return max((int(name) for name in names if name.isdigit()), default=0)


def too_few_steps(
    folder: str | os.PathLike, done: int, steps: int, *, budget: bool = False
) -> errors.RunError:
  """The sentence about a run that has done more steps than it may.

  Args:
    folder: its work directory.
    done: its steps.
    steps: what the configuration allows.
    budget: whether it is the target ε that allows no more.
  """
  remedy = f"resume with --config.steps={done} or more"
  if budget:
    remedy = "resume without --config.target_epsilon"
  return errors.RunError(
      f"the run in {folder} has done {done} steps already and the configuration"
      f" allows {steps}: {remedy}, or evaluate what is there with episodic-dp"
      f" evaluate --workdir={folder} (and the --data_dir of this call, where it"
      " has one)"
  )


def _telling(name: str) -> tuple[bool, bool, str]:
  """To sort names by: what a run is of, and last what may change in it."""
  return _under(name, _FUTURE), not _under(name, ("data",)), name


def _under(name: str, groups: tuple[str, ...]) -> bool:
  return any(name == g or name.startswith(g + ".") for g in groups)


def _flat(
    value: Any, prefix: str = "", *, lists: bool = False
) -> dict[str, Any]:
  """Dotted name -> value; with `lists`, of the items of lists as well."""
  if lists and isinstance(value, list):
    value = {str(i): child for i, child in enumerate(value)}
  if not isinstance(value, dict) or not value:
    return {prefix: value}
  result = {}
  for key, child in value.items():
    name = f"{prefix}.{key}" if prefix else key
    result.update(_flat(child, name, lists=lists))
  return result
