"""Attacks trained runs: who took part in their training?

The attacker adapts the last checkpoint to somebody's support examples and calls
them a member where the loss on their query examples is small
(`episodic_dp.auditing.membership`): once for each participant, by the mean over
several tasks, and once for each single example. Members are participants of the
training data; the others are held-out participants, of the test split (of the
built-in data as many as are asked for).
"""

from collections.abc import Callable, Mapping, Sequence
import dataclasses
import json
import os
import pathlib
from typing import Any

from absl import logging
import jax
import numpy as np

from episodic_dp import data
from episodic_dp import plan as plan_lib
from episodic_dp import training
from episodic_dp.auditing import membership as inference
from episodic_dp.auditing import roc as roc_lib
from episodic_dp.config import build
from episodic_dp.config import learners
from episodic_dp.config import RunConfig
from episodic_dp.config import saved
from episodic_dp.output import phases
from episodic_dp.training import saved_runs

SIDES = ("participants", "examples")  # What is attacked of every run.
RATES = (1e-3, 1e-2, 1e-1)  # Of false positives.
_CURVE_POINTS = 200  # That are kept of a curve, at most.


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Target:
  """A run that is attacked.

  Attributes:
    name: of its folder.
    config: of the run.
    release: what every step drew of its training data, and released.
    checkpoints: of the run.
    step: that of the last one.
    guarantee: of a participant, {"epsilon", "delta"}; None where nothing holds.
  """

  name: str
  config: RunConfig
  release: plan_lib.Release
  checkpoints: training.Checkpoints
  step: int
  guarantee: Mapping[str, float] | None

  @property
  def num_participants(self) -> int:
    """How many it was trained on."""
    return self.release.hierarchy.num_units(0)


def find(
    folders: Sequence[str | os.PathLike], *, data_dir: str | None = None
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
  config = saved.read(path, data_dir=data_dir)
  release = config.release
  inference.check(release.hierarchy, release.plan)
  checkpoints, step = saved_runs.latest(path)
  return Target(
      name=name,
      config=config,
      release=release,
      checkpoints=checkpoints,
      step=step,
      guarantee=_guarantee(path, release.levels[0]),
  )


def _guarantee(path: pathlib.Path, level: str) -> Mapping[str, float] | None:
  """What a run states for a level; None where that is infinite or missing."""
  stated = saved_runs.guarantees(path, "epsilon", "delta") or {}
  if level not in stated or stated[level]["epsilon"] == "inf":
    return None
  return {name: float(value) for name, value in stated[level].items()}


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
    "training_participants", "guarantee", "loss", "participants", "examples"},
    the last two as of `_summarize`, and what was asked for.
  """
  loaded: dict[str, data.Splits] = {}
  results = []
  total = sum(
      tasks * (participants + min(participants, t.num_participants))
      for t in targets
  )
  with phases.phase("attacking"), phases.progress(total, "task") as bar:
    for target in targets:
      bar.describe(target.name)
      config = with_held_out(target.config, participants)
      key = json.dumps(config.as_json()["data"], sort_keys=True)
      if key not in loaded:
        loaded.clear()  # Runs of one kind come together, and images are large.
        loaded[key] = build.load_data(
            config, data_dir=data_dir, download=download
        )
      results.append(
          _attack(target, loaded[key], participants, tasks, seed, bar.update)
      )
      logging.info("%s: %s", target.name, _log_line(results[-1]))
  return {
      "runs": results,
      "tasks": tasks,
      "at_most": participants,
      "seed": seed,
  }


def with_held_out(config: RunConfig, participants: int) -> RunConfig:
  """The config, its test split large enough where participants are made.

  Participant i of the built-in data's test split does not depend on how many
  there are, and is in no training split.
  """
  if config.data.name != "glyphs":
    return config
  least = config.data.options.get("test_participants", 0)
  return config.with_changes(
      {"data.options.test_participants": max(participants, least)}
  )


def _attack(
    target: Target,
    splits: data.Splits,
    participants: int,
    tasks: int,
    seed: int,
    progress: Callable[[int], None],
) -> dict[str, Any]:
  """One entry of `attack`."""
  learner = learners.make_learner(target.config, splits.train.image_shape)
  like = learner.init(jax.random.key(target.config.seed))
  params, _ = target.checkpoints.restore(target.step, like)
  episode = target.release.plan.episode
  assert episode is not None  # Checked.
  of_participants, of_examples, losses = [], [], []
  for part, dataset in enumerate((splits.train, splits.test)):
    there = inference.participants(
        dataset.hierarchy, target.release.plan
    )
    units = np.random.default_rng((seed, part)).choice(
        there, min(participants, there.size), replace=False
    )
    drawn = inference.draw_tasks(
        dataset, target.release.plan, units, tasks=tasks, seed=seed + part
    )
    found = inference.query_losses(
        learner, params, dataset, episode, drawn, progress=progress
    )
    losses.append(float(found.mean()))
    of_participants.append(inference.participant_scores(found))
    of_examples.append(inference.example_scores(found, drawn, episode.shot)[1])
  return {
      "name": target.name,
      "steps": target.step,
      "noise_multiplier": target.release.mechanism.noise_multiplier,
      "level": target.release.levels[0],
      "training_participants": target.num_participants,
      "guarantee": target.guarantee,
      "loss": {"members": losses[0], "others": losses[1]},
      "participants": _summarize(of_participants, target.guarantee),
      "examples": _summarize(of_examples, target.guarantee),
  }


def _summarize(
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


def _log_line(run: Mapping[str, Any]) -> str:
  """One line for the log."""
  return ", ".join(
      f"area of {what} {run[what]['auc']:.3f}" for what in SIDES
  )
