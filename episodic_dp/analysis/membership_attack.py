"""Membership inference on trained runs, by a threshold on the loss.

The attacker holds the released parameters and a person's data, adapts to a few
of these examples, and calls the person a member if the loss on the other
examples is small. This is the loss threshold of Yeom et al., "Privacy Risk in
Machine Learning: Analyzing the Connection to Overfitting" (2018), for tasks
instead of examples. The attack judges participants by the mean loss of their
tasks, and examples by their mean loss as a query. Carlini et al., "Membership
Inference Attacks From First Principles" (2022), ask for the share of members
that an attack finds at small rates of false alarms.

The numbers are for one model and one simple attack. A curve on the diagonal
proves nothing. Unlike an audit (`auditing.measure_epsilon`) it does not bound
epsilon from below. `most_true_positives` bounds the average over
runs, members and others; the curve of one run varies about it by chance.

Scores of members are computed from private training data without noise, and
results computed from them are not protected.
"""

from collections.abc import Mapping, Sequence
import dataclasses
import math
import os
import pathlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy

from episodic_dp import data
from episodic_dp import training
from episodic_dp.accounting import report
from episodic_dp.analysis import comparison
from episodic_dp.errors import PlanError
from episodic_dp.errors import RunError
from episodic_dp.models.model import Params
from episodic_dp.output import files
from episodic_dp.output import phases
from episodic_dp.output import plotting
from episodic_dp.output import tables
from episodic_dp.run import Run
from episodic_dp.training import checkpoint
from episodic_dp.training import reporting

NAME = "membership"
SIDES = ("participants", "examples")  # Attacked in every run.
RATES = (1e-3, 1e-2, 1e-1)  # Of false positives.
_CURVE_POINTS = 200  # Most points of a curve in the results.


