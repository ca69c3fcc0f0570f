"""Compares initialisations: each is fine-tuned on the same test tasks.

  episodic-dp fine-tune --workdir=DIR[,DIR...] --out=OUT \\
      [--shots=1,5,10,15,20] [--steps=30] [--config=FILE]

Takes runs of episodic-dp train of any learner whose network ends in a head
(MAML and its relatives, supervised learning; private or not) and the random
initialisation, trains each on the support set of every test task, and measures
it on the query set: the comparison of section 6.5 of "Meta-Learning with
Differential Privacy" (DP-MAML). All have one network, down to its norm. A head
that was trained for tasks of as many classes is kept; any other is replaced by
zeros, and that of the random initialisation is random.

The test tasks are those of --config, or of the first run: its data, way, query
and public seed. Prints a table with 95 % intervals and the guarantee that each
run states, and writes OUT/fine_tuning.json and .png. What is stated holds after
fine-tuning too, for the data of the training run; nothing protects the support
sets.
"""

from collections.abc import Mapping, Sequence
import dataclasses
import importlib
import inspect
import json
import os
import pathlib
from typing import Any

from absl import flags
import jax
import tqdm

from episodic_dp import data
from episodic_dp import plan as plan_lib
from episodic_dp import training
from episodic_dp.accounting import report
from episodic_dp.cli import devices
from episodic_dp.cli import shared_flags
from episodic_dp.config import build
from episodic_dp.config import describe
from episodic_dp.output import files
from episodic_dp.output import tables
from episodic_dp.training import errors
from episodic_dp.training import evaluation
from episodic_dp.training import reporting

RESULTS = "fine_tuning"
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
    workdirs: Sequence[str],
    out: str | os.PathLike,
    *,
    shots: Sequence[int],
    config: build.Config | None = None,
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
    **options: of `builder.make_fine_tuning`.

  Returns:
    What was written: "way", "query", "tasks", "chance", "fine_tuning" (the
    options) and "initialisations": a list of {"name", "learner", "steps",
    "guarantee", "accuracy": {shot: {"mean", "low", "high", "tasks"}}}.

  Raises:
    RunError, PlanError: a run cannot be compared with the others, or the tasks
      cannot be drawn; one sentence, before anything is trained.
  """
  paths = _names(workdirs)
  configs = {name: build.read_config(path) for name, path in paths.items()}
  config = config or next(iter(configs.values()))
  for name, other in configs.items():
    with build.as_written(paths[name]):
      _check_network(name, other, config)
      _check_classes(name, other, config)
  way = describe.way_of(config)
  _check_way(way, shots)
  splits = splits or build.load_data(
      config, data_dir=data_dir, download=download
  )
  shape = splits.test.image_shape
  model = build.make_model(config, shape, way=way)
  tuned = build.make_fine_tuning(model, **options, fresh_head=False)
  fresh = dataclasses.replace(tuned, fresh_head=True)
  _check_tasks(config, splits.test, shots, tasks)
  starts = [
      Start(name=RANDOM, params=tuned.init(jax.random.key(config.seed)))
  ] + [
      _start(name, path, configs[name], fresh, shape)
      for name, path in paths.items()
  ]
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
  # One compilation for each number of shots: all networks have one shape.
  evaluator = training.Evaluator(tuned)
  scores: dict[str, dict[int, training.Score]] = {s.name: {} for s in starts}
  bar = tqdm.tqdm(
      total=len(starts) * len(drawn), unit="measurement", disable=None
  )
  with bar:
    for shot, chosen in drawn.items():
      for start in starts:
        bar.set_postfix_str(f"{start.name}, {shot} shots")
        scores[start.name][shot] = evaluator.score([start.params], chosen)
        bar.update()
  results = {
      "way": way,
      "query": config.evaluation.query,
      "tasks": len(next(iter(drawn.values())).rows),
      "chance": 1 / way,
      "data": splits.test.name,
      "fine_tuning": dict(options),
      "initialisations": [
          {
              "name": s.name,
              "learner": s.learner,
              "steps": s.steps,
              "guarantee": s.guarantee,
              "accuracy": {
                  str(shot): dataclasses.asdict(score)
                  for shot, score in scores[s.name].items()
              },
          }
          for s in starts
      ],
  }
  folder = pathlib.Path(out)
  files.write_json(folder / f"{RESULTS}.json", results)
  figure = draw(results)
  with files.replacing(folder / f"{RESULTS}.png") as beside:
    figure.savefig(beside, format="png", dpi=150)
  return results


# What is refused ------------------------------------------------------------


def _names(workdirs: Sequence[str]) -> dict[str, str]:
  """name -> folder: the folder's own name, or its path where two have one."""
  paths = [os.path.normpath(path) for path in workdirs]
  if not paths or len(set(paths)) < len(paths):
    raise errors.RunError(
        f"--workdir={','.join(workdirs)}: give the folder of every run once"
    )
  short = [pathlib.Path(path).absolute().name for path in paths]
  taken = [*short, RANDOM]
  return {
      path if taken.count(name) > 1 else name: path
      for path, name in zip(paths, short)
  }


