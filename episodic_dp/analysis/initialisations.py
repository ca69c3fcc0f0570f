"""Compare initialisations: each is fine-tuned on the same test tasks.

Initialisations are trained runs of any learner whose network ends in a head,
and a random one: the comparison of section 6.5 of "Meta-Learning with
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
from episodic_dp import options as options_lib
from episodic_dp import plain
from episodic_dp import training
from episodic_dp.accounting import report
from episodic_dp.analysis import saved_weights
from episodic_dp.config import build
from episodic_dp.config import learners
from episodic_dp.config import networks
from episodic_dp.config import RunConfig
from episodic_dp.config import saved
from episodic_dp.learners import naming
from episodic_dp.output import files
from episodic_dp.output import phases
from episodic_dp.output import tables
from episodic_dp.training import saved_runs

RANDOM = "random"
FILE = "fine_tuning.json"
# Options of data sets that decide which classes are for testing.
_DIVIDING = ("split", "seed", "shares", "levels")


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Start:
  """An initialisation.

  Attributes:
    name: of its line.
    params: of the network, its head included.
    learner: that trained it, as `config.learner.name`; None for random.
    steps: of training.
    guarantee: of guarantee.json, level -> {"epsilon", ...}; or None.
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
  """Measure all initialisations and write OUT/fine_tuning.json.

  Args:
    workdirs: folders of runs, each with a checkpoint.
    out: folder of the results.
    shots: support images of each class.
    config: of the test tasks; None for that of the first run.
    data_dir: folder of the data sets that are not built in.
    download: fetch the files that data_dir does not have.
    splits: the data, where they are loaded already.
    tasks: number of test tasks; None for `config.evaluation.test_tasks`.
    **options: fields of `options.FineTuning`.

  Returns:
    The content of the JSON file: "way", "query", "tasks", "chance", "data",
    "fine_tuning" (the options) and "initialisations": a list of {"name",
    "learner", "steps", "guarantee", "accuracy": {shot: {"mean", "low", "high",
    "tasks"}}}.

  Raises:
    RunError, PlanError: a run cannot be compared with the others, or the tasks
      cannot be drawn; one sentence, before anything is trained.
  """
  paths = _names(workdirs)
  configs = {name: saved.read(path) for name, path in paths.items()}
  config = config or next(iter(configs.values()))
  for name, other in configs.items():
    _check_network(name, other, config)
    _check_classes(name, other, config)
  way = config.way
  if way < 2 or not shots or len(set(shots)) < len(shots) or min(shots) < 1:
    raise errors.RunError(
        f"shots={','.join(map(str, shots))} of {way}-way tasks: give tasks of"
        " classes, and different numbers of at least 1"
    )
  if splits is None:
    with phases.phase("reading the data", at_once=True):
      splits = build.load_data(config, data_dir=data_dir, download=download)
  shape = splits.test.image_shape
  # The random initialisation takes no weights of another network.
  model = networks.make_model(config, shape, way=way, from_start=False)
  settings = plain.from_plain(
      options_lib.FineTuning, options, name="fine_tuning", partial=True
  )
  tuned = naming.make_fine_tuning(model, settings, fresh_head=False)
  fresh = dataclasses.replace(tuned, fresh_head=True)
  drawn = {
      shot: training.draw(
          splits.test,
          way=way,
          shot=shot,
          query=config.evaluation.query,
          count=config.evaluation.test_tasks if tasks is None else tasks,
          seed=config.evaluation.seed + 1,
      )
      for shot in shots
  }
  starts = [Start(name=RANDOM, params=tuned.init(jax.random.key(config.seed)))]
  starts += [
      _start(name, path, configs[name], fresh, shape)
      for name, path in paths.items()
  ]
  results = {
      "way": way,
      "query": config.evaluation.query,
      "tasks": len(next(iter(drawn.values())).rows),
      "chance": 1 / way,
      "data": splits.test.name,
      "fine_tuning": dict(options),
      "initialisations": _measure(tuned, starts, drawn),
  }
  files.write_json(pathlib.Path(out) / FILE, results)
  return results


