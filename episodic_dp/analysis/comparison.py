"""Set trained runs side by side: scores, epsilon and steps.

Only files of the work directories are read; nothing is trained or measured.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
import dataclasses
import json
import math
import os
import pathlib
from typing import Any

from scipy import special
from scipy import stats

from episodic_dp import errors
from episodic_dp import plain
from episodic_dp.accounting import report
from episodic_dp.output import tables
from episodic_dp.training import evaluation
from episodic_dp.training import metrics
from episodic_dp.training import reporting
from episodic_dp.training import workdir as workdir_lib

# Fields of a config in which runs of one setting under several keys differ.
_KEYS = (
    "seed", "private_seed", "compute.devices", "compute.microbatch_size",
    "compute.resident",
)
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
    steps: the steps done.
    planned_steps: of the whole run, None where it has not begun.
    scores: "validation" (the last one), "single" and "ensemble" (on test tasks)
      where the run has them.
    scored_at: the step of the parameters of each score.
    stated: level -> {"epsilon", "delta", "steps"} of guarantee.json; the
      largest epsilon of the runs of a mean.
    setting: dotted name -> value of the config, without `_KEYS`, and the
      sampled trees of the data under "data".
  """

  name: str
  runs: int = 1
  steps: int
  planned_steps: int | None
  scores: Mapping[str, evaluation.Score]
  scored_at: Mapping[str, int]
  stated: Mapping[str, Mapping[str, float]]
  setting: Mapping[str, Any] = dataclasses.field(repr=False)

  @property
  def finished(self) -> bool:
    """Return whether all steps are done."""
    return self.planned_steps is not None and self.steps >= self.planned_steps


def compare(paths: Iterable[str | os.PathLike]) -> list[Run]:
  """Read runs, each setting's together, followed by their mean.

  Finished runs are averaged that have one setting on data of one tree, and so
  differ in their keys alone.

  Args:
    paths: work directories, and folders that hold some.

  Raises:
    RunError: a path leads to no run, or a file of a run is damaged.
  """
  groups: dict[str, list[Run]] = {}
  for run in map(read, find(paths)):
    groups.setdefault(json.dumps(run.setting, sort_keys=True), []).append(run)
  settings = [runs[0].setting for runs in groups.values()]
  rows = []
  for runs in groups.values():
    rows += runs
    finished = [run for run in runs if run.finished]
    if len(finished) > 1:
      rows.append(_mean(finished, _label(runs[0].setting, settings)))
  return rows


def find(paths: Iterable[str | os.PathLike]) -> list[pathlib.Path]:
  """List the work directories at, or one level below, these paths, each once.

  Raises:
    RunError: a path leads to none.
  """
  found: dict[pathlib.Path, pathlib.Path] = {}
  for path in map(pathlib.Path, paths):
    # "key=10" comes after "key=9".
    below = sorted(path.glob("*/"), key=lambda c: (len(c.name), c.name))
    inside = [folder for folder in (path, *below) if _is_run(folder)]
    if not inside:
      why = "holds no run"
      if not path.exists():
        why = "cannot be read (No such file or directory)"
      raise errors.RunError(
          f"{path} {why}: give the --workdir of a run, or a folder of such"
      )
    for folder in inside:
      found.setdefault(folder.resolve(), folder)
  return list(found.values())


def _is_run(folder: pathlib.Path) -> bool:
  """Return whether a run was begun here, even if it has written little."""
  return any((folder / name).exists() for name in (workdir_lib.CONFIG, ".lock"))


def read(folder: pathlib.Path) -> Run:
  """Read one work directory.

  Raises:
    RunError: a file is damaged.
  """
  lines = metrics.read(folder / metrics.FILE)
  begun = (folder / workdir_lib.CONFIG).exists()
  config = workdir_lib.read_config(folder) if begun else {}
  stated = reporting.guarantees(folder, "epsilon", "delta", "steps")
  planned = (reporting.statement(folder) or {}).get("planned_steps")
  try:
    tested = _json(folder / reporting.EVALUATION)
    scores = _scores(lines, tested)
    releases = [
        entry["hierarchy"]
        for entry in _json(folder / reporting.GUARANTEE).get("entries", [])
    ]
    return Run(
        name=os.fspath(folder),
        steps=lines[-1]["step"] if lines else 0,
        planned_steps=planned or (int(config["steps"]) if begun else None),
        scores={name: score for name, (score, _) in scores.items()},
        scored_at={name: step for name, (_, step) in scores.items()},
        stated={
            level: {name: float(value) for name, value in one.items()}
            for level, one in stated.items()
        },
        setting={k: v for k, v in _flat(config) if k not in _KEYS}
        | {"data": releases},
    )
  except (ValueError, KeyError, TypeError, AttributeError) as e:
    raise errors.RunError(
        f"the run in {folder} cannot be read ({type(e).__name__}: {e}): write"
        " its files again with episodic-dp train and episodic-dp evaluate"
    ) from e