def find(folders: Sequence[str | os.PathLike]) -> dict[str, pathlib.Path]:
  """Return name -> folder of the runs in the folders, or in subfolders."""
  paths = [*map(pathlib.Path.absolute, comparison.find(folders))]
  names = [path.name for path in paths]
  if len(set(names)) < len(names):
    names = [f"{path.parent.name}/{path.name}" for path in paths]
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
    participants: largest number of members, and of others: the first ones of
      the training data and of the test split.
    tasks: average number of tasks of each participant.
    seed: public seed of the tasks.
    data_dir: folder of the data sets that are not built in.
    download: whether to fetch files that data_dir lacks.

  Returns:
    Plain data: "runs", a list of {"name", "steps", "noise_multiplier", "level",
    "training_participants", "guarantee", "loss", "participants", "examples"},
    the last two from `summarize`, and the arguments.

  Raises:
    PlanError, RunError: one sentence.
  """
  configs = {}
  for name, path in runs.items():
    config = Run.read(path, data_dir=data_dir)
    configs[name] = with_held_out(config, participants)
    check(configs[name])
  results = []
  for name, path in runs.items():
    config, release = configs[name], configs[name].release
    checkpoints, step = checkpoint.latest(path)
    level = release.levels[0]
    guarantee = reporting.guarantees(path, "epsilon", "delta").get(level)
    if guarantee is not None and guarantee["epsilon"] == "inf":
      guarantee = None
    with phases.phase(f"attacking {name}"):
      splits = config.data.load(data_dir=data_dir, download=download)
      learner, tested = config.make_learners(
          splits.train.image_shape, splits.validation
      )
      if config.way < release.plan.task_form.way:
        learner = tested  # See `draw_tasks`.
      like = learner.init(jax.random.key(config.seed))
      params, _ = checkpoints.restore(step, like)
      evaluator = training.Evaluator(learner)
      scores = []
      for part, dataset in enumerate((splits.train, splits.test)):
        drawn, owners = draw_tasks(
            dataset, config, participants, tasks=tasks, seed=seed + part
        )
        scores.append(_scores(evaluator, params, drawn, owners))
      members, others = scores
    result = {
        "name": name,
        "steps": step,
        "noise_multiplier": release.mechanism.noise_multiplier,
        "level": level,
        "training_participants": release.hierarchy.num_units(0),
        "guarantee": guarantee,
        "loss": {
            "members": -float(members["examples"].mean()),
            "others": -float(others["examples"].mean()),
        },
    }
    for what in SIDES:
      result[what] = summarize(members[what], others[what], guarantee)
    results.append(result)
  return {
      "runs": results, "tasks": tasks, "at_most": participants, "seed": seed
  }


def check(config: Run) -> None:
  """Refuse configs whose tasks do not belong to one participant each.

  Raises:
    PlanError: tasks of this plan belong to no single participant, or
      participants share their examples.
  """
  plan = config.release.plan
  if plan.form != "unit":
    raise PlanError(
        "membership of a participant needs tasks that each belong to one"
        " participant (an episode with form='unit'), but this plan has"
        f" {plan.episode or 'no episode'}: attack a run whose config has them"
    )
  if config.release.hierarchy.copies:
    raise PlanError(
        "the participants of this hierarchy share their examples (copies=True),"
        " so a held-out participant's examples were partly trained on: attack a"
        " run whose participants have separate examples"
    )


def with_held_out(config: Run, participants: int) -> Run:
  """Enlarge the test split of built-in data to a number of participants.

  Its participant i does not depend on its size, and is in no training split.
  """
  if config.data.name != "glyphs":
    return config
  return config.replace({"data.options.test_participants": participants})


# Tasks and scores -----------------------------------------------------------


def draw_tasks(
    dataset: data.Dataset,
    config: Run,
    participants: int,
    *,
    tasks: int,
    seed: int,
) -> tuple[training.evaluation.Tasks, np.ndarray]:
  """Sample tasks of the first participants, as evaluation does.

  They are as large as training tasks, unless test tasks have fewer classes.

  Returns:
    The tasks, and the participant of each, int[tasks].

  Raises:
    PlanError: the participants have too few examples for such tasks.
  """
  hierarchy, episode = dataset.hierarchy, config.release.plan.task_form
  drawn = training.sample_tasks(
      dataset, way=min(episode.way, config.way), shot=episode.shot,
      query=episode.query, classes=episode.classes,
      count=tasks * hierarchy.num_units(0), seed=seed,
  )
  owners = np.arange(hierarchy.num_units(0))
  for k in range(1, hierarchy.depth):
    owners = owners[hierarchy.parents(k)]
  owner_of_row = np.zeros(len(dataset.images), int)
  owner_of_row[np.asarray(dataset.rows(jnp.asarray(hierarchy.rows)))] = owners
  found = owner_of_row[drawn.rows[:, 0, 0]]
  kept = found < participants
  drawn = dataclasses.replace(
      drawn, rows=drawn.rows[kept], keys=drawn.keys[kept]
  )
  return drawn, found[kept]


def query_losses(outputs: np.ndarray, labels: np.ndarray) -> np.ndarray:
  """Return the loss of every query example, float64[tasks, queries].

  Args:
    outputs: outputs from `training.Evaluator.outputs`.
    labels: labels from the same.
  """
  outputs = outputs.astype(np.float64)
  if outputs.shape == labels.shape:
    return np.square(outputs - labels).mean(-1)
  right = np.take_along_axis(outputs, labels[..., None], axis=-1)[..., 0]
  # -log(right) computed from the other classes: float32 rounds `right` to 1 for
  # the examples that look most like members.
  others = np.where(
      np.arange(outputs.shape[-1]) == labels[..., None], 0, outputs
  ).sum(-1)
  return np.log1p(others / np.maximum(right, np.finfo(np.float32).tiny))


def _scores(
    evaluator: training.Evaluator,
    params: Params,
    tasks: training.evaluation.Tasks,
    owners: np.ndarray,
) -> dict[str, np.ndarray]:
  """Return minus the mean loss of each participant and of each example."""
  losses = query_losses(*evaluator.outputs(params, tasks))
  queries = tasks.rows[..., tasks.episode.shot :]
  return {
      "participants": -_means(owners, losses.mean(1)),
      "examples": -_means(queries, losses),
  }


def _means(groups: np.ndarray, values: np.ndarray) -> np.ndarray:
  """Return the mean value of each group that occurs."""
  _, group = np.unique(groups.reshape(-1), return_inverse=True)
  return np.bincount(group, values.reshape(-1)) / np.bincount(group)


# Curves ---------------------------------------------------------------------


def summarize(
    members: np.ndarray,
    others: np.ndarray,
    guarantee: Mapping[str, float] | None,
) -> dict[str, Any]:
  """Return area, points and curve of the scores of members and others.

  Raises:
    RunError: a score is NaN.
  """
  if np.isnan(members).any() or np.isnan(others).any():
    raise RunError(
        "scores are NaN: attack a model whose losses are finite"
    )
  members, others = np.sort(members), np.sort(others)
  points = []
  for rate in RATES:
    allowed = None
    if guarantee is not None:
      allowed = float(most_true_positives(np.asarray(rate), **guarantee))
    points.append(
        {"at": rate, **at_rate(members, others, rate), "allowed": allowed}
    )
  counts = np.unique(np.geomspace(1, others.size, _CURVE_POINTS).astype(int))
  curve = [at_rate(members, others, x) for x in (counts / others.size).tolist()]
  auc, interval = area(members, others)
  return {
      "members": members.size,
      "others": others.size,
      "auc": auc,
      "auc_interval": interval,
      "points": points,
      "curve": curve,
  }


def at_rate(
    members: np.ndarray, others: np.ndarray, rate: float
) -> dict[str, Any]:
  """Return the rates at the threshold with a share of false positives.

  Args:
    members: float64[members], ascending scores.
    others: float64[others], ascending scores.
    rate: largest share of false positives among the others.

  Returns:
    "fpr", "tpr" and "tpr_interval", the 95 % interval of Clopper and Pearson,
    which is exact at this threshold.
  """
  # Slightly above, since 0.29 * 100 is less than 29 in floating point.
  allowed = math.floor(rate * others.size * (1 + 1e-9))
  threshold = others[-1 - allowed] if allowed < others.size else -math.inf
  hits = int(np.sum(members > threshold))
  interval = scipy.stats.binomtest(hits, members.size).proportion_ci()
  return {
      "fpr": float(np.mean(others > threshold)),
      "tpr": hits / members.size,
      "tpr_interval": [float(interval.low), float(interval.high)],
  }


def area(
    members: np.ndarray, others: np.ndarray
) -> tuple[float, list[float]]:
  """Return the area under the curve of ascending scores, and its interval.

  The area is the probability that a member scores above another (ties half).
  Its 95 % interval is of DeLong, DeLong and Clarke-Pearson, "Comparing the
  Areas under Two or More Correlated ROC Curves" (1988). If all comparisons
  agree, which have no variance, it is that of Clopper and Pearson for disjoint
  pairs of members and others.
  """
  variance, beaten = 0.0, np.zeros(0)
  for ours, theirs in ((others, members), (members, others)):
    # For each of ours, the share of theirs with a lower score.
    below = np.searchsorted(theirs, ours, "left")
    beaten = (below + np.searchsorted(theirs, ours, "right")) / 2 / theirs.size
    if ours.size > 1:
      variance += beaten.var(ddof=1) / ours.size
    else:
      variance = math.inf  # One score has no spread: no bound is known.
  auc, half = float(beaten.mean()), 1.96 * math.sqrt(variance)
  if not variance:
    half = 1 - 0.025 ** (1 / min(members.size, others.size))
  return auc, [max(auc - half, 0.0), min(auc + half, 1.0)]


def most_true_positives(
    fpr: np.ndarray, epsilon: float, delta: float
) -> np.ndarray:
  """Return the largest rate of true positives that (epsilon, delta) allows.

  For every test of "with t" against "without t", TPR <= e^epsilon FPR + delta
  and 1 - FPR <= e^epsilon (1 - TPR) + delta: Kairouz, Oh and Viswanath, "The
  Composition Theorem for Differential Privacy" (2015), Theorem 2.1.

  Args:
    fpr: rates of false positives, any shape.
    epsilon: at least 0, finite.
    delta: in [0, 1].
  """
  # The factor may exceed a double, and no rate exceeds 1.
  rare = math.exp(min(epsilon, 700.0)) * fpr + delta
  usual = 1 - math.exp(-epsilon) * (1 - delta - fpr)
  return np.minimum(np.minimum(rare, usual), 1.0)


# Table, page and figure -----------------------------------------------------


def table(results: Mapping[str, Any]) -> str:
  """Format the areas and rates of all runs as a table of Markdown."""
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
          *(_rate_cell(p, attacked["others"]) for p in attacked["points"]),
      ])
  return tables.markdown(header, rows)


def _epsilon_cell(guarantee: Mapping[str, float] | None) -> str:
  if guarantee is None:
    return "none"
  epsilon = report.rounded_up(guarantee["epsilon"])
  return f"{epsilon} at δ = {report.rounded_delta(guarantee['delta'])}"


def _rate_cell(point: Mapping[str, Any], others: int) -> str:
  """Format a rate; that of less than one of the others is not measured."""
  if point["at"] * others < 1:
    return f"needs {1 / point['at']:.0f} others"
  low, high = point["tpr_interval"]
  text = f"{100 * point['tpr']:.2f} % ({100 * low:.2f} to {100 * high:.2f})"
  if point["allowed"] is not None:
    # A bound: rounded up.
    text += f", allowed {math.ceil(1e4 * point['allowed']) / 100:.2f}"
  return text


def page(results: Mapping[str, Any], command: str) -> str:
  """Format the table and an explanation as Markdown."""
  return f"""\
