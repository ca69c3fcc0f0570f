"""Train a config under several keys, and report their mean and joint cost.

  folders = several_keys.folders("runs/glyphs3", 3)
  result = several_keys.train(config, folders)
  print(several_keys.text(folders))

Every run has its own secret key and folder, named as `launch --keys` names it.
A result that depends on several runs, such as their mean or the best of them,
costs the epsilon of all of them together.
"""

from collections.abc import Sequence
import math
import os
import pathlib

from absl import logging

from episodic_dp import errors
from episodic_dp import training
from episodic_dp.accounting import report
from episodic_dp.analysis import comparison
from episodic_dp.analysis import study
from episodic_dp.config import build
from episodic_dp.config import RunConfig
from episodic_dp.output import phases
from episodic_dp.training import resume as resume_lib
from episodic_dp.training import workdir as workdir_lib

_FINISHED = ("done", "budget")


def folders(workdir: str, keys: int) -> list[str]:
  """Name the work directories of n runs.

  Raises:
    RunError: `workdir` holds a run itself.
  """
  check_holds_no_run(workdir, f"--keys={keys}", "--keys")
  return [f"{workdir.rstrip('/')}/key={k}" for k in range(keys)]


def check_holds_no_run(workdir: str, what: str, flags: str) -> None:
  """Refuse to make folders of runs in the folder of a run.

  Args:
    workdir: of the runs.
    what: makes the folders.
    flags: that ask for them.

  Raises:
    RunError: the folder holds a run itself.
  """
  if _holds_a_run(workdir):
    raise errors.RunError(
        f"{workdir} holds a run, and {what} makes folders of runs in it: choose"
        f" another --workdir, or leave {flags} out to resume it"
    )


def check_alone(workdir: str) -> None:
  """Refuse to begin a run in a folder that holds those of `--keys` or a sweep.

  Raises:
    RunError: it does.
  """
  last = "key=0"
  inside = sorted(pathlib.Path(workdir).glob(f"*{last}"))
  if not _holds_a_run(workdir) and any(map(_holds_a_run, inside)):
    raise errors.RunError(
        f"{workdir} holds folders of runs: resume them with --keys=N, or choose"
        " another --workdir"
    )


def _holds_a_run(folder: str | os.PathLike) -> bool:
  return (pathlib.Path(folder) / workdir_lib.CONFIG).exists()


def train(
    config: RunConfig,
    places: Sequence[str],
    *,
    data_dir: str | os.PathLike[str] | None = None,
    download: bool = False,
    resume: str = "same",
    deadline: float | None = None,
) -> training.Result:
  """Train one run after another, or resume them.

  Args:
    config: of all runs; run k takes the seed k.
    places: of `folders`.
    data_dir: folder of the data sets that are not built in, or own data.
    download: fetch the files that data_dir does not have.
    resume: of every run, see `training.run`.
    deadline: time by which the last step of all is saved.

  Returns:
    The result of the last run: the first one that was stopped, if any was.

  Raises:
    PlanError, UnsoundPlanError, RunError, ValueError: one sentence.
  """
  build.check(config)
  configs = [
      config.with_changes({"seed": key}) for key in range(len(places))
  ]
  # A folder that cannot be used is reported before the data are read.
  for place in places:
    with workdir_lib.opened(place) as opened:
      resume_lib.check_mode(opened, resume)
  with phases.phase("reading the data", at_once=True):
    splits = build.load_data(config, data_dir=data_dir, download=download)
  evaluator = None
  for key, (place, one) in enumerate(zip(places, configs)):
    logging.info("run %d of %d: %s", key + 1, len(places), place)
    spec = build.build(
        one, data_dir=data_dir, splits=splits, evaluator=evaluator
    ).spec
    evaluator = spec.evaluator
    result = training.train(spec, place, resume=resume, deadline=deadline)
    if result.stopped not in _FINISHED:
      break
  return result


def text(places: Sequence[str], *, out: str | None = None) -> str:
  """Write the finished runs, their mean and spread, and their cost.

  Args:
    places: of `folders`.
    out: folder for their figure; None for none.

  Raises:
    RunError: a folder holds no run, or `out` cannot be written.
  """
  found = comparison.compare(places)
  lines = [comparison.text(found), "", costs(places)]
  if out is not None:
    lines += ["", f"wrote {comparison.write(found, out)}"]
  return "\n".join(lines)


def costs(places: Sequence[str]) -> str:
  """Write the epsilon of one run and of all together, level by level."""
  result = study.account(places, delta=None)
  lines = [
      f"Each of the {len(places)} runs has its own secret key. Releasing one"
      " that was chosen",
      "before training costs the ε of one. Releasing all of them, their mean,"
      " their",
      "spread or the best of them costs the ε of all together:",
  ]
  caveats: dict[str, None] = {}
  for level, together in result["guarantees"].items():
    epsilon = float(together["epsilon"])
    if math.isfinite(epsilon):
      one = max(float(part[level]) for part in result["parts"].values())
      lines.append(
          f"  {level}: ε of one {report.rounded_up(one)}, of all"
          f" {report.rounded_up(epsilon)}, at δ = {result['delta']:g}"
      )
      caveats[together["caveat"]] = None
  if len(lines) == 3:
    return f"None of the {len(places)} runs has a privacy guarantee."
  lines += [f"  {level}: no guarantee" for level in result["no_guarantee"]]
  return "\n".join([*lines, *(f"  {caveat}" for caveat in caveats if caveat)])