def _measure(
    tuned: Any, starts: Sequence[Start], drawn: Mapping[int, training.Tasks]
) -> list[dict[str, Any]]:
  """Measure every initialisation after fine-tuning, at each shot."""
  # One compilation for each shot: all networks have one shape.
  evaluator = training.Evaluator(tuned)
  entries: list[dict[str, Any]] = [
      {
          "name": start.name, "learner": start.learner, "steps": start.steps,
          "guarantee": start.guarantee, "accuracy": {},
      }
      for start in starts
  ]
  with (
      phases.phase("fine-tuning"),
      phases.progress(len(starts) * len(drawn), "measurement") as bar,
  ):
    for shot, tasks in drawn.items():
      for start, entry in zip(starts, entries):
        score = evaluator.score([start.params], tasks)
        entry["accuracy"][str(shot)] = dataclasses.asdict(score)
        bar.update()
  return entries


def _names(workdirs: Sequence[str | os.PathLike]) -> dict[str, str]:
  """Name each folder: its last part, or its path where two have one."""
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


def _check_network(
    name: str, config: RunConfig, wanted: RunConfig
) -> None:
  """Refuse runs without a head, and bodies that differ from the wanted one."""
  learner = config.learner.name
  reason = None
  if config.learner.headless:
    reason = f"learner.name={learner!r}, whose network has no head to fine-tune"
  elif config.learner.per_step_norm:
    reason = "learner.per_step_norm=True, so that it is not one network"
  elif config.model.trained != "all":
    reason = f"model.trained={config.model.trained!r}, a part of its network"
  if reason:
    raise errors.RunError(f"run '{name}' has {reason}: leave it out")
  own, other = config.model.body, wanted.model.body
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
  """Refuse runs that may have seen the test classes in training."""
  if config.data.name != wanted.data.name:
    raise errors.RunError(
        f"run '{name}' is of data.name={config.data.name!r} and the test tasks"
        f" of {wanted.data.name!r}: compare runs of one data set"
    )
  first, second = (
      data.read_options(c.data.name, c.data.options) for c in (config, wanted)
  )
  for option in _DIVIDING:
    own, other = (getattr(o, option, None) for o in (first, second))
    if own != other:
      raise errors.RunError(
          f"run '{name}' has data.options.{option}={own!r} and the test tasks"
          f" {other!r}, so that it may have been trained on test classes:"
          " compare runs of one division of the classes"
      )


def _start(
    name: str,
    path: str,
    config: RunConfig,
    fresh: Any,
    shape: tuple[int, ...],
) -> Start:
  """Read the network of a run's last checkpoint; keep its head if it fits."""
  checkpoints, last = saved_runs.latest(path)
  learner = learners.make_learner(config, shape)
  params, _ = checkpoints.restore(last, learner.init(jax.random.key(0)))
  params = saved_weights.of_network(params)
  kind = config.learner.name
  if kind == "supervised" or config.way != fresh.model.way:
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


# Table ----------------------------------------------------------------------


def table(results: Mapping[str, Any]) -> str:
  """Write the accuracies of each initialisation, and its guarantees."""
  starts = results["initialisations"]
  shots = list(starts[0]["accuracy"])
  rows, lines = [], []
  for start in starts:
    cells = [
        training.Accuracy(**start["accuracy"][shot]) for shot in shots
    ]
    rows.append([start["name"], start["learner"] or "-", *cells])
    lines += [f"  {start['name']}: {text}" for text in _guarantees(start)]
  header = ["initialisation", "learner"]
  header += [f"{s} shot" + "s" * (s != "1") for s in shots]
  return "\n".join([
      tables.text(header, rows),
      f"{results['way']}-way, {results['tasks']} tasks of {results['data']},"
      f" chance {100 * results['chance']:.0f} %; guarantees as the runs state"
      " them:",
      *lines,
  ])


def _guarantees(start: Mapping[str, Any]) -> list[str]:
  """Write what protects the data that an initialisation was trained on."""
  if start["learner"] is None:
    return ["no data were used"]
  if start["guarantee"] is None:
    return ["states no guarantee (it has no guarantee.json)"]
  stated = [
      g for g in start["guarantee"].values() if isinstance(g["epsilon"], float)
  ]
  lines = [
      f"epsilon = {report.rounded_up(g['epsilon'])} at delta = {g['delta']:g}"
      f" ({g['neighbours']}; {g['steps']} steps)"
      for g in stated
  ]
  caveats = dict.fromkeys(g["caveat"] for g in stated if g["caveat"])
  return [*lines, *caveats] or ["no formal guarantee"]