# Who took part? Membership inference on released meta-models

`{command}`

{table(results)}

![curves]({NAME}.png)

A member is a participant of the training data; the others are held out. The
attacker adapts the released model to a person's support set and calls the
person a member if the loss on the person's queries is small. The loss of a
participant is a mean over about {results["tasks"]} tasks. The loss of an
example is a mean over the times that it was a query. In brackets are 95 %
intervals: Clopper and Pearson's for the rates (at this threshold), and DeLong's
for the area, which is 0.5 for a blind guess. The intervals for examples are too
narrow, since examples of one participant are alike. "Allowed" is the most that
the participant's (ε, δ) lets any attack find on average over runs. It holds for
examples too: an example outside the training data comes with a participant
outside it.

Each run is one model, attacked by one simple method. An attack that fails
proves nothing, and the guarantee does not depend on it.

This page was computed from private training data without noise, and no
guarantee covers it.
"""


@plotting.styled
def draw(results: Mapping[str, Any]) -> plotting.Figure:
  """Plot a panel for participants, and one for examples."""
  figure = plotting.figure(5.4, width=plotting.WIDE)
  for axes, what in zip(figure.subplots(1, len(SIDES)), SIDES):
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
  """Plot a run's curve with its band, and the largest allowed rates."""
  color = look["color"]
  curve = np.array([
      (point["fpr"], point["tpr"], *point["tpr_interval"])
      for point in attacked["curve"]
  ])
  rates, found, low, high = curve.T
  axes.plot(
      rates, found, color=color, linestyle="-",
      marker=look["marker"], markevery=0.12, drawstyle="steps-post",
      label=f"{run['name']}: area {attacked['auc']:.3f}",
  )
  axes.fill_between(
      rates, low, high, color=color, alpha=0.15, linewidth=0, step="post"
  )
  if run["guarantee"] is not None:
    grid = np.geomspace(1e-6, 1, 400)
    axes.plot(
        grid, most_true_positives(grid, **run["guarantee"]),
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
