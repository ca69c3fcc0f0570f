"""Attacks released meta-models: who took part in the training?

  episodic-dp membership --read_private_training_data \\
      --workdir=DIR [--workdir_other=DIR ...] [--out=DIR]

DIR is a folder of episodic-dp train, or of experiments.main_job, whose private
and plain run are attacked side by side. The attacker adapts the last checkpoint
to somebody's support examples and calls them a member where the loss on their
query examples is small (`episodic_dp.auditing.membership`): once for each
participant, by the mean over several tasks, and once for each single example.
Members are participants of the training data; the others are held-out
participants, of the test split (of the built-in data as many as are asked for).

Writes membership.json, membership.md and membership.png: the rates of true
positives at small rates of false ones with 95 % intervals, the area under the
curve, and beside them the most that the run's (epsilon, delta) allows. For
examples that is the participant's guarantee, since an example that was not
trained on comes with a participant who was not either.

This reads the private training data, and what it writes is knowledge from them
that no noise protects: hence the flag, and hence the place, the private/ folder
of the first run, which is for the data holder's eyes. With --out it goes
elsewhere; that is for runs on data that are public anyway.

The runs of experiments/results/membership.md (data that are built in):
  python -m experiments.main_job --workdir=RUNS
  episodic-dp train --workdir=few_participants \\
      --config=glyphs:$FEW \\
      --config.evaluation.every=500 --config.checkpoint_every=500
with FEW=private=0,participants=25,rate=0.4,width=16,steps=1500.
"""

from collections.abc import Callable, Mapping, Sequence
import dataclasses
import json
import os
import pathlib
import tempfile
from typing import Any

from absl import flags
from absl import logging
import jax
import numpy as np
import tqdm

from episodic_dp import data
from episodic_dp import plan as plan_lib
from episodic_dp import training
from episodic_dp.accounting import report
from episodic_dp.auditing import membership
from episodic_dp.auditing import roc as roc_lib
from episodic_dp.cli import devices
from episodic_dp.cli import shared_flags
from episodic_dp.config import build
from episodic_dp.config import describe
from episodic_dp.config import own_data
from episodic_dp.output import files
from episodic_dp.training import errors
from episodic_dp.training import keys
from episodic_dp.training import reporting

NAME = "membership"
RATES = (1e-3, 1e-2, 1e-1)  # Of false positives.
_CURVE = 200  # Points of a curve that are kept, at most.


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Target:
  """A run that is attacked.

  Attributes:
    name: of its folder.
    config: of the run.
    hierarchy: of its training data.
    plan: how these were sampled.
    mechanism: what was released.
    checkpoints: of the run.
    step: that of the last one.
    guarantee: of a participant, {"epsilon", "delta"}; None where nothing holds.
  """

  name: str
  config: build.Config
  hierarchy: plan_lib.Hierarchy
  plan: plan_lib.SamplingPlan
  mechanism: plan_lib.Mechanism
  checkpoints: training.Checkpoints
  step: int
  guarantee: Mapping[str, float] | None


def find(
    folders: Sequence[str], *, data_dir: str | None = None
) -> list[Target]:
  """The runs in the folders, or in folders inside them.

  Raises:
    PlanError, RunError, ValueError: one sentence; nothing was computed yet.
  """
  paths = []
  for folder in map(pathlib.Path, folders):
    inside = sorted(p.parent for p in folder.glob("*/config.json"))
    own = (folder / "config.json").exists() or not inside
    paths += [folder] if own else inside
  names = [path.absolute().name for path in paths]
  if len(set(names)) < len(names):
    names = [f"{path.absolute().parent.name}/{path.name}" for path in paths]
  return [_target(*pair, data_dir) for pair in zip(names, paths)]


def _target(name: str, path: pathlib.Path, data_dir: str | None) -> Target:
  config = build.read_config(str(path))
  with build.as_written(str(path)):
    hierarchy, plan, mechanism = describe.describe(
        own_data.with_hierarchy(config, data_dir)
    )
  membership.check(hierarchy, plan)
  checkpoints = training.Checkpoints(path, read_only=True)
  step = checkpoints.latest()
  if step is None:
    raise errors.RunError(
        f"{checkpoints.folder} has no checkpoint yet: let episodic-dp train go"
        " on until it has saved one"
    )
  return Target(
      name=name,
      config=config,
      hierarchy=hierarchy,
      plan=plan,
      mechanism=mechanism,
      checkpoints=checkpoints,
      step=step,
      guarantee=_guarantee(path / reporting.GUARANTEE, hierarchy.levels[0]),
  )


