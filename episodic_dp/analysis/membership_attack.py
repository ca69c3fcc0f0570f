"""Attack trained runs: find out who took part in their training.

The attacker adapts the last checkpoint to somebody's support examples and calls
them a member where the loss on their query examples is small
(`episodic_dp.auditing.inference`): once for each participant, by the mean over
several tasks, and once for each single example. Members are participants of the
training data; the others are held-out participants, of the test split (of the
built-in data as many as are asked for).
"""

from collections.abc import Mapping, Sequence
import json
import os
import pathlib
from typing import Any

import jax
import numpy as np

from episodic_dp import data
from episodic_dp.accounting import report
from episodic_dp.auditing import inference
from episodic_dp.config import build
from episodic_dp.config import learners
from episodic_dp.config import RunConfig
from episodic_dp.config import saved
from episodic_dp.output import files
from episodic_dp.output import phases
from episodic_dp.output import plotting
from episodic_dp.output import tables
from episodic_dp.training import saved_runs

NAME = "membership"
SIDES = ("participants", "examples")  # Attacked in every run.
RATES = (1e-3, 1e-2, 1e-1)  # Of false positives.
_CURVE_POINTS = 200  # The most points that are kept of a curve.


def find(folders: Sequence[str | os.PathLike]) -> dict[str, pathlib.Path]:
  """Name the runs in the folders, or in folders inside them."""
  paths = []
  for folder in map(pathlib.Path, folders):
    inside = sorted(p.parent for p in folder.glob("*/config.json"))
    own = (folder / "config.json").exists() or not inside
    paths += [folder] if own else inside
  names = [path.absolute().name for path in paths]
  if len(set(names)) < len(names):
    names = [f"{path.absolute().parent.name}/{path.name}" for path in paths]
  return dict(zip(names, paths))


def attack(
    runs: Mapping[str, pathlib.Path],
    *,
    participants: int,
    tasks: int,
    seed: int,
    data_dir: str | None = None,
    download: bool = False,
) -> dict[str, Any]:
  """Attack every run of `find`.

  Args:
    runs: name -> work directory.
    participants: number of members, and of others, at most.
    tasks: of each participant.
    seed: public; chooses the participants and draws their tasks.
    data_dir: folder of the data sets that are not built in.
    download: fetch the files that data_dir does not have.

  Returns:
    Plain data: "runs", a list of {"name", "steps", "noise_multiplier", "level",
    "training_participants", "guarantee", "loss", "participants", "examples"},
    the last two as of `_summarize`, and the arguments.

  Raises:
    PlanError, RunError, ValueError: one sentence.
  """
  configs = {
      name: saved.read(path, data_dir=data_dir) for name, path in runs.items()
  }
  for name, config in configs.items():
    inference.check(config.release.hierarchy, config.release.plan)
    saved_runs.latest(runs[name])
    _guarantee(runs[name], config)
  results = []
  loaded: dict[str, data.Splits] = {}
  for name, path in runs.items():
    config = with_held_out(configs[name], participants)
    key = json.dumps(config.as_json()["data"], sort_keys=True)
    if key not in loaded:
      loaded = {key: build.load_data(
          config, data_dir=data_dir, download=download
      )}
    with phases.phase(f"attacking {name}"):
      found = _attack(path, config, loaded[key], participants, tasks, seed)
    results.append({"name": name} | found)
  return {
      "runs": results, "tasks": tasks, "at_most": participants, "seed": seed
  }


def with_held_out(config: RunConfig, participants: int) -> RunConfig:
  """Make the test split of built-in data large enough.

  Participant i of the built-in data's test split does not depend on the size of
  the split, and is in no training split.
  """
  if config.data.name != "glyphs":
    return config
  least = config.data.options.get("test_participants", 0)
  return config.with_changes(
      {"data.options.test_participants": max(participants, least)}
  )


def _guarantee(
    path: pathlib.Path, config: RunConfig
) -> dict[str, float] | None:
  """Return a participant's {"epsilon", "delta"}; None for no guarantee."""
  stated = saved_runs.guarantees(path, "epsilon", "delta") or {}
  level = config.release.levels[0]
  if level not in stated or stated[level]["epsilon"] == "inf":
    return None
  return {name: float(value) for name, value in stated[level].items()}


def _attack(
    path: pathlib.Path,
    config: RunConfig,
    splits: data.Splits,
    participants: int,
    tasks: int,
    seed: int,
) -> dict[str, Any]:
  """Return one entry of `attack`."""
  release = config.release
  checkpoints, step = saved_runs.latest(path)
  learner = learners.make_learner(config, splits.train.image_shape)
  like = learner.init(jax.random.key(config.seed))
  params, _ = checkpoints.restore(step, like)
  episode = release.plan.episode
  assert episode is not None  # Checked.
  of_participants, of_examples, losses = [], [], []
  for part, dataset in enumerate((splits.train, splits.test)):
    there = inference.participants(dataset.hierarchy, release.plan)
    units = np.random.default_rng((seed, part)).choice(
        there, min(participants, there.size), replace=False
    )
    drawn = inference.draw_tasks(
        dataset, release.plan, units, tasks=tasks, seed=seed + part
    )
    found = inference.query_losses(learner, params, dataset, episode, drawn)
    losses.append(float(found.mean()))
    of_participants.append(inference.participant_scores(found))
    of_examples.append(inference.example_scores(found, drawn, episode.shot)[1])
  guarantee = _guarantee(path, config)
  return {
      "steps": step,
      "noise_multiplier": release.mechanism.noise_multiplier,
      "level": release.levels[0],
      "training_participants": release.hierarchy.num_units(0),
      "guarantee": guarantee,
      "loss": {"members": losses[0], "others": losses[1]},
      "participants": _summarize(of_participants, guarantee),
      "examples": _summarize(of_examples, guarantee),
  }


