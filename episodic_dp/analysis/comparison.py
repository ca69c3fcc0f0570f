"""Set trained runs side by side: scores, epsilon and steps.

Only files of the work directories are read; nothing is trained or measured.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
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
from episodic_dp.accounting import report
from episodic_dp.output import plotting
from episodic_dp.output import tables
from episodic_dp.training import metrics
from episodic_dp.training import reporting
from episodic_dp.training import saved_runs
from episodic_dp.training import workdir as workdir_lib

PICTURE = "comparison.png"

# Fields of a config in which runs of one setting under several keys differ.
_KEYS = (
    "seed", "private_seed", "compute.devices", "compute.microbatch_size",
    "compute.resident",
)
_KINDS: dict[str, type[training.Score]] = {
    kind.name: kind for kind in (training.Accuracy, training.SquaredError)
}
_SCORES = {
    "validation": "validation", "single": "test", "ensemble": "test, ensemble"
}
_NOTES = """\
± of a run: 95 % interval over tasks; of a mean: 95 % interval over its runs
(Student's t). ε: of each run alone, of a mean's runs the largest; all of them
together cost the same people more: episodic-dp account --ledger=DIR,DIR"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Run:
  """A work directory, or the mean of finished runs that differ in their keys.

  Attributes:
    name: the folder, or "mean of n: " and the setting.
    runs: 1, or the number of averaged runs.
    steps: that are done.
    planned_steps: of the whole run, None where it has not begun.
    scores: "validation" (the last one), "single" and "ensemble" (on test tasks)
      where the run has them.
    scored_at: the step of the parameters of each score.
    stated: level -> {"epsilon", "delta", "steps"} of guarantee.json; the
      largest epsilon of the runs of a mean.
    setting: dotted name -> value of the config, without `_KEYS`.
    validations: of the run, that of step 0 among them.
  """

  name: str
  runs: int = 1
  steps: int
  planned_steps: int | None
  scores: Mapping[str, training.Score]
  scored_at: Mapping[str, int]
  stated: Mapping[str, Mapping[str, float]]
  setting: Mapping[str, Any] = dataclasses.field(repr=False)
  validations: tuple[metrics.Validated, ...] = dataclasses.field(
      default=(), repr=False
  )

  @property
  def finished(self) -> bool:
    """Tell whether all steps are done."""
    return self.planned_steps is not None and self.steps >= self.planned_steps


Group = tuple[list[Run], Run | None]
"""Runs of one setting, and their mean where two or more are finished."""


def compare(paths: Iterable[str | os.PathLike]) -> list[Group]:
  """Read runs and group those that differ in their keys alone.

  Args:
    paths: work directories, and folders that hold some.

  Raises:
    RunError: a path leads to no run, or a file of a run is damaged.
  """
  groups: dict[str, list[Run]] = {}
  for run in map(read, find(paths)):
    # A run that has written no config yet is like no other.
    key = json.dumps(run.setting, sort_keys=True) if run.setting else run.name
    groups.setdefault(key, []).append(run)
  settings = [runs[0].setting for runs in groups.values()]
  return [(runs, _mean(runs, settings)) for runs in groups.values()]


def find(paths: Iterable[str | os.PathLike]) -> list[pathlib.Path]:
  """List the work directories at, or one level below, these paths, each once.

  Raises:
    RunError: a path leads to none.
  """
  found: dict[pathlib.Path, pathlib.Path] = {}
  for path in map(pathlib.Path, paths):
    try:
      children = sorted(path.iterdir(), key=_natural)
    except OSError as e:
      raise errors.RunError(
          f"{path} cannot be read ({e.strerror or e}): give the --workdir of"
          " a run, or a folder of such"
      ) from e
    inside = [path] if _is_run(path) else [c for c in children if _is_run(c)]
    if not inside:
      raise errors.RunError(
          f"{path} holds no run, and no folder in it does: give the --workdir"
          " of episodic-dp train, or the folder of a sweep"
      )
    for folder in inside:
      found.setdefault(folder.resolve(), folder)
  return list(found.values())


def _is_run(folder: pathlib.Path) -> bool:
  """Tell whether a run was begun here, even if it has written little."""
  return any((folder / name).exists() for name in (workdir_lib.CONFIG, ".lock"))


def _natural(path: pathlib.Path) -> list[tuple[float, str]]:
  """Sort "key=10" behind "key=9"."""
  parts = re.split(r"(\d+(?:\.\d+)?)", path.name)
  return [
      (float(part), "") if i % 2 else (-math.inf, part)
      for i, part in enumerate(parts)
  ]


def read(folder: pathlib.Path) -> Run:
  """Read one work directory.

  Raises:
    RunError: a file is damaged.
  """
  lines = metrics.read(folder / metrics.FILE)
  begun = (folder / workdir_lib.CONFIG).exists()
  config = workdir_lib.read_config(folder) if begun else {}
  stated = saved_runs.guarantees(folder, "epsilon", "delta", "steps") or {}
  planned = saved_runs.planned_steps(folder)
  try:
    scores = _validated(lines) | _tested(folder / reporting.EVALUATION)
    if planned is None and begun:
      planned = int(config["steps"])
    levels = {
        level: {name: float(value) for name, value in one.items()}
        for level, one in stated.items()
    }
  except (ValueError, KeyError, TypeError, AttributeError) as e:
    raise errors.RunError(
        f"the run in {folder} cannot be read ({type(e).__name__}: {e}): write"
        " its files again with episodic-dp train and episodic-dp evaluate"
    ) from e
  return Run(
      name=os.fspath(folder),
      steps=lines[-1]["step"] if lines else 0,
      planned_steps=planned,
      scores={name: score for name, (score, _) in scores.items()},
      scored_at={name: step for name, (_, step) in scores.items()},
      stated=levels,
      setting={k: v for k, v in _flat(config) if k not in _KEYS},
      validations=tuple(
          found for kind in _KINDS for found in metrics.validated(lines, kind)
      ),
  )


def _validated(
    lines: Sequence[Mapping[str, Any]],
) -> dict[str, tuple[training.Score, int]]:
  """Return the last validation and its step, where there is one."""
  for line in reversed(lines):
    for kind in _KINDS:
      if f"validation_{kind}" in line:
        score = _score(
            kind, line[f"validation_{kind}"], line["validation_low"],
            line["validation_high"],
        )
        return {"validation": (score, int(line["step"]))}
  return {}


def _tested(path: pathlib.Path) -> dict[str, tuple[training.Score, int]]:
  """Return what `measure.measure` wrote about a run, where it did."""
  if not path.exists():
    return {}
  results = json.loads(path.read_text(encoding="utf-8"))
  found = {}
  for model in ("single", "ensemble"):
    for kind in _KINDS:
      if kind in results.get(model, {}):
        one = results[model][kind]
        score = _score(kind, one["mean"], one["low"], one["high"])
        found[model] = score, int(max(results[model]["steps"]))
  return found


def _score(kind: str, mean: Any, low: Any, high: Any) -> training.Score:
  """Make a score of numbers of JSON, where infinity is a string."""
  return _KINDS[kind](
      mean=float(mean), low=float(low), high=float(high), tasks=0
  )


def _flat(value: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
  """Give the dotted names and values of nested objects."""
  if isinstance(value, dict) and value:
    for name, child in value.items():
      yield from _flat(child, f"{prefix}.{name}" if prefix else name)
  else:
    yield prefix, value


# Means over runs ------------------------------------------------------------


def over_runs(values: Sequence[float]) -> tuple[float, float, float]:
  """Return the mean of two or more runs, and its Student's t 95 % interval."""
  n = len(values)
  mean = sum(values) / n
  variance = sum((value - mean) ** 2 for value in values) / (n - 1)
  half = special.stdtrit(n - 1, 0.975) * math.sqrt(variance / n)
  return mean, mean - half, mean + half


def _mean(
    runs: Sequence[Run], settings: Sequence[Mapping[str, Any]]
) -> Run | None:
  """Average the finished runs of a setting, where there are several."""
  finished = [run for run in runs if run.finished]
  if len(finished) < 2:
    return None
  first = finished[0]
  scores = {}
  for name in first.scores:
    found = [run.scores[name] for run in finished if name in run.scores]
    if len(found) == len(finished):
      scores[name] = _score(found[0].name, *over_runs([s.mean for s in found]))
  stated = {}
  for level in first.stated:
    levels = [run.stated[level] for run in finished if level in run.stated]
    stated[level] = max(levels, key=lambda one: one["epsilon"])
  steps = [
      v.step for v in first.validations
      if all(v.step in {w.step for w in run.validations} for run in finished)
  ]
  label = _label(first.setting, settings)
  return dataclasses.replace(
      first,
      name=f"mean of {len(finished)}" + f": {label}" * bool(label),
      runs=len(finished),
      scores=scores,
      stated=stated,
      validations=tuple(
          metrics.Validated(step, *over_runs([
              next(v.mean for v in run.validations if v.step == step)
              for run in finished
          ]))
          for step in steps
      ),
  )


def _label(
    setting: Mapping[str, Any], settings: Sequence[Mapping[str, Any]]
) -> str:
  """Name the fields in which the settings differ: "noise_multiplier=1"."""
  return ", ".join(
      f"{name.rpartition('.')[2]}={value}"
      for name, value in setting.items()
      if any(other and other.get(name) != value for other in settings)
  )


# Table, JSON and figure -----------------------------------------------------


def text(groups: Sequence[Group]) -> str:
  """Write the table of all runs and means."""
  rows = _rows(groups)
  scores = [name for name in _SCORES if any(name in r.scores for r in rows)]
  levels = [*dict.fromkeys(level for row in rows for level in row.stated)]
  header = ["run", "steps"]
  for name in scores:
    kinds = {row.scores[name].name for row in rows if name in row.scores}
    kind = reporting.words(kinds.pop()) if len(kinds) == 1 else "score"
    header.append(f"{_SCORES[name]} {kind}")
  header += [f"ε {level}" for level in levels]
  body = [
      [
          row.name,
          _steps(row),
          *(_shown_score(row, name) for name in scores),
          *(_shown_epsilon(row, level) for level in levels),
      ]
      for row in rows
  ]
  return "\n".join([tables.text(header, body), "", _NOTES])


def as_json(groups: Sequence[Group]) -> str:
  """Write all runs and means as strict JSON: infinity is a string."""
  result = [
      {
          "name": row.name,
          "runs": row.runs,
          "steps": row.steps,
          "planned_steps": row.planned_steps,
          "finished": row.finished,
          "scores": {
              name: {
                  "kind": score.name,
                  "mean": reporting.number(score.mean),
                  "low": reporting.number(score.low),
                  "high": reporting.number(score.high),
                  "step": row.scored_at[name],
              }
              for name, score in row.scores.items()
          },
          "stated": {
              level: {k: reporting.number(v) for k, v in one.items()}
              for level, one in row.stated.items()
          },
      }
      for row in _rows(groups)
  ]
  return json.dumps(
      {"runs": result}, indent=2, allow_nan=False, ensure_ascii=False
  )


def _rows(groups: Sequence[Group]) -> list[Run]:
  """List the runs of each setting, with their mean below them."""
  rows: list[Run] = []
  for runs, mean in groups:
    rows += [*runs, *([mean] if mean else [])]
  return rows


def _steps(row: Run) -> str:
  if row.finished:
    return str(row.steps)
  planned = "?" if row.planned_steps is None else row.planned_steps
  return f"{row.steps} of {planned}"


def _shown_score(row: Run, name: str) -> str:
  """Write a score, with its step where that is not the run's last one."""
  if name not in row.scores:
    return "-"
  old = name != "ensemble" and row.scored_at[name] != row.steps
  step = f" (step {row.scored_at[name]})" if old else ""
  return f"{row.scores[name]}{step}"


def _shown_epsilon(row: Run, level: str) -> str:
  """Write epsilon at delta, with its steps where the run has done others."""
  stated = row.stated.get(level)
  if stated is None:
    return "-"
  if math.isinf(stated["epsilon"]):
    return "none"
  shown = f"{report.rounded_up(stated['epsilon'])} at {stated['delta']:g}"
  if stated["steps"] != row.steps:
    shown += f" (of {stated['steps']:.0f} steps)"
  return shown


def write(groups: Sequence[Group], folder: str | os.PathLike) -> pathlib.Path:
  """Write the figure to a folder; return its path.

  Raises:
    OSError: the folder cannot be written.
  """
  path = pathlib.Path(folder) / PICTURE
  plotting.save(draw(groups), path)
  return path


@plotting.styled
def draw(groups: Sequence[Group]) -> plotting.Figure:
  """Draw scores against epsilon, and validation scores over the steps.

  A setting is drawn as its mean with the interval over runs, or as its first
  run with the interval over tasks. Runs without a guarantee have no place on
  the axis of epsilon.
  """
  figure = plotting.figure(4.4, width=plotting.WIDE)
  against, over = figure.subplots(1, 2)
  rows = [mean or runs[0] for runs, mean in groups]
  levels = [*dict.fromkeys(level for row in rows for level in row.stated)]
  level = levels[0] if levels else ""
  for number, row in enumerate(rows):
    look = plotting.series(number)
    score = row.scores.get("single", row.scores.get("validation"))
    epsilon = row.stated.get(level, {"epsilon": math.inf})["epsilon"]
    if score is not None and math.isfinite(epsilon):
      half = (score.high - score.low) / 2
      against.errorbar(
          [epsilon], [score.mean], yerr=[half], capsize=4, label=row.name,
          **look,
      )
    steps = [v.step for v in row.validations]
    over.plot(steps, [v.mean for v in row.validations], label=row.name, **look)
    over.fill_between(
        steps, [v.low for v in row.validations],
        [v.high for v in row.validations], color=look["color"], alpha=0.16,
    )
  against.set_xlabel(f"ε of one {level}, of each run alone")
  against.set_ylabel("test score, or validation where it is not tested")
  over.set_ylabel("validation score")
  plotting.over_steps(over)
  figure.legend(
      *over.get_legend_handles_labels(), loc="outside lower center", ncols=2
  )
  return figure
