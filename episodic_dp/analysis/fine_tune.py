"""Compares initialisations: each is fine-tuned on the same test tasks.

Initialisations are trained runs of any learner whose network ends in a head,
and the random one: the comparison of section 6.5 of "Meta-Learning with
Differential Privacy" (DP-MAML). All have one network, down to its norm. A head
that was trained for tasks of as many classes is kept; any other is replaced by
zeros, and that of the random initialisation is random.
"""

from collections.abc import Mapping, Sequence
import dataclasses
import os
import pathlib
from typing import Any

import jax

from episodic_dp import data
from episodic_dp import errors
from episodic_dp import plan as plan_lib
from episodic_dp import training
from episodic_dp.analysis import fine_tune_report
from episodic_dp.analysis import saved_weights
from episodic_dp.config import build
from episodic_dp.config import learner_kinds
from episodic_dp.config import learners
from episodic_dp.config import networks
from episodic_dp.config import RunConfig
from episodic_dp.config import saved
from episodic_dp.config import sections
from episodic_dp.output import phases
from episodic_dp.training import saved_runs

RANDOM = "random"
# Options of data sets that decide which classes are for testing.
_DIVIDING = ("split", "seed", "shares", "levels")


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Start:
  """An initialisation.

  Attributes:
    name: of its line.
    params: of the network, its head included.
    learner: what trained it, as `config.learner.name`; None for random.
    steps: of training.
    guarantee: what guarantee.json states, level -> {"epsilon", ...}; or None.
  """

  name: str
  params: Any
  learner: str | None = None
  steps: int = 0
  guarantee: Mapping[str, Any] | None = None


def fine_tune(
    workdirs: Sequence[str | os.PathLike],
    out: str | os.PathLike,
    *,
    shots: Sequence[int],
    config: RunConfig | None = None,
    data_dir: str | None = None,
    download: bool = False,
    splits: data.Splits | None = None,
    tasks: int | None = None,
    **options: Any,
) -> dict[str, Any]:
  """Measures all initialisations and writes OUT/fine_tuning.json and .png.

  Args:
    workdirs: folders of runs, each with a checkpoint.
    out: folder of the results.
    shots: support images of each class.
    config: of the test tasks; None for that of the first run.
    data_dir: folder of the data sets that are not built in.
    download: fetch what data_dir does not have.
    splits: the data, where they are loaded already.
    tasks: how many test tasks; None for `config.evaluation.test_tasks`.
    **options: of `learners.make_fine_tuning`.

  Returns:
    What was written: "way", "query", "tasks", "chance", "fine_tuning" (the
    options) and "initialisations": a list of {"name", "learner", "steps",
    "guarantee", "accuracy": {shot: {"mean", "low", "high", "tasks"}}}.

  Raises:
    RunError, PlanError: a run cannot be compared with the others, or the tasks
      cannot be drawn; one sentence, before anything is trained.
  """
  paths = _names(workdirs)
  configs = {name: saved.read(path) for name, path in paths.items()}
  config = config or next(iter(configs.values()))
  for name, other in configs.items():
    with saved.saved_config_errors(paths[name]):
      _check_network(name, other, config)
      _check_classes(name, other, config)
  way = config.way
  _check_way(way, shots)
  if splits is None:
    with phases.phase("reading the data", at_once=True):
      splits = build.load_data(config, data_dir=data_dir, download=download)
  shape = splits.test.image_shape
  # What is random begins with no weights of another network.
  model = networks.make_model(config, shape, way=way, from_start=False)
  tuned = learners.make_fine_tuning(model, **options, fresh_head=False)
  fresh = dataclasses.replace(tuned, fresh_head=True)
  _check_tasks(config, splits.test, shots, tasks)
  starts = [
      Start(name=RANDOM, params=tuned.init(jax.random.key(config.seed)))
  ] + [
      _start(name, path, configs[name], fresh, shape)
      for name, path in paths.items()
  ]
  drawn = _draw_tasks(config, splits.test, shots, tasks)
  scores = _measure(tuned, starts, drawn)
  results = {
      "way": way,
      "query": config.evaluation.query,
      "tasks": len(next(iter(drawn.values())).rows),
      "chance": 1 / way,
      "data": splits.test.name,
      "fine_tuning": dict(options),
      "initialisations": [_entry(s, scores[s.name]) for s in starts],
  }
  fine_tune_report.write(results, out)
  return results


def _draw_tasks(
    config: RunConfig,
    test: data.Dataset,
    shots: Sequence[int],
    tasks: int | None,
) -> dict[int, training.Tasks]:
  """shot -> the test tasks, the same ones for every initialisation."""
  return {
      shot: training.draw(
          test,
          way=config.way,
          shot=shot,
          query=config.evaluation.query,
          count=config.evaluation.test_tasks if tasks is None else tasks,
          seed=config.evaluation.seed + 1,
      )
      for shot in shots
  }


def _measure(
    tuned: Any, starts: Sequence[Start], drawn: Mapping[int, training.Tasks]
) -> dict[str, dict[int, training.Score]]:
  """name -> shot -> the score of an initialisation after fine-tuning."""
  # One compilation for each number of shots: all networks have one shape.
  evaluator = training.Evaluator(tuned)
  scores: dict[str, dict[int, training.Score]] = {s.name: {} for s in starts}
  with (
      phases.phase("fine-tuning"),
      phases.progress(len(starts) * len(drawn), "measurement") as bar,
  ):
    for shot, tasks in drawn.items():
      for start in starts:
        bar.describe(f"{start.name}, {shot} shots")
        scores[start.name][shot] = evaluator.score([start.params], tasks)
        bar.update()
  return scores


