"""Five initialisations of test tasks on CIFAR-FS: second Figure 13 of [M]."""

from collections.abc import Mapping
import dataclasses
import pathlib
import time
from typing import Any

import jax

from episodic_dp import options
from episodic_dp import run as run_lib
from episodic_dp import training
from episodic_dp.accounting import report
from episodic_dp.config.presets import cifar_fs_supervised
from episodic_dp.learners import naming
from episodic_dp.models import builder
from episodic_dp.training import checkpoint
from episodic_dp.training import reporting
from experiments import runs as runs_lib
from experiments.targets import budgets
from experiments.targets import panels

_RANDOM = "random"
_RATE = 0.004  # Of participants.
_TITLES = {
    _RANDOM: "random",
    "pre_training": "pre-training",
    "dp_pre_training": "DP pre-training",
    "maml": "MAML",
    "dp_maml": "DP-MAML",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class FineTuning(runs_lib.Computed):
  """Fine-tuning of finished runs, and of a random start, on the test tasks.

  Attributes:
    of: names of the runs.
    shots: support images of each class.
    tasks: number of test tasks.
  """

  of: tuple[str, ...] = ()
  shots: tuple[int, ...] = ()
  tasks: int = 600
  target: str = "figure13_starts"


# Scale -> widths, steps and so on; lots are of images.
_SIZES: dict[str, dict[str, Any]] = {
    "cpu": dict(
        width=8, maml="participants=40000,inner_steps=1,query=1", steps=100,
        lot=400, lots=200, trained=(1,), shots=(1, 5, 20), tasks=200,
    ),
    "full": dict(
        width=48, maml="participants=400000,inner_steps=5,query=15", steps=250,
        lot=2000, lots=1920, trained=(1, 5), shots=(1, 5, 10, 15, 20),
        tasks=600,
    ),
}


def runs(scale: str) -> list[runs_lib.Run]:
  """Return the trainings, and the fine-tuning of them."""
  if scale == "smoke":
    start = _run(
        "dp_maml_1_shot", "glyphs", "participants=200,width=2,steps=2,size=16",
        rate=_RATE, steps=2, private=True, **budgets.SMALL,
    )
    return [start, _fine_tuning([start], 1, (1,), 4, scale)]
  size = _SIZES[scale]
  rate = size["lot"] / cifar_fs_supervised.IMAGES
  supervised = []
  for name, private in (("pre_training", False), ("dp_pre_training", True)):
    supervised.append(_run(
        name, "cifar_fs_supervised",
        f"width={size['width']},lot={size['lot']},"
        f"epochs={size['lots'] * rate!r}",
        rate=rate, steps=size["lots"], private=private,
    ))
  found = list(supervised)
  for shot in size["trained"]:
    mamls = []
    for name, private in (("maml", False), ("dp_maml", True)):
      mamls.append(_run(
          f"{name}_{shot}_shot", "cifar_fs",
          f"shot={shot},width={size['width']},steps={size['steps']},"
          f"{size['maml']}",
          rate=_RATE, steps=size["steps"], private=private,
      ))
    found += mamls
    found.append(_fine_tuning(
        supervised + mamls, shot, size["shots"], size["tasks"], scale
    ))
  return found


def _run(
    name: str,
    config: str,
    arguments: str,
    *,
    rate: float,
    steps: int,
    private: bool,
    **more: Any,
) -> runs_lib.Run:
  fields = {"delta": budgets.DELTA, "model.norm": "group"}
  if private:
    fields["mechanism.noise_multiplier"] = budgets.noise_multiplier(
        rate, steps, budgets.BUDGET, budgets.DELTA
    )
  return runs_lib.Run(
      name=f"start_{name}",
      config=config,
      arguments=f"private={int(private)},{arguments}",
      overrides=fields | budgets.every(steps) | more,
      labels=dict(start=name, private=private),
  )


def _fine_tuning(
    of: list[runs_lib.Run],
    trained: int,
    shots: tuple[int, ...],
    tasks: int,
    scale: str,
) -> FineTuning:
  """Describe the fine-tuning of runs whose last defines the test tasks."""
  return FineTuning(
      name=f"starts_{trained}_shot",
      config=of[-1].config,
      arguments=of[-1].arguments,
      overrides=of[-1].overrides,
      labels=dict(trained=trained),
      of=tuple(run.name for run in of),
      shots=shots,
      tasks=tasks,
      scale=scale,
  )


def finish(
    run: runs_lib.Run, folder: str, *, shared: runs_lib.Shared, **where: Any
) -> dict[str, Any]:
  """Train a start, or fine-tune those that are trained.

  Raises:
    RunError: a run to fine-tune is not trained yet.
  """
  if not isinstance(run, FineTuning):
    return runs_lib.finish(run, folder, shared=shared, **where)
  below = pathlib.Path(folder)
  missing = []
  for name in run.of:
    if not (below / name / runs_lib.OUTCOME).exists():
      missing.append(name)
  if missing:
    raise training.RunError(
        f"--only={run.name}: expected the runs {','.join(missing)} in {below}"
    )
  began = time.process_time()
  found = _fine_tune(run, below, where["data_dir"])
  seconds = round(time.process_time() - began, 1)
  return runs_lib.record(run, folder, found | {"cpu_seconds": seconds})


def _fine_tune(
    run: FineTuning, below: pathlib.Path, data_dir: str | None
) -> dict[str, Any]:
  """Fine-tune every start for 30 steps on each test task's support set.

  A head that was trained for tasks of as many classes is kept; any other is
  replaced by zeros.
  """
  config = run.load().resolved(data_dir)
  splits = config.data.load(data_dir=data_dir)
  shape = splits.test.image_shape
  tuned = naming.make_fine_tuning(
      builder.build(config.model, config.way, shape),
      options.FineTuningOptions(body=True),
      fresh_head=False,
  )
  params = {_RANDOM: tuned.init(jax.random.key(config.seed))}
  entries: list[dict[str, Any]] = [
      dict(name=_RANDOM, learner=None, steps=0, guarantee=None, accuracy={})
  ]
  for name in run.of:
    of, learned = _network(below / name, shape)
    if of["learner"] == options.SUPERVISED:
      learned = tuned.with_fresh_head(learned)
    params[name] = learned
    entries.append(dict(name=name, **of, accuracy={}))
  evaluator = training.Evaluator(tuned)
  for shot in run.shots:
    tasks = training.sample_tasks(
        splits.test, way=config.way, shot=shot, query=config.evaluation.query,
        count=run.tasks, seed=config.evaluation.seed + 1,
    )
    for entry in entries:
      score = evaluator.score([params[entry["name"]]], tasks)
      entry["accuracy"][str(shot)] = dataclasses.asdict(score)
  return {"tasks": run.tasks, "initialisations": entries}


def _network(
    folder: pathlib.Path, shape: tuple[int, ...]
) -> tuple[dict[str, Any], Any]:
  """Return the facts of a finished run, and the weights of its network."""
  checkpoints, steps = checkpoint.latest(folder)
  config = run_lib.Run.read(folder)
  learner, _ = config.make_learners(shape, None)
  params, _ = checkpoints.restore(steps, learner.init(jax.random.key(0)))
  facts = dict(
      learner=config.learner.name,
      steps=steps,
      guarantee=reporting.guarantees(folder, "epsilon") or None,
  )
  if "model" in params:  # Beside it are rates or scales of the learner.
    params = params["model"]
  return facts, params


def _measured(
    outcomes: panels.Outcomes,
) -> dict[int, list[Mapping[str, Any]]]:
  """Return shots of the meta-training -> its initialisations."""
  found = {}
  for outcome in outcomes.values():
    if "initialisations" in outcome:
      found[outcome["labels"]["trained"]] = outcome["initialisations"]
  return found


def _title(start: Mapping[str, Any], trained: int) -> str:
  name = start["name"].removeprefix("start_").removesuffix(f"_{trained}_shot")
  return _TITLES[name]


def table(outcomes: panels.Outcomes) -> panels.Table:
  """Return a row per initialisation and meta-training."""
  measured = _measured(outcomes)
  shots: dict[str, Any] = {}
  for starts in measured.values():
    shots.update(starts[0]["accuracy"])
  rows = []
  for trained, starts in measured.items():
    for start in starts:
      rows.append([
          _title(start, trained),
          str(trained),
          *(panels.accuracy([start], shot) for shot in shots),
          str(start["steps"]),
          _guarantee(start),
      ])
  header = [
      "initialisation",
      "MAML trained with shots",
      *map("tested with {}".format, shots),
      "steps",
      "guarantee",
  ]
  return header, rows


def _guarantee(start: Mapping[str, Any]) -> str:
  """Return the first level with a guarantee, the unit that is clipped."""
  for level, stated in (start["guarantee"] or {}).items():
    if isinstance(stated["epsilon"], float):
      return f"{level}: {report.rounded_up(stated['epsilon'])}"
  if start["learner"] is None:
    return "no data used"
  return "none"


def draw(outcomes: panels.Outcomes, figure: Any) -> None:
  """Plot accuracy over shots, a panel for each meta-training."""
  measured = _measured(outcomes)
  every = figure.subplots(1, max(len(measured), 1), squeeze=False)[0]
  for axes, (trained, starts) in zip(every, measured.items()):
    lines: dict[str, list[panels.Point]] = {}
    for start in starts:
      points = lines[_title(start, trained)] = []
      for shot in start["accuracy"]:
        points.append((int(shot), *panels.interval([start], shot)))
    panels.draw_lines(
        axes, lines, "shots (images of a class to adapt to)",
        chance=budgets.CHANCE,
    )
    title = f"MAML trained with {trained} shots"
    if trained == 1:
      title = "MAML trained with 1 shot"
    axes.set_title(title)


TARGETS = {
    "figure13_starts": panels.Target(
        title="Five initialisations of test tasks on CIFAR-FS: the second"
        " Figure 13 of [M]",
        about="""\
[M] is "Meta-Learning with Differential Privacy", section 6.5: tasks of unseen
classes begin with random weights, with those of a network trained for all
training classes at once (pre-training), the same by DP-SGD, or with those of
MAML and DP-MAML, and are trained for 30 steps on their support sets. Its text
states no number: MAML is best, DP-MAML is mostly above both pre-trainings and
close to them when there are many shots, random is worst. The two private runs
spend the same here, (1.5, 1e-6), but for different units: DP-MAML for a
participant, who is a task of public images, DP pre-training for an image, of
which a participant would hold many. All have one network, a narrow Conv4 with
norms by group at cpu scale (VGGNet in [M]), and pre-training sees the 64
training classes, not the 16 for validation too. Accuracies are of the same test
tasks for all, with their 95 % interval, one key for each start.""",
        runs=runs, table=table, draw=draw, finish=finish,
    )
}
