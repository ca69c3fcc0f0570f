"""Train a config under several keys, and report their mean and joint cost.

  folders = several_keys.folders("runs/glyphs3", 3)
  result = several_keys.train(config, folders)
  print(several_keys.text(folders))

Every run has its own secret key and folder, named as `launch --keys` names it.
A result that depends on several runs, such as their mean or the best of them,
costs the epsilon of all of them together.
"""

from collections.abc import Sequence
import os
import pathlib

from absl import logging

from episodic_dp import errors
from episodic_dp import training
from episodic_dp.analysis import comparison
from episodic_dp.analysis import costs
from episodic_dp.config import build
from episodic_dp.config import RunConfig
from episodic_dp.output import phases
from episodic_dp.training import resume as resume_lib
from episodic_dp.training import workdir as workdir_lib


def folders(workdir: str, keys: int) -> list[str]:
  """Name the work directories of n runs.

  Raises:
    RunError: `workdir` holds a run itself.
  """
  if _holds_a_run(workdir):
    raise errors.RunError(
        f"{workdir} holds a run, and --keys={keys} makes folders of runs in it:"
        " choose another --workdir, or leave --keys out to resume it"
    )
  return [f"{workdir.rstrip('/')}/key={k}" for k in range(keys)]


def check_alone(workdir: str) -> None:
  """Refuse to begin a run in a folder that holds those of `--keys`.

  Raises:
    RunError: it does.
  """
  first = pathlib.Path(workdir, "key=0")
  if not _holds_a_run(workdir) and _holds_a_run(first):
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
    if result.stopped != "done":
      break
  return result


def text(places: Sequence[str]) -> str:
  """Write the finished runs, their mean and spread, and their cost.

  Args:
    places: of `folders`.

  Raises:
    RunError: a folder holds no run.
  """
  return "\n\n".join([
      comparison.text(comparison.compare(places)),
      f"Each of the {len(places)} runs has its own secret key. Releasing one"
      " that was chosen before\ntraining costs its own epsilon. Releasing all"
      " of them, their mean, their spread\nor the best costs the epsilon of all"
      " together:",
      costs.runs_table(costs.account_runs(places, delta=None)),
  ])