def _json(path: pathlib.Path) -> Any:
  """Return what a file of JSON holds, {} where there is none."""
  return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def _scores(
    lines: Sequence[Mapping[str, Any]], tested: Mapping[str, Any]
) -> dict[str, tuple[evaluation.Score, int]]:
  """Return the last validation, the scores on test tasks, and their steps."""
  found: dict[str, tuple[evaluation.Score, int]] = {}
  for kind in (evaluation.Accuracy, evaluation.SquaredError):
    for step, mean, low, high in metrics.validated(lines, kind.name)[-1:]:
      found["validation"] = kind(mean=mean, low=low, high=high, tasks=0), step
    for model in ("single", "ensemble"):
      if kind.name in tested.get(model, {}):
        one = tested[model][kind.name]
        mean, low, high = (float(one[key]) for key in ("mean", "low", "high"))
        score = kind(mean=mean, low=low, high=high, tasks=0)
        found[model] = score, max(tested[model]["steps"])
  return found


def _flat(value: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
  """Give the dotted names and values of nested objects."""
  if isinstance(value, dict) and value:
    for name, child in value.items():
      yield from _flat(child, f"{prefix}.{name}" if prefix else name)
  else:
    yield prefix, value


def _mean(runs: Sequence[Run], label: str) -> Run:
  """Average finished runs of one setting."""
  first = runs[0]
  return dataclasses.replace(
      first,
      name=f"mean of {len(runs)}" + f": {label}" * bool(label),
      runs=len(runs),
      scores={
          name: _over_runs([run.scores[name] for run in runs])
          for name in first.scores
          if all(name in run.scores for run in runs)
      },
      stated={
          level: max(
              (run.stated[level] for run in runs if level in run.stated),
              key=lambda one: one["epsilon"],
          )
          for level in first.stated
      },
  )


def _over_runs(scores: Sequence[evaluation.Score]) -> evaluation.Score:
  """Return the mean of two or more runs, with Student's t 95 % interval."""
  means = [score.mean for score in scores]
  mean = sum(means) / len(means)
  half = special.stdtrit(len(means) - 1, 0.975) * stats.sem(means)
  return dataclasses.replace(
      scores[0], mean=mean, low=mean - half, high=mean + half
  )


def _label(
    setting: Mapping[str, Any], settings: Sequence[Mapping[str, Any]]
) -> str:
  """Name the fields in which the settings differ: "noise_multiplier=1"."""
  return ", ".join(
      f"{name.rpartition('.')[2]}={value}"
      for name, value in setting.items()
      if name != "data" and any(
          other.get(name, value) != value for other in settings
      )
  )


# Table and JSON -------------------------------------------------------------


def text(rows: Sequence[Run]) -> str:
  """Write the table of all runs and means."""
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
          str(row.steps) if row.finished
          else f"{row.steps} of {row.planned_steps or '?'}",
          *(_score_cell(row, name) for name in scores),
          *(_epsilon_cell(row, level) for level in levels),
      ]
      for row in rows
  ]
  return "\n".join([tables.text(header, body), "", _NOTES])


def _score_cell(row: Run, name: str) -> str:
  """Write a score, with its step where that is not the run's last one."""
  if name not in row.scores:
    return "-"
  old = name != "ensemble" and row.scored_at[name] != row.steps
  step = f" (step {row.scored_at[name]})" if old else ""
  return f"{row.scores[name]}{step}"


def _epsilon_cell(row: Run, level: str) -> str:
  """Write epsilon at delta, with its steps where the run has done others."""
  stated = row.stated.get(level)
  if stated is None or math.isinf(stated["epsilon"]):
    return "-" if stated is None else "none"
  shown = f"{report.rounded_up(stated['epsilon'])} at {stated['delta']:g}"
  if stated["steps"] != row.steps:
    shown += f" (of {stated['steps']:.0f} steps)"
  return shown


def as_json(rows: Sequence[Run]) -> str:
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
                  "mean": score.mean,
                  "low": score.low,
                  "high": score.high,
                  "step": row.scored_at[name],
              }
              for name, score in row.scores.items()
          },
          "stated": row.stated,
      }
      for row in rows
  ]
  return json.dumps(
      {"runs": plain.to_plain(result)}, indent=2, ensure_ascii=False
  )