def _guarantee(file: pathlib.Path, level: str) -> Mapping[str, float] | None:
  """What a run states for a level; None where that is infinite or missing."""
  try:
    stated = json.loads(file.read_text(encoding="utf-8"))["guarantees"]
    if level not in stated or stated[level]["epsilon"] == "inf":
      return None
    return {name: float(stated[level][name]) for name in ("epsilon", "delta")}
  except FileNotFoundError:
    return None
  except (OSError, ValueError, KeyError, TypeError) as e:
    raise errors.RunError(
        f"{file} cannot be read ({type(e).__name__}): resume the run, which"
        " writes it again"
    ) from e


# The attack -------------------------------------------------------------------


def attack(
    targets: Sequence[Target],
    *,
    participants: int,
    tasks: int,
    seed: int,
    data_dir: str | None = None,
    download: bool = False,
) -> dict[str, Any]:
  """Attacks every run; JSON-able.

  Returns:
    "runs": a list of {"name", "steps", "noise_multiplier", "level",
    "guarantee", "participants", "examples"}, the last two as of `_judged`, and
    what was asked for.
  """
  loaded: dict[str, data.Splits] = {}
  results = []
  # None: only where someone watches.
  with tqdm.tqdm(unit="task", leave=False, disable=None) as bar:
    bar.total = sum(
        tasks * (min(participants, t.hierarchy.num_units(0)) + participants)
        for t in targets
    )
    for target in targets:
      bar.set_description(target.name)
      config = with_others(target.config, participants)
      key = json.dumps(build.as_json(config)["data"], sort_keys=True)
      if key not in loaded:
        loaded.clear()  # Runs of one kind come together, and images are large.
        loaded[key] = build.load_data(
            config, data_dir=data_dir, download=download
        )
      results.append(
          _attack(target, loaded[key], participants, tasks, seed, bar.update)
      )
      logging.info("%s: %s", target.name, _found(results[-1]))
  return {
      "runs": results,
      "tasks": tasks,
      "at_most": participants,
      "seed": seed,
  }


def with_others(config: build.Config, participants: int) -> build.Config:
  """The config, its test split large enough where participants are made.

  Participant i of the built-in data's test split does not depend on how many
  there are, and is in no training split.
  """
  config = config.copy_and_resolve_references()
  options = config.data.options
  if config.data.name == "glyphs":
    with config.unlocked():
      options.test_participants = max(
          participants, options.get("test_participants", 0)
      )
  return config


def _attack(
    target: Target,
    splits: data.Splits,
    participants: int,
    tasks: int,
    seed: int,
    progress: Callable[[int], None],
) -> dict[str, Any]:
  """One entry of `attack`."""
  learner = build.make_learner(target.config, splits.train.image_shape)
  like = learner.init(jax.random.key(target.config.seed))
  params, _ = target.checkpoints.restore(target.step, like)
  episode = target.plan.episode
  assert episode is not None  # Checked.
  of_participants, of_examples, losses = [], [], []
  for part, dataset in enumerate((splits.train, splits.test)):
    there = dataset.hierarchy.num_units(0)
    units = np.random.default_rng((seed, part)).choice(
        there, min(participants, there), replace=False
    )
    drawn = membership.draw_tasks(
        dataset, target.plan, units, tasks=tasks, seed=seed + part
    )
    found = membership.query_losses(
        learner, params, dataset, episode, drawn, progress=progress
    )
    losses.append(float(found.mean()))
    of_participants.append(membership.participant_scores(found))
    of_examples.append(membership.example_scores(found, drawn, episode.shot)[1])
  return {
      "name": target.name,
      "steps": target.step,
      "noise_multiplier": target.mechanism.noise_multiplier,
      "level": target.hierarchy.levels[0],
      "training_participants": target.hierarchy.num_units(0),
      "guarantee": target.guarantee,
      "loss": {"members": losses[0], "others": losses[1]},
      "participants": _judged(of_participants, target.guarantee),
      "examples": _judged(of_examples, target.guarantee),
  }


