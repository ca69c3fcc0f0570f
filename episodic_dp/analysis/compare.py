"""What trained runs came to, side by side: accuracy, epsilon, steps, time.

Only what the work directories hold is read; nothing is trained or measured.

  found = compare.compare(["runs/sweep"])
  [run.scores["validation"].mean for run in found.runs if run.finished]
  print(compare_report.text(found))
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
import contextlib
import dataclasses
import json
import math
import os
import pathlib
import re
from typing import Any

from scipy import special

from episodic_dp import errors
from episodic_dp import training
from episodic_dp.training import metrics
from episodic_dp.training import process_times
from episodic_dp.training import remote
from episodic_dp.training import reporting
from episodic_dp.training import saved_runs
from episodic_dp.training import stores
from episodic_dp.training import workdir as workdir_lib

# Of a config: what runs may differ in that are one setting under several keys.
# The devices that shared a step out change it by rounding only.
_KEYS = (
    "seed", "private_seed", "compute.devices", "compute.microbatch_size",
    "compute.resident",
)  # fmt: skip
_KINDS: dict[str, type[training.Score]] = {
    kind.name: kind for kind in (training.Accuracy, training.SquaredError)
}
_TESTED = ("single", "ensemble")
# The names of the files that are read here.
_READ = (
    workdir_lib.CONFIG, metrics.FILE, reporting.GUARANTEE, reporting.EVALUATION,
    process_times.FILE, remote.LOCK,
)  # fmt: skip
# What is raised where a file holds other things than a run writes.
_DAMAGED = (
    OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Measured:
  """A score of a run, or the mean of those of several.

  Attributes:
    kind: "accuracy" or "squared_error".
    mean: of the tasks, or of the runs.
    low: of its 95 % interval: over the tasks, or over the runs (Student's t).
    high: likewise.
    step: of the parameters that were measured, the last of an ensemble's; None
      where runs differ in it.
  """

  kind: str
  mean: float
  low: float
  high: float
  step: int | None

  def __str__(self) -> str:
    kind = _KINDS[self.kind]
    return str(kind(mean=self.mean, low=self.low, high=self.high, tasks=0))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Stated:
  """What a privacy statement says of a level; infinity for no guarantee.

  Attributes:
    epsilon: for these steps.
    delta: of it.
    steps: those of the whole run, until a process of it has ended by itself.
  """

  epsilon: float
  delta: float
  steps: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Run:
  """A work directory.

  Attributes:
    name: of the folder, as it was given or found.
    steps: done so far.
    planned_steps: of the whole run, None where it has not begun.
    scores: "validation" (the last one of the run), and "single" and "ensemble"
      (on test tasks) where the run was evaluated.
    stated: level -> what its guarantee.json says; none where there is none.
    seconds: of all processes that took the run on, None where they are not
      known; private, see `training.process_times`.
    setting: dotted name -> value of the config, but for what tells keys apart.
    validations: of the run, that of step 0 among them.
  """

  name: str
  steps: int
  planned_steps: int | None
  scores: Mapping[str, Measured]
  stated: Mapping[str, Stated]
  seconds: float | None
  setting: Mapping[str, Any] = dataclasses.field(repr=False)
  validations: tuple[metrics.Validated, ...] = dataclasses.field(
      default=(), repr=False
  )

  @property
  def finished(self) -> bool:
    """Whether all steps are done."""
    return self.planned_steps is not None and self.steps >= self.planned_steps


@dataclasses.dataclass(frozen=True, kw_only=True)
class Mean:
  """Finished runs that differ in nothing but their keys.

  Attributes:
    of: their names, two or more.
    name: in what they differ from the other runs of the comparison.
    scores: as in `Run`, the means of those that all of them have.
    stated: the largest epsilon of each level.
    seconds: the mean, where all are known.
  """

  of: tuple[str, ...]
  name: str
  scores: Mapping[str, Measured]
  stated: Mapping[str, Stated]
  seconds: float | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Comparison:
  """Runs, those of one setting together, and the means of these.

  Attributes:
    groups: (the runs of one setting, their mean or None).
  """

  groups: tuple[tuple[tuple[Run, ...], Mean | None], ...]

  @property
  def runs(self) -> tuple[Run, ...]:
    """All of them."""
    return tuple(run for runs, _ in self.groups for run in runs)

  @property
  def means(self) -> tuple[Mean, ...]:
    """Of the settings with two finished runs or more."""
    return tuple(mean for _, mean in self.groups if mean is not None)


def compare(paths: Iterable[str | os.PathLike]) -> Comparison:
  """Reads runs and groups those that differ in their keys alone.

  Args:
    paths: of work directories, and of folders that hold some, as a sweep makes
      them; these are searched one level down. Addresses on an object store,
      too.

  Raises:
    RunError: a path leads to no run, or a file of a run is damaged.
  """
  groups: dict[str, list[Run]] = {}
  with contextlib.ExitStack() as fetched:
    places = {
        fetched.enter_context(remote.fetched(path, only=_READ)): path
        for path in paths
    }
    for folder in find(places):
      run = dataclasses.replace(read(folder), name=_name(folder, places))
      # A run that has written no config yet is like no other.
      key = json.dumps(run.setting, sort_keys=True) if run.setting else run.name
      groups.setdefault(key, []).append(run)
  labels = _labels([runs[0].setting for runs in groups.values()])
  return Comparison(
      groups=tuple(
          (tuple(runs), _mean(runs, label))
          for runs, label in zip(groups.values(), labels)
      )
  )


def _name(
    folder: pathlib.Path, places: Mapping[pathlib.Path, str | os.PathLike]
) -> str:
  """The folder as the user knows it: on a store it is a copy in another one."""
  for place, path in places.items():
    if stores.is_url(path) and folder.is_relative_to(place):
      inside = folder.relative_to(place).as_posix()
      url = os.fspath(path).rstrip("/")
      return url if inside == "." else f"{url}/{inside}"
  return os.fspath(folder)


def find(paths: Iterable[str | os.PathLike]) -> list[pathlib.Path]:
  """The work directories at, or one level below, these paths; each once.

  Raises:
    RunError: there is none.
  """
  found: dict[pathlib.Path, pathlib.Path] = {}
  for path in map(pathlib.Path, paths):
    try:
      inside = [path] if _is_run(path) else [
          child for child in sorted(path.iterdir(), key=_natural)
          if _is_run(child)
      ]  # fmt: skip
    except OSError as e:
      raise errors.RunError(
          f"{path} cannot be read ({e.strerror or e}): give the --workdir of"
          " a run, or a folder of such"
      ) from e
    if not inside:
      raise errors.RunError(
          f"{path} holds no run, and no folder in it does: give the --workdir"
          " of episodic-dp train, or the folder of a sweep"
      )
    for folder in inside:
      found.setdefault(folder.resolve(), folder)
  return list(found.values())


def read(folder: pathlib.Path) -> Run:
  """What one work directory holds.

  Raises:
    RunError: a file is damaged.
  """
  lines = metrics.read(folder / metrics.FILE)
  begun = (folder / workdir_lib.CONFIG).exists()
  config = workdir_lib.read_config(folder) if begun else {}
  stated = saved_runs.guarantees(folder, "epsilon", "delta", "steps") or {}
  planned = saved_runs.planned_steps(folder)
  with _sentence(folder):
    scores = _validated(lines) | _tested(folder / reporting.EVALUATION)
    if planned is None and begun:
      planned = int(config["steps"])
    levels = {
        level: Stated(
            epsilon=float(found["epsilon"]),
            delta=float(found["delta"]),
            steps=int(found["steps"]),
        )
        for level, found in stated.items()
    }
  return Run(
      name=os.fspath(folder),
      steps=lines[-1]["step"] if lines else 0,
      planned_steps=planned,
      scores=scores,
      stated=levels,
      seconds=process_times.total(folder),
      setting={
          name: value
          for name, value in _flat(config)
          if name not in _KEYS
      },
      validations=tuple(
          found
          for kind in _KINDS
          for found in metrics.validated(lines, kind)
      ),
  )


@contextlib.contextmanager
def _sentence(folder: pathlib.Path) -> Iterator[None]:
  """Turns what a damaged file raises into a sentence with the folder."""
  try:
    yield
  except _DAMAGED as e:
    raise errors.RunError(
        f"the run in {folder} cannot be read ({type(e).__name__}:"
        f" {str(e)[:60]}): write its files again with episodic-dp train and"
        " episodic-dp evaluate, or move the folder away"
    ) from e


def _validated(lines: Sequence[Mapping[str, Any]]) -> dict[str, Measured]:
  """The last validation in the lines of metrics.jsonl, where there is one."""
  for line in reversed(lines):
    for kind in _KINDS:
      name = f"validation_{kind}"
      if name in line:
        values = (line[name], line["validation_low"], line["validation_high"])
        return {"validation": _measured(kind, *values, line["step"])}
  return {}


def _tested(path: pathlib.Path) -> dict[str, Measured]:
  """What `measure.measure` wrote of a run, where it did."""
  if not path.exists():
    return {}
  results = json.loads(path.read_text(encoding="utf-8"))
  found = {}
  for model in _TESTED:
    for kind in _KINDS:
      if kind in results.get(model, {}):
        score, steps = results[model][kind], results[model]["steps"]
        values = (score["mean"], score["low"], score["high"])
        found[model] = _measured(kind, *values, max(steps))
  return found


def _measured(
    kind: str, mean: Any, low: Any, high: Any, step: Any
) -> Measured:
  """From numbers of JSON, where infinity and NaN are strings."""
  return Measured(
      kind=kind, mean=float(mean), low=float(low), high=float(high),
      step=int(step),
  )


def _mean(runs: Sequence[Run], label: str) -> Mean | None:
  """The mean of the finished ones, where there are several."""
  finished = [run for run in runs if run.finished]
  if len(finished) < 2:
    return None
  first, *_ = finished
  scores = {}
  for name in first.scores:
    found = [run.scores[name] for run in finished if name in run.scores]
    if len(found) == len(finished) and len({m.kind for m in found}) == 1:
      scores[name] = _over_runs(found)
  times = [run.seconds for run in finished if run.seconds is not None]
  return Mean(
      of=tuple(run.name for run in finished),
      name=f"mean of {len(finished)}" + f": {label}" * bool(label),
      scores=scores,
      stated={
          level: max(
              (run.stated[level] for run in finished), key=lambda s: s.epsilon
          )
          for level in first.stated
          if all(level in run.stated for run in finished)
      },
      seconds=sum(times) / len(times) if len(times) == len(finished) else None,
  )


def _over_runs(scores: Sequence[Measured]) -> Measured:
  """The mean of some runs' scores with Student's t interval of 95 %."""
  mean, low, high = over_runs([s.mean for s in scores])
  steps = {s.step for s in scores}
  return Measured(
      kind=scores[0].kind, mean=mean, low=low, high=high,
      step=steps.pop() if len(steps) == 1 else None,
  )


def over_runs(values: Sequence[float]) -> tuple[float, float, float]:
  """The mean of two runs or more, and Student's t interval of 95 % of it."""
  n = len(values)
  mean = sum(values) / n
  variance = sum((value - mean) ** 2 for value in values) / (n - 1)
  half = special.stdtrit(n - 1, 0.975) * math.sqrt(variance / n)
  return mean, mean - half, mean + half


def _labels(settings: Sequence[Mapping[str, Any]]) -> list[str]:
  """What tells each setting from the others: "noise_multiplier=1"."""
  known = [setting for setting in settings if setting]
  names = dict.fromkeys(name for setting in known for name in setting)
  differ = [
      name for name in names
      if len({json.dumps(setting.get(name)) for setting in known}) > 1
  ]  # fmt: skip
  return [
      ", ".join(
          f"{name.rpartition('.')[2]}={setting[name]}"
          for name in differ
          if name in setting
      )
      for setting in settings
  ]


def _flat(value: Any, prefix: str = "") -> Iterable[tuple[str, Any]]:
  """Dotted names and values of nested objects."""
  if isinstance(value, dict) and value:
    for name, child in value.items():
      yield from _flat(child, f"{prefix}.{name}" if prefix else name)
  else:
    yield prefix, value


def _is_run(folder: pathlib.Path) -> bool:
  """Whether a run was begun here, even if it has not written much."""
  return any((folder / name).exists() for name in (workdir_lib.CONFIG, ".lock"))


def _natural(path: pathlib.Path) -> list[tuple[float, str]]:
  """Sorts "key=10" behind "key=9"."""
  parts = re.split(r"(\d+(?:\.\d+)?)", path.name)
  return [
      (float(part), "") if i % 2 else (-math.inf, part)
      for i, part in enumerate(parts)
  ]
