"""Trains a config under several keys, and says what came of them together.

  folders = several_keys.folders("runs/glyphs3", 3)
  result = several_keys.train(config, folders)
  print(several_keys.text(folders))

Every run has a secret key of its own and lies in a folder of its own, named as
`launch --keys` names them. What depends on more than one of them, such as their
mean or the best of them, costs what all of them cost together.
"""

from collections.abc import Sequence
import contextlib
import itertools
import math
import os
import pathlib

from absl import logging

from episodic_dp import errors
from episodic_dp import training
from episodic_dp.accounting import report
from episodic_dp.analysis import compare
from episodic_dp.analysis import compare_plots
from episodic_dp.analysis import compare_report
from episodic_dp.analysis import study as study_lib
from episodic_dp.config import build
from episodic_dp.config import key_runs
from episodic_dp.config import RunConfig
from episodic_dp.output import phases
from episodic_dp.training import remote
from episodic_dp.training import reporting
from episodic_dp.training import same_run
from episodic_dp.training import stores
from episodic_dp.training import workdir as workdir_lib

_FINISHED = ("done", "budget")


def folders(workdir: str, keys: int) -> list[str]:
  """The work directories of so many runs.

  Raises:
    RunError: `workdir` holds a run itself.
  """
  if not stores.is_url(workdir):
    check_holds_no_run(workdir, f"--keys={keys}", "--keys")
  return [key_runs.folder(workdir, key_runs.name(k)) for k in range(keys)]


def check_holds_no_run(workdir: str, what: str, flags: str) -> None:
  """Refuses to make folders of runs in a folder that is a run's.

  Args:
    workdir: of this machine.
    what: makes them.
    flags: that ask for them.

  Raises:
    RunError: it holds a run itself.
  """
  if _holds_a_run(workdir):
    raise errors.RunError(
        f"{workdir} holds a run, and {what} makes folders of runs in it: choose"
        f" another --workdir, or leave {flags} out to go on with it"
    )


def _holds_a_run(folder: str) -> bool:
  """Whether a folder of this machine is that of a run."""
  return (pathlib.Path(folder) / workdir_lib.CONFIG).exists()


def check_alone(workdir: str) -> None:
  """Refuses to begin a run in a folder that holds those of `--keys` or a sweep.

  Raises:
    RunError: it does.
  """
  if stores.is_url(workdir) or _holds_a_run(workdir):
    return
  last = key_runs.name(0)
  found = [
      path.name
      for path in sorted(pathlib.Path(workdir).glob(f"*{last}"))
      if _holds_a_run(str(path))
  ]
  if not found:
    return
  remedy = "choose another --workdir"
  if last in found:
    keys = next(
        k
        for k in itertools.count(1)
        if not _holds_a_run(key_runs.folder(workdir, key_runs.name(k)))
    )
    remedy = f"add --keys={keys} to go on with them, or {remedy}"
  raise errors.RunError(f"{workdir} holds folders of runs: {remedy}")


def train(
    config: RunConfig,
    places: Sequence[str],
    *,
    data_dir: str | os.PathLike[str] | None = None,
    download: bool = False,
    resume: str = "auto",
    limit: training.TimeLimit | None = None,
) -> training.Result:
  """Trains a run in each folder, one after the other; resumes those begun.

  Args:
    config: of all of them; run `k` has the seed `k`.
    places: of `folders`.
    data_dir: as `build.build` has it.
    download: likewise.
    resume: "must" or "never" holds of every folder; "auto".
    limit: when to leave, for all of them together.

  Returns:
    Of the last run that was trained: all have been, unless it was stopped.

  Raises:
    PlanError, UnsoundPlanError, RunError, ValueError: one sentence.
  """
  build.check(config)
  configs = [
      RunConfig.parse(dict(config.source) | {"seed": key}, data_dir=data_dir)
      for key in range(len(places))
  ]
  # Before anything is waited for; and a folder that was opened once may be gone
  # on with by --resume=must, whichever run the first attempt came to.
  for place, one in zip(places, configs):
    if not stores.is_url(place):
      with workdir_lib.opened(place, resume=resume) as opened:
        same_run.check_before_data(opened.folder, one.as_json())
  with phases.phase("reading the data", at_once=True):
    splits = build.load_data(config, data_dir=data_dir, download=download)
  evaluator = None
  for key, (place, one) in enumerate(zip(places, configs)):
    logging.info("run %d of %d: %s", key + 1, len(places), place)
    spec = build.build(
        one, data_dir=data_dir, splits=splits, evaluator=evaluator
    ).spec
    evaluator = spec.evaluator
    asked = resume if stores.is_url(place) else "auto"
    with training.opened(place, resume=asked) as workdir:
      result = training.train(spec, workdir, limit=limit)
    if result.stopped not in _FINISHED:
      break
  return result


def text(places: Sequence[str], *, out: str | None = None) -> str:
  """The finished runs, their mean and spread, and what they cost.

  Args:
    places: of `folders`; on this machine or on an object store.
    out: folder that takes their pictures; None for none.

  Raises:
    RunError: a folder holds no run.
    WriteError: `out` cannot be written.
  """
  found = compare.compare(places)
  lines = [compare_report.text(found), "", costs(found)]
  if out is not None:
    written = compare_plots.write(found, out)
    lines += ["", *(f"drawn: {path}" for path in written)]
  return "\n".join(lines)


def costs(found: compare.Comparison) -> str:
  """What one run costs, and all together, level by level."""
  runs = found.runs
  with contextlib.ExitStack() as fetched:
    statements = [
        fetched.enter_context(
            remote.fetched(run.name, only=(reporting.GUARANTEE,))
        )
        for run in runs
    ]
    study = study_lib.read([os.fspath(folder) for folder in statements])
  result = study_lib.account(study, delta=None)
  guarantees = result["guarantees"].values()
  if all(math.isinf(float(g["epsilon"])) for g in guarantees):
    return f"None of the {len(runs)} runs has a privacy guarantee."
  lines = [
      f"Each of the {len(runs)} runs has a secret key of its own. To release"
      " one that was",
      "chosen before training costs the ε of one. To release all of them, their"
      " mean,",
      "their spread or the best of them costs the ε of all together, by the"
      " ledger:",
  ]
  for level, guarantee in result["guarantees"].items():
    one = max(run.stated[level].epsilon for run in runs)
    together = float(guarantee["epsilon"])
    lines.append(
        f"  {level}: ε of one {report.rounded_up(one)}, of all"
        f" {report.rounded_up(together)}, at δ = {result['delta']:g}"
    )
  lines += [f"  {level}: no guarantee" for level in result["no_guarantee"]]
  lines += dict.fromkeys(f"  {g['caveat']}" for g in guarantees if g["caveat"])
  return "\n".join(lines)