def _network(config: build.Config) -> dict[str, Any]:
  """What of `config.model` makes the body."""
  options = dict(config.model.to_dict())
  options.pop("outputs", None)
  name = options.setdefault("name", "conv4")
  if name == "mlp":
    return {"name": name, "widths": tuple(options.get("widths") or ())}
  return options


def _check_network(
    name: str, config: build.Config, wanted: build.Config
) -> None:
  """Refuses runs without a head, and bodies that differ from the first."""
  learner = config.learner.get("name", "maml")
  if learner in build.HEADLESS:
    raise errors.RunError(
        f"run '{name}' is of learner.name={learner!r}, whose network has no"
        " head to fine-tune: leave it out"
    )
  if config.learner.get("per_step_norm"):
    raise errors.RunError(
        f"run '{name}' has learner.per_step_norm=True, norms of their own for"
        " every inner step, so that it is not one network: leave it out"
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
    name: str, config: build.Config, wanted: build.Config
) -> None:
  """Refuses runs that may have seen the test classes in training."""
  if config.data.name != wanted.data.name:
    raise errors.RunError(
        f"run '{name}' is of data.name={config.data.name!r} and the test tasks"
        f" of {wanted.data.name!r}: compare runs of one data set"
    )
  loader = importlib.import_module(f"episodic_dp.data.{config.data.name}").load
  for option, parameter in inspect.signature(loader).parameters.items():
    if option not in _DIVIDING:
      continue
    own, other = (
        c.data.options.get(option, parameter.default) for c in (config, wanted)
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
    config: build.Config,
    test: data.ArrayDataset,
    shots: Sequence[int],
    tasks: int | None,
) -> None:
  if tasks is not None and tasks < 1:
    raise errors.RunError(f"tasks={tasks} must be at least 1")
  way, query = describe.way_of(config), config.evaluation.query
  for shot in shots:
    try:
      evaluation.task_plan(test.hierarchy, way=way, shot=shot, query=query)
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
    config: build.Config,
    fresh: Any,
    shape: tuple[int, int, int],
) -> Start:
  """The network of a run's last checkpoint, its head kept where it fits."""
  checkpoints = training.Checkpoints(path, read_only=True)
  last = checkpoints.latest()
  if last is None:
    raise errors.RunError(
        f"{checkpoints.folder} has no checkpoint yet: let episodic-dp train go"
        " on until it has saved one"
    )
  learner = build.make_learner(config, shape)
  params, _ = checkpoints.restore(last, learner.init(jax.random.key(0)))
  if set(params) == {"model", "rates"}:  # Inner rates that were learned.
    params = params["model"]
  kind = config.learner.get("name", "maml")
  fits = describe.way_of(config) == fresh.model.way
  if kind == "supervised" or not fits:
    params = fresh.with_fresh_head(params)
  return Start(
      name=name,
      params=params,
      learner=kind,
      steps=last,
      guarantee=_stated(path),
  )


def _stated(path: str) -> dict[str, Any] | None:
  """The guarantees of a run's guarantee.json, None where it has no such file.

  Raises:
    RunError: the file is damaged.
  """
  file = pathlib.Path(path) / reporting.GUARANTEE
  try:
    levels = json.loads(file.read_text(encoding="utf-8"))["guarantees"]
    return {
        level: {
            key: g[key]
            for key in ("epsilon", "delta", "neighbours", "steps", "caveat")
        }
        for level, g in levels.items()
    }
  except FileNotFoundError:
    return None
  except (OSError, ValueError, KeyError, TypeError, AttributeError) as e:
    raise errors.RunError(
        f"{file} cannot be read ({type(e).__name__}): resume the run, which"
        " writes it again"
    ) from e


# What is shown --------------------------------------------------------------


def table(results: Mapping[str, Any]) -> str:
  """Accuracies for each initialisation and number of shots, and guarantees."""
  starts = results["initialisations"]
  shots = list(starts[0]["accuracy"])
  rows, lines = [], []
  for start in starts:
    cells = [
        training.Accuracy(**start["accuracy"][shot]) for shot in shots
    ]
    rows.append([start["name"], start["learner"] or "-", *cells])
    lines += [f"  {start['name']}: {text}" for text in _guarantees(start)]
  header = ["initialisation", "learner", *(_shots(s) for s in shots)]
  return "\n".join([
      tables.text(header, rows),
      f"{results['way']}-way, {results['tasks']} tasks of {results['data']},"
      f" chance {100 * results['chance']:.0f} %; guarantees as the runs state"
      " them:",
      *lines,
  ])