def _judged(
    scores: Sequence[np.ndarray], guarantee: Mapping[str, float] | None
) -> dict[str, Any]:
  """Area, points and curve of the scores of members and others."""
  curve = roc_lib.roc(*scores)
  points = []
  for rate in RATES:
    point = curve.at(rate)
    points.append({
        "at": rate,
        "fpr": point.fpr,
        "fpr_interval": list(point.fpr_interval),
        "tpr": point.tpr,
        "tpr_interval": list(point.tpr_interval),
        "allowed": guarantee and float(
            roc_lib.most_true_positives(np.asarray(rate), **guarantee)
        ),
    })
  others = curve.non_members.size
  counts = np.unique(np.geomspace(1, others, _CURVE).astype(int))
  shown = [curve.at(float(count / others)) for count in counts]
  return {
      "members": int(curve.members.size),
      "others": int(others),
      "auc": curve.auc,
      "auc_interval": list(curve.auc_interval),
      "points": points,
      "curve": {
          "fpr": [p.fpr for p in shown],
          "tpr": [p.tpr for p in shown],
          "low": [p.tpr_interval.low for p in shown],
          "high": [p.tpr_interval.high for p in shown],
      },
  }


# What is shown ----------------------------------------------------------------


def table(results: Mapping[str, Any]) -> str:
  """The areas and rates of all runs, as a table of Markdown."""
  header = [
      "run", "trained on", "steps", "ε of a participant",
      "attacked: members and others", "mean loss, members / others",
      "area under the curve",
      *(f"found at {100 * rate:g} % false alarms" for rate in RATES),
  ]
  rows = [header, ["---"] * len(header)]
  for run in results["runs"]:
    for what in ("participants", "examples"):
      judged = run[what]
      loss = run["loss"]
      rows.append([
          run["name"],
          f"{run['training_participants']} participants",
          str(run["steps"]),
          _epsilon(run["guarantee"]),
          f"{judged['members']} and {judged['others']} {what}",
          f"{loss['members']:.3f} / {loss['others']:.3f}",
          "{:.3f} ({:.3f} to {:.3f})".format(
              judged["auc"], *judged["auc_interval"]
          ),
          *(_rate(point) for point in judged["points"]),
      ])
  return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _epsilon(guarantee: Mapping[str, float] | None) -> str:
  if guarantee is None:
    return "none"
  epsilon = report.rounded_up(guarantee["epsilon"])
  return f"{epsilon} at δ = {guarantee['delta']:g}"


def _rate(point: Mapping[str, Any]) -> str:
  low, high = point["tpr_interval"]
  text = f"{100 * point['tpr']:.2f} % ({100 * low:.2f} to {100 * high:.2f})"
  if point["allowed"] is not None:
    text += f", allowed {100 * point['allowed']:.2f}"
  return text


def _found(run: Mapping[str, Any]) -> str:
  """One line for the log."""
  return ", ".join(
      f"area of {what} {run[what]['auc']:.3f}"
      for what in ("participants", "examples")
  )


def page(results: Mapping[str, Any], command: str) -> str:
  """The table and how to read it, as Markdown."""
  return f"""\
# Who took part? Membership inference on released meta-models

`{command}`

{table(results)}

![curves]({NAME}.png)

A member is a participant of the training data, another one is held out. The
attacker adapts the released model to one support set of somebody and takes them
for a member where the loss on their queries is small: a participant's mean over
{results["tasks"]} tasks, or an example's over the times that it was a query. In
brackets are 95 % intervals, Clopper and Pearson's for the rates (at this
threshold) and DeLong's for the area, which is 0.5 for a blind guess; those of
examples are too narrow, since examples of one participant are alike. "Allowed"
is the most that the participant's (ε, δ) lets any attack find on average over
runs, for examples too: one that was not trained on comes with a participant who
was not either.

It is one model of each run and one simple attack: an attack that fails proves
nothing, and the guarantee does not rest on it.

This page is made of private training data without noise, and no guarantee
covers it.
"""