def _entry(
    start: Start, scores: Mapping[int, training.Score]
) -> dict[str, Any]:
  """What is written of an initialisation."""
  return {
      "name": start.name,
      "learner": start.learner,
      "steps": start.steps,
      "guarantee": start.guarantee,
      "accuracy": {
          str(shot): dataclasses.asdict(score)
          for shot, score in scores.items()
      },
  }


# What is refused ------------------------------------------------------------


def _names(workdirs: Sequence[str | os.PathLike]) -> dict[str, str]:
  """name -> folder: the folder's own name, or its path where two have one."""
  paths = [os.path.normpath(path) for path in workdirs]
  if not paths or len(set(paths)) < len(paths):
    raise errors.RunError(
        f"--workdir={','.join(paths)}: give the folder of every run once"
    )
  short = [pathlib.Path(path).absolute().name for path in paths]
  taken = [*short, RANDOM]
  return {
      path if taken.count(name) > 1 else name: path
      for path, name in zip(paths, short)
  }


def _network(config: RunConfig) -> dict[str, Any]:
  """What of `config.model` makes the body."""
  options = dataclasses.asdict(config.model)
  body = sections.NETWORKS.get(config.model.name, ("options",))
  return {field: options[field] for field in ("name", *body)}


def _check_network(
    name: str, config: RunConfig, wanted: RunConfig
) -> None:
  """Refuses runs without a head, and bodies that differ from the first."""
  learner = config.learner.name
  if learner in learner_kinds.HEADLESS:
    raise errors.RunError(
        f"run '{name}' is of learner.name={learner!r}, whose network has no"
        " head to fine-tune: leave it out"
    )
  if config.learner.per_step_norm:
    raise errors.RunError(
        f"run '{name}' has learner.per_step_norm=True, norms of their own for"
        " every inner step, so that it is not one network: leave it out"
    )
  if config.model.trained != "all":
    raise errors.RunError(
        f"run '{name}' has model.trained={config.model.trained!r}, a part of"
        " its network around a start, and initialisations are compared of whole"
        " networks: leave it out"
    )
  own, other = _network(config), _network(wanted)
  for field in sorted({*own, *other}):
    if own.get(field) != other.get(field):
      raise errors.RunError(
          f"run '{name}' has model.{field}={own.get(field)!r} and the"
          f" comparison {other.get(field)!r}: initialisations are compared in"
          " one network, train them with the same config.model"
      )


def _check_classes(
    name: str, config: RunConfig, wanted: RunConfig
) -> None:
  """Refuses runs that may have seen the test classes in training."""
  if config.data.name != wanted.data.name:
    raise errors.RunError(
        f"run '{name}' is of data.name={config.data.name!r} and the test tasks"
        f" of {wanted.data.name!r}: compare runs of one data set"
    )
  for option, default in data.defaults_of(config.data.name).items():
    if option not in _DIVIDING:
      continue
    own, other = (
        c.data.options.get(option, default) for c in (config, wanted)
    )
    own, other = (tuple(v) if isinstance(v, list) else v for v in (own, other))
    if own != other:
      raise errors.RunError(
          f"run '{name}' has data.options.{option}={own!r} and the test tasks"
          f" {other!r}, so that it may have been trained on test classes:"
          " compare runs of one division of the classes"
      )


def _check_way(way: int, shots: Sequence[int]) -> None:
  if way < 2:
    raise errors.RunError(
        f"the tasks have way {way}, regression: fine-tuning is of classes"
    )
  if not shots or len(set(shots)) < len(shots) or min(shots) < 1:
    raise errors.RunError(
        f"shots={','.join(map(str, shots))}: give different numbers of at"
        " least 1"
    )


def _check_tasks(
    config: RunConfig,
    test: data.ArrayDataset,
    shots: Sequence[int],
    tasks: int | None,
) -> None:
  if tasks is not None and tasks < 1:
    raise errors.RunError(f"tasks={tasks} must be at least 1")
  way, query = config.way, config.evaluation.query
  for shot in shots:
    try:
      plan_lib.task_plan(test.hierarchy, way=way, shot=shot, query=query)
    except plan_lib.PlanError as e:
      raise errors.RunError(
          f"tasks of {way} classes with {shot} + {query} images of each cannot"
          f" be drawn from '{test.name}', so lower shots or query, or name"
          f" larger data by --config: {e}"
      ) from e


# The runs -------------------------------------------------------------------


def _start(
    name: str,
    path: str,
    config: RunConfig,
    fresh: Any,
    shape: tuple[int, ...],
) -> Start:
  """The network of a run's last checkpoint, its head kept where it fits."""
  checkpoints, last = saved_runs.latest(path)
  learner = learners.make_learner(config, shape)
  params, _ = checkpoints.restore(last, learner.init(jax.random.key(0)))
  params = saved_weights.of_network(params)
  kind = config.learner.name
  fits = config.way == fresh.model.way
  if kind == "supervised" or not fits:
    params = fresh.with_fresh_head(params)
  return Start(
      name=name,
      params=params,
      learner=kind,
      steps=last,
      guarantee=saved_runs.guarantees(
          path, "epsilon", "delta", "neighbours", "steps", "caveat"
      ),
  )