def _shots(shot: str) -> str:
  return f"{shot} shot" + ("" if shot == "1" else "s")


def _guarantees(start: Mapping[str, Any]) -> list[str]:
  """Sentences on what protects the data that an initialisation is from."""
  if start["learner"] is None:
    return ["no data were used"]
  if start["guarantee"] is None:
    return ["states no guarantee (it has no guarantee.json)"]
  lines = [
      f"epsilon = {report.rounded_up(g['epsilon'])} at delta ="
      f" {g['delta']:g} ({g['neighbours']}; {g['steps']} steps)"
      for g in start["guarantee"].values()
      if isinstance(g["epsilon"], float)
  ]
  caveats = (g["caveat"] for g in start["guarantee"].values())
  return (lines or ["no formal guarantee"]) + [
      text for text in dict.fromkeys(caveats) if text and lines
  ]


def draw(results: Mapping[str, Any]):
  """A matplotlib figure: accuracy against shots, a line for each start."""
  # Late, and without pyplot: no display is needed.
  from matplotlib import figure as figure_lib
  from matplotlib import ticker

  figure = figure_lib.Figure(figsize=(7.2, 4.8), layout="constrained")
  axes = figure.subplots()
  for start in results["initialisations"]:
    points = {int(k): v for k, v in start["accuracy"].items()}
    shots = sorted(points)
    means = [100 * points[s]["mean"] for s in shots]
    halves = [100 * (points[s]["high"] - points[s]["mean"]) for s in shots]
    random = start["learner"] is None
    axes.errorbar(
        shots, means, yerr=halves, capsize=3, marker="o", markersize=4,
        label=_label(start), color="grey" if random else None,
        linestyle="--" if random else "-",
    )
  axes.axhline(
      100 * results["chance"], color="grey", linestyle=":", label="chance"
  )
  options = results["fine_tuning"]
  what = "whole network" if options["body"] else "head"
  axes.set_title(
      f"{results['way']}-way test tasks of {results['data']}, {what} fine-tuned"
      f" by {options['steps']} steps of {options['optimizer']}",
      fontsize=10,
  )
  axes.set_xlabel("support images of each class")
  axes.set_ylabel("accuracy (%), with 95 % intervals")
  axes.xaxis.set_major_locator(ticker.FixedLocator(shots))
  axes.set_ylim(0, 100)
  axes.grid(alpha=0.3)
  axes.legend(
      loc="upper center", bbox_to_anchor=(0.5, -0.14), ncols=2, fontsize=8,
      frameon=False,
  )
  return figure


def _label(start: Mapping[str, Any]) -> str:
  """The name, the learner, and the guarantee of the first level with one."""
  if start["learner"] is None:
    return "random initialisation"
  text = f"{start['name']} ({start['learner']})"
  for level, g in (start["guarantee"] or {}).items():
    if isinstance(g["epsilon"], float):
      caveat = ", with a caveat" if g["caveat"] else ""
      return (
          f"{text}: ε = {report.rounded_up(g['epsilon'])} per {level}{caveat}"
      )
  return f"{text}: no guarantee"


def _whole_numbers(text: Sequence[str]) -> list[int]:
  try:
    return [int(part) for part in text]
  except ValueError as e:
    raise errors.RunError(
        f"--shots={','.join(text)}: give whole numbers such as 1,5,10"
    ) from e


def main(argv: Sequence[str]) -> None:
  del argv
  values = flags.FLAGS
  devices.log_devices()
  results = fine_tune(
      values.workdir,
      values.out,
      shots=_whole_numbers(values.shots),
      config=values.config,
      data_dir=values.data_dir,
      download=values.download,
      tasks=values.tasks,
      steps=values.steps,
      rate=values.rate,
      body=values.body,
      optimizer=values.optimizer,
  )
  print(table(results))


def define_flags() -> None:
  """Of the runs, the test tasks, and how they are fine-tuned on."""
  flags.DEFINE_list("workdir", None, "Folders of the runs.", required=True)
  shared_flags.define_out("Folder of the results.", required=True)
  shared_flags.define_config(
      required=False, what="Whose test tasks; by default the first run's."
  )
  flags.DEFINE_list(
      "shots", ["1", "5", "10", "15", "20"], "Support images of each class."
  )
  flags.DEFINE_integer(
      "tasks", None, "Test tasks; by default config.evaluation.test_tasks."
  )
  flags.DEFINE_integer("steps", 30, "Steps on the support set.")
  flags.DEFINE_float("rate", 0.1, "Of these steps.")
  flags.DEFINE_bool("body", True, "Train all layers, not the head alone.")
  flags.DEFINE_enum("optimizer", "sgd", ("adam", "sgd"), "Of these steps.")
  shared_flags.define_data()