def draw(results: Mapping[str, Any]):
  """A matplotlib figure: a panel for participants, one for examples."""
  # Late, and without pyplot: no display is needed.
  from matplotlib import figure as figure_lib

  figure = figure_lib.Figure(figsize=(10.5, 5.4), layout="constrained")
  for axes, what in zip(
      figure.subplots(1, 2), ("participants", "examples")
  ):
    lowest = 1.0
    for number, run in enumerate(results["runs"]):
      judged, color = run[what], f"C{number}"
      curve = judged["curve"]
      lowest = min(lowest, 1 / judged["others"])
      axes.plot(
          curve["fpr"], curve["tpr"], color=color, linewidth=2,
          drawstyle="steps-post",
          label=f"{run['name']}: area {judged['auc']:.3f}",
      )
      axes.fill_between(
          curve["fpr"], curve["low"], curve["high"], color=color, alpha=0.15,
          linewidth=0, step="post",
      )
      if run["guarantee"] is not None:
        rates = np.geomspace(1e-6, 1, 400)
        axes.plot(
            rates, roc_lib.most_true_positives(rates, **run["guarantee"]),
            color=color, linestyle="--",
            label=f"at most, by ε = {_epsilon(run['guarantee'])}",
        )
    axes.plot([1e-6, 1], [1e-6, 1], color="grey", linestyle=":",
              label="a blind guess")
    axes.set(
        xscale="log", yscale="log", xlim=(lowest, 1), ylim=(lowest, 1.3),
        xlabel="others taken for members", ylabel="members found",
        title=f"{what}, 95 % intervals",
    )
    axes.grid(alpha=0.3, which="both", linewidth=0.5)
    axes.legend(
        loc="upper center", bbox_to_anchor=(0.5, -0.12), frameon=False,
        fontsize=9,
    )
  return figure


def write(
    results: Mapping[str, Any], folder: str | os.PathLike, command: str
) -> pathlib.Path:
  """Writes the three files, readable by their owner only.

  Returns:
    The path of the page.
  """
  folder = pathlib.Path(folder)
  made: dict[str, Callable[[pathlib.Path], Any]] = {
      "json": lambda path: files.write_json(
          path, {"command": command, **results}
      ),
      "png": lambda path: draw(results).savefig(path, format="png", dpi=130),
      "md": lambda path: path.write_text(page(results, command), "utf-8"),
  }
  for ending, make in made.items():
    with files.replacing(folder / f"{NAME}.{ending}") as beside:
      make(beside)
      beside.chmod(0o600)
  return folder / f"{NAME}.md"


def _check(out: str | os.PathLike) -> None:
  """ValueError, before anything is computed, for a folder that takes no file.
  """
  try:
    pathlib.Path(out).mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=pathlib.Path(out)):
      pass
  except OSError as e:
    raise ValueError(
        f"{out} cannot be written ({e.strerror or e}): choose another --out"
    ) from e


def _command() -> str:
  """The command, with DIR for the folders."""
  parts = ["episodic-dp membership --read_private_training_data"]
  values = flags.FLAGS
  parts += ["--workdir=DIR"]
  parts += ["--workdir_other=DIR"] * len(values.workdir_other)
  parts += [
      f"--{name}={values[name].value}"
      for name in ("participants", "tasks", "seed")
      if values[name].value != values[name].default
  ]
  return " ".join(parts)


def main(argv: Sequence[str]) -> None:
  del argv
  values = flags.FLAGS
  if not values.read_private_training_data:
    raise ValueError(
        "this attack reads the private training data, and no noise protects"
        " what it writes: say --read_private_training_data if they are yours to"
        " read"
    )
  devices.log_devices()
  targets = find(
      [values.workdir, *values.workdir_other], data_dir=values.data_dir
  )
  out = values.out or keys.private_folder(values.workdir)
  _check(out)
  results = attack(
      targets,
      participants=values.participants,
      tasks=values.tasks,
      seed=values.seed,
      data_dir=values.data_dir,
      download=values.download,
  )
  print(table(results))
  path = write(results, out, _command())
  print(f"{path} is made of private training data, and nothing protects it")


def define_flags() -> None:
  """Of the runs, their data, and who is attacked."""
  shared_flags.define_workdir("Folder of a run, or of several.")
  flags.DEFINE_multi_string(
      "workdir_other", [], "Another such folder, to be shown beside it."
  )
  flags.DEFINE_bool(
      "read_private_training_data",
      False,
      "Yes, read the private training data: what is written is not protected.",
  )
  shared_flags.define_out(
      "Folder of the results; by default WORKDIR/private."
  )
  shared_flags.define_data()
  flags.DEFINE_integer(
      "participants",
      4000,
      "How many members, and how many others, are attacked at most.",
      lower_bound=2,
  )
  flags.DEFINE_integer(
      "tasks", 8, "Tasks of each, whose losses are averaged.", lower_bound=1
  )
  shared_flags.define_seed(
      "Public seed of who is attacked, with which tasks."
  )