def _summarize(
    scores: Sequence[np.ndarray], guarantee: Mapping[str, float] | None
) -> dict[str, Any]:
  """Return area, points and curve of the scores of members and others."""
  curve = inference.roc(*scores)
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
            inference.most_true_positives(np.asarray(rate), **guarantee)
        ),
    })
  others = curve.non_members.size
  counts = np.unique(np.geomspace(1, others, _CURVE_POINTS).astype(int))
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


# Table, page and figure -----------------------------------------------------


def table(results: Mapping[str, Any]) -> str:
  """Write the areas and rates of all runs as a table of Markdown."""
  header = [
      "run", "trained on", "steps", "ε of a participant",
      "attacked: members and others", "mean loss, members / others",
      "area under the curve",
      *(f"found at {100 * rate:g} % false alarms" for rate in RATES),
  ]
  rows = []
  for run in results["runs"]:
    for what in SIDES:
      attacked = run[what]
      loss = run["loss"]
      rows.append([
          run["name"],
          f"{run['training_participants']} participants",
          str(run["steps"]),
          _epsilon_cell(run["guarantee"]),
          f"{attacked['members']} and {attacked['others']} {what}",
          f"{loss['members']:.3f} / {loss['others']:.3f}",
          "{:.3f} ({:.3f} to {:.3f})".format(
              attacked["auc"], *attacked["auc_interval"]
          ),
          *(_rate_cell(point) for point in attacked["points"]),
      ])
  return tables.markdown(header, rows)


def _epsilon_cell(guarantee: Mapping[str, float] | None) -> str:
  if guarantee is None:
    return "none"
  epsilon = report.rounded_up(guarantee["epsilon"])
  return f"{epsilon} at δ = {guarantee['delta']:g}"


def _rate_cell(point: Mapping[str, Any]) -> str:
  low, high = point["tpr_interval"]
  text = f"{100 * point['tpr']:.2f} % ({100 * low:.2f} to {100 * high:.2f})"
  if point["allowed"] is not None:
    text += f", allowed {100 * point['allowed']:.2f}"
  return text


def page(results: Mapping[str, Any], command: str) -> str:
  """Write the table and how to read it, as Markdown."""
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


@plotting.styled
def draw(results: Mapping[str, Any]) -> plotting.Figure:
  """Draw a panel for participants, and one for examples."""
  figure = plotting.figure(5.4, width=plotting.WIDE)
  panels = figure.subplots(1, len(SIDES))
  for axes, what in zip(panels, SIDES):
    for number, run in enumerate(results["runs"]):
      _curve(axes, run, run[what], plotting.series(number))
    axes.plot(
        [1e-6, 1], [1e-6, 1], label="a blind guess", **plotting.REFERENCE
    )
    lowest = min(1 / run[what]["others"] for run in results["runs"])
    axes.set(
        xscale="log", yscale="log", xlim=(lowest, 1), ylim=(lowest, 1.3),
        xlabel="others taken for members", ylabel="members found",
        title=f"{what}, 95 % intervals",
    )
    axes.grid(which="both")
    plotting.legend_below(axes, columns=1)
  return figure


def _curve(
    axes: plotting.Axes,
    run: Mapping[str, Any],
    attacked: Mapping[str, Any],
    look: Mapping[str, Any],
) -> None:
  """Draw a run's curve with its band, and the most that is allowed."""
  curve, color = attacked["curve"], look["color"]
  axes.plot(
      curve["fpr"], curve["tpr"], color=color, linestyle="-",
      marker=look["marker"], markevery=0.12, drawstyle="steps-post",
      label=f"{run['name']}: area {attacked['auc']:.3f}",
  )
  axes.fill_between(
      curve["fpr"], curve["low"], curve["high"], color=color, alpha=0.15,
      linewidth=0, step="post",
  )
  if run["guarantee"] is not None:
    rates = np.geomspace(1e-6, 1, 400)
    axes.plot(
        rates, inference.most_true_positives(rates, **run["guarantee"]),
        color=color, linestyle="--",
        label=f"at most, by ε = {_epsilon_cell(run['guarantee'])}",
    )


def write(
    results: Mapping[str, Any], folder: str | os.PathLike, command: str
) -> pathlib.Path:
  """Write JSON, figure and page, readable by their owner only.

  Returns:
    The path of the page.
  """
  path = pathlib.Path(folder) / f"{NAME}.md"
  files.write_json(
      path.with_suffix(".json"), {"command": command, **results}, private=True
  )
  plotting.save(draw(results), path.with_suffix(".png"), private=True)
  files.write_text(path, page(results, command), private=True)
  return path
