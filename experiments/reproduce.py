"""Make a table or figure: train its runs, measure and compare them.

  python -m experiments.reproduce --target=learners --scale=cpu \\
      --workdir=DIR --data_dir=DATA

Targets: table3 (DP-MAML's Table 3, every cell), frontier (what each of its
settings brings), learners (every learner, private and not, at one budget),
mnist_writers (the price of privacy for 539 people, at several budgets),
backbones (CIFAR-FS by the features of a public network).
Training figures of [M], DP-MAML: figure4 (gradient norms), figure6a, figure6b,
figure6c and figure10 (accuracy over clipping, noise and tasks a step), figure7,
figure9 and figure11 (epochs, losses and budgets of three trainings),
figure13_shots (sample level) and figure13_starts (five initialisations); in one
--workdir they share runs of equal settings. On built-in data, each in minutes
on two cores at --scale=cpu: glyphs (the run of `make train`) and sinusoid
(regression, the smallest example), each with and without privacy. pvi_adult
(private partitioned variational inference on UCI Adult, three splits and
budgets). stages (training in two and three stages, every level with its
guarantee). Without training: adaptation (a start that is adapted to people with
a guarantee), table4 (the time of a task, private and not), figure12 (delta over
the number of tasks), amplification (the theorem on sampling in stages, as
printed and as corrected) and audited_plans (measured and claimed epsilon).
--help lists all names.

Scales: smoke (built-in data, seconds, learns nothing), cpu (narrow networks,
an hour or so on two cores) and full (the papers' size, for an accelerator).

A finished run is not repeated, and an interrupted one resumes from its last
checkpoint. --only=NAME,NAME trains some of the runs, so that several processes
share the work in one --workdir; the table and the picture show the finished
runs. The results are DIR/TARGET.json, .md and .png (in --out if it is given).

  python -m experiments.reproduce --write

makes the pages of experiments/results again from the JSON files there. It
trains nothing and reads no data; --out selects another folder.
"""

from collections.abc import Sequence
import pathlib
import sys
import textwrap

from absl import flags
from absl import logging

from episodic_dp import backends
from episodic_dp import data
from episodic_dp import errors
from episodic_dp.cli import app
from episodic_dp.cli import devices
from episodic_dp.cli import exit_status
from episodic_dp.output import files
from episodic_dp.output import plotting
from episodic_dp.output import tables
from experiments import results_pages
from experiments import runs as runs_lib
from experiments import targets
from experiments.targets import panels


def main(
    target: str,
    scale: str,
    workdir: str,
    *,
    only: Sequence[str] = (),
    out: str | None = None,
    data_dir: str | None = None,
    download: bool = False,
) -> None:
  """Train the unfinished runs, and report the finished ones.

  Args:
    target: one of `targets.NAMES`.
    scale: one of `targets.SCALES`.
    workdir: folder of the runs.
    only: names of the runs to train; all if empty.
    out: folder of the results; None for workdir.
    data_dir: folder of the data sets that are not built in.
    download: whether to fetch files that data_dir lacks.

  Raises:
    RunError: a wrong name, or a folder of other runs.
    SystemExit: a signal came; the same call resumes.
  """
  made = targets.load(target)
  runs = made.runs(scale)
  if all(run.generated for run in runs):
    data.check_data_dir(runs[0].load().data.name, data_dir)
  names = [run.name for run in runs]
  if unknown := set(only) - set(names):
    raise errors.RunError(
        f"--only={','.join(sorted(unknown))}: expected of {', '.join(names)}"
    )
  backends.use_all_cores()
  devices.log_devices()
  # Folders of another scale or version are found before any training.
  done = {run.name: runs_lib.load(run, workdir) for run in runs}
  shared = runs_lib.Shared()
  for number, run in enumerate(runs):
    if done[run.name] or (only and run.name not in only):
      continue
    logging.info("run %d of %d: %s", number + 1, len(runs), run.name)
    try:
      made.finish(
          run, workdir, shared=shared, data_dir=data_dir, download=download
      )
    except runs_lib.Interrupted as e:
      print(f"stopped in run {run.name}; the same command resumes")
      sys.exit(exit_status.of(str(e)))
  # Another process may have finished some of the others meanwhile.
  outcomes = {run.name: runs_lib.load(run, workdir) for run in runs}
  finished = {name: found for name, found in outcomes.items() if found}
  report(target, scale, finished, pathlib.Path(out or workdir))
  if len(finished) < len(runs):
    print(f"{len(finished)} of {len(runs)} runs are finished")


def report(
    target: str, scale: str, outcomes: panels.Outcomes, folder: pathlib.Path
) -> None:
  """Print the table; write it, the numbers and the picture."""
  made = targets.load(target)
  print(tables.text(*made.table(outcomes)))
  command = (
      f"python -m experiments.reproduce --target={target} --scale={scale}"
      " --workdir=DIR"
  )
  if not all(run.generated for run in made.runs(scale)):
    command += " --data_dir=DATA"
  stored = {
      **made.more(outcomes),
      "target": target,
      "scale": scale,
      "command": command,
      "device": ", ".join(sorted(
          {o.get("device", runs_lib.device()) for o in outcomes.values()}
      )),
      "runs": outcomes,
  }
  print(textwrap.fill(made.finding(outcomes), 80))
  files.write_json(folder / f"{target}.json", stored)
  files.write_text(folder / f"{target}.md", results_pages.page(made, stored))
  plotting.save(
      results_pages.picture(made, outcomes), folder / f"{target}.png"
  )
  print(f"{target}.json, .md and .png are in {folder}")


if __name__ == "__main__":
  _target = flags.DEFINE_enum("target", None, targets.NAMES, "What to make.")
  _scale = flags.DEFINE_enum("scale", "smoke", targets.SCALES, "How large.")
  _workdir = flags.DEFINE_string(
      "workdir", None, "Folder of the runs; they are resumed."
  )
  _only = flags.DEFINE_list(
      "only", [], "Names of the runs to train (--list); all if empty."
  )
  _out = flags.DEFINE_string(
      "out", None,
      "Folder of table and picture; --workdir if not given, experiments/results"
      " with --write.",
  )
  _data_dir = flags.DEFINE_string(
      "data_dir", None, "Folder of the data sets that are not built in."
  )
  _download = flags.DEFINE_bool(
      "download", False, "Fetch the data files that --data_dir lacks."
  )
  _list = flags.DEFINE_bool("list", False, "Print each run's command only.")
  _write = flags.DEFINE_bool(
      "write", False, "Make the pages of --out from its JSON files only."
  )

  def _run(_: Sequence[str]) -> None:
    if _write.value:
      folder = _out.value or results_pages.FOLDER
      print(f"wrote {', '.join(results_pages.write(folder))} in {folder}")
    elif _target.value is None:
      raise errors.RunError("--target: expected a name, or --write")
    elif _list.value:
      for run in targets.load(_target.value).runs(_scale.value):
        print(f"{run.name}: {run.command()}")
    elif _workdir.value is None:
      raise errors.RunError("--workdir: expected a folder")
    else:
      main(
          _target.value,
          _scale.value,
          _workdir.value,
          only=_only.value,
          out=_out.value,
          data_dir=_data_dir.value,
          download=_download.value,
      )

  app.run(_run)
