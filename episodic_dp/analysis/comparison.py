"""Compare trained runs: scores, epsilon and steps.

Only files of the work directories are read; nothing is trained or measured.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
import json
import os
import pathlib
from typing import Any

import scipy

from episodic_dp.accounting import report
from episodic_dp.errors import RunError
from episodic_dp.output import files
from episodic_dp.output import tables
from episodic_dp.training import evaluation
from episodic_dp.training import metrics
from episodic_dp.training import reporting
from episodic_dp.training import workdir as workdir_lib

Run = dict[str, Any]
"""A work directory, or the mean of finished runs that differ in their keys.

Fields: "name" (the folder, or "mean of n: " and the setting), "runs" (1, or the
number of averaged runs), "steps", "planned_steps" (None for a run that has not
started), "finished", "task" (of validation and test, such as "5-way 1-shot"; ""
if it has no classes), "scores" (name -> {"kind", "mean", "low", "high", "step"}
for "validation", "single" and "ensemble" on test tasks) and "stated" (level ->
{"epsilon", "delta", "steps"}; for a mean the largest epsilon of its runs).
"""

# Fields in which configs of one setting with several keys differ.
_KEYS = (
    "seed", "private_seed", "compute.devices", "compute.microbatch_size",
    "compute.resident",
)
_SCORES = {
    "validation": "validation score",
    "single": "test score",
    "ensemble": "test score, ensemble",
}
_KINDS = {
    kind.name: kind for kind in (evaluation.Accuracy, evaluation.SquaredError)
}
_NOTES = """\
Scores: the accuracy, or in regression the squared error.
± of a run: 95 % interval over tasks; of a mean: 95 % interval over its runs
(Student's t). ε: of each run separately; for a mean, the largest of its runs.
All runs together cost the same people more: episodic-dp account
--ledger=DIR,DIR"""


def compare(paths: Iterable[str | os.PathLike]) -> list[Run]:
  """Read runs, grouped by setting, each group followed by its mean.

  Finished runs are averaged if they have one setting and one data set, known by
  its tree and its validation data, so that they differ only in their keys.

  Args:
    paths: work directories, and folders of work directories.

  Raises:
    RunError: a path holds no run, or a file of a run is damaged.
  """
  groups: dict[str, list[Run]] = {}
  settings = []
  for folder in find(paths):
    run, setting = _read(folder)
    settings.append(setting)
    groups.setdefault(json.dumps(setting, sort_keys=True), []).append(run)
  rows = []
  for text, runs in groups.items():
    rows += runs
    finished = [run for run in runs if run["finished"]]
    if len(finished) > 1:
      rows.append(_mean(finished, _label(json.loads(text), settings)))
  return rows


def find(paths: Iterable[str | os.PathLike]) -> list[pathlib.Path]:
  """List the work directories at, or one level below, these paths, each once.

  Raises:
    RunError: a path holds none.
  """
  found: dict[pathlib.Path, pathlib.Path] = {}
  for path in map(files.path_of, paths):
    # "key=10" comes after "key=9".
    below = sorted(path.glob("*/"), key=lambda c: (len(c.name), c.name))
    inside = [*filter(_is_workdir, (path, *below))]
    if not inside:
      why = "holds no run"
      if not path.exists():
        why = "cannot be read (No such file or directory)"
      raise RunError(
          f"{path} {why}: give the workdir of a run, or a folder of such"
      )
    for folder in inside:
      found.setdefault(folder.resolve(), folder)
  return list(found.values())


def _is_workdir(folder: pathlib.Path) -> bool:
  # A run that has just begun may have written its lock alone.
  return (folder / workdir_lib.CONFIG).exists() or (folder / ".lock").exists()


def _read(folder: pathlib.Path) -> tuple[Run, dict[str, Any]]:
  """Read one work directory.

  Returns:
    The run, and its setting: dotted name -> value of the config, without
    `_KEYS`, and the sampled trees of the data under "data".

  Raises:
    RunError: a file is damaged.
  """
  lines = metrics.read(folder / metrics.FILE)
  begun = (folder / workdir_lib.CONFIG).exists()
  config = workdir_lib.read_config(folder) if begun else {}
  stated = reporting.statement(folder) or {}
  steps = lines[-1]["step"] if lines else 0
  try:
    planned = stated.get("planned_steps")
    if planned is None and begun:
      planned = config["steps"]
    run = {
        "name": os.fspath(folder),
        "runs": 1,
        "steps": steps,
        "planned_steps": planned,
        "finished": planned is not None and steps >= planned,
        "scores": _scores(lines, folder / reporting.EVALUATION),
        "stated": reporting.guarantees(folder, "epsilon", "delta", "steps"),
    }
    trees = [entry["hierarchy"] for entry in stated.get("entries", [])]
  except (ValueError, KeyError, TypeError, AttributeError) as e:
    raise RunError(
        f"the run in {folder} cannot be read ({type(e).__name__}: {e}): write"
        " its files again with episodic-dp train and episodic-dp evaluate"
    ) from e
  setting = {k: v for k, v in _flat(config) if k not in _KEYS}
  run["task"] = _task(setting)
  return run, setting | {"data": trees}


def _task(setting: Mapping[str, Any]) -> str:
  """Name the form of a validation or test task; "" without classes."""
  way = setting.get("evaluation.way") or setting.get("plan.episode.way")
  if not way:
    return ""
  return f"{way}-way {setting.get('evaluation.shot')}-shot"


def _scores(
    lines: Sequence[Mapping[str, Any]], file: pathlib.Path
) -> dict[str, dict[str, Any]]:
  """Return the last validation and the scores on test tasks."""
  tested = {}
  if file.exists():
    tested = json.loads(file.read_text(encoding="utf-8"))
  found: dict[str, dict[str, Any]] = {}
  for kind in _KINDS:
    for last in metrics.validated(lines, kind)[-1:]:
      found["validation"] = {"kind": kind, **last}
    for model in ("single", "ensemble"):
      if kind in tested.get(model, {}):
        score = tested[model][kind]
        numbers = {key: float(score[key]) for key in ("mean", "low", "high")}
        step = max(tested[model]["steps"])
        found[model] = {"kind": kind, **numbers, "step": step}
  return found


def _flat(value: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
  """Yield the dotted names and values of nested objects."""
  if isinstance(value, dict) and value:
    for name, child in value.items():
      yield from _flat(child, f"{prefix}.{name}")
  else:
    yield prefix.removeprefix("."), value


def _mean(runs: Sequence[Run], label: str) -> Run:
  """Average finished runs of one setting."""
  first = runs[0]
  name = f"mean of {len(runs)}"
  if label:
    name += f": {label}"
  scores, stated = {}, {}
  for score in first["scores"]:
    if all(score in run["scores"] for run in runs):
      scores[score] = _over_runs([run["scores"][score] for run in runs])
  for level in first["stated"]:
    stated[level] = max(
        [run["stated"][level] for run in runs],
        key=lambda one: float(one["epsilon"]),
    )
  return first | {
      "name": name, "runs": len(runs), "scores": scores, "stated": stated
  }


def _over_runs(scores: Sequence[dict[str, Any]]) -> dict[str, Any]:
  """Return the mean of two or more runs, with Student's t 95 % interval."""
  means = [score["mean"] for score in scores]
  mean = sum(means) / len(means)
  times = scipy.special.stdtrit(len(means) - 1, 0.975)
  half = float(times * scipy.stats.sem(means))
  return scores[0] | {"mean": mean, "low": mean - half, "high": mean + half}


def _label(
    setting: Mapping[str, Any], settings: Sequence[Mapping[str, Any]]
) -> str:
  """Name the fields in which the settings differ: "noise_multiplier=1"."""
  changed = []
  for name, value in setting.items():
    if name in ("data", "data.validation_digest"):
      continue
    if any(other.get(name, value) != value for other in settings):
      changed.append(f"{name.rpartition('.')[2]}={value}")
  return ", ".join(changed)


def text(rows: Sequence[Run]) -> str:
  """Format the table of all runs and means."""
  measured, levels, body = {}, {}, []
  for row in rows:
    measured.update(row["scores"])
    levels.update(row["stated"])
  scores = {n: title for n, title in _SCORES.items() if n in measured}
  differ = len({row["task"] for row in rows}) > 1
  for row in rows:
    steps = str(row["steps"])
    if not row["finished"]:
      steps += f" of {row['planned_steps'] or '?'}"
    body.append([
        row["name"],
        steps,
        *([row["task"] or "-"] if differ else []),
        *(_score_cell(row, name) for name in scores),
        *(_epsilon_cell(row, level) for level in levels),
    ])
  header = ["run", "steps", *scores.values(), *map("ε {}".format, levels)]
  if differ:  # Their scores are not comparable.
    header.insert(2, "test tasks")
  return "\n".join([tables.text(header, body), "", _NOTES])


def _score_cell(row: Run, name: str) -> str:
  """Format a score, with its step if this is not the run's last one."""
  score = row["scores"].get(name)
  if score is None:
    return "-"
  shown = str(_KINDS[score["kind"]](
      mean=score["mean"], low=score["low"], high=score["high"], tasks=0
  ))
  if name != "ensemble" and score["step"] != row["steps"]:
    shown += f" (step {score['step']})"
  return shown


def _epsilon_cell(row: Run, level: str) -> str:
  """Format epsilon at delta, with its steps if the run has done others."""
  stated = row["stated"].get(level)
  if stated is None:
    return "-"
  if stated["epsilon"] == "inf":
    return "none"
  delta = report.rounded_delta(stated["delta"])
  shown = f"{report.rounded_up(stated['epsilon'])} at {delta}"
  if stated["steps"] != row["steps"]:
    shown += f" (of {stated['steps']} steps)"
  return shown
