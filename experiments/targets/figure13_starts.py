"""Five initialisations of test tasks on CIFAR-FS: the second Figure 13 of [M].

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
tasks for all, with their 95 % interval, one key for each start.
"""

from collections.abc import Mapping
import dataclasses
import pathlib
import time
from typing import Any

from episodic_dp import training
from episodic_dp.accounting import report
from episodic_dp.analysis import initialisations
from episodic_dp.config import RunConfig
from episodic_dp.config.presets import cifar_fs_supervised
from episodic_dp.output import files
from episodic_dp.output import plotting
from experiments import provenance
from experiments import runs as runs_lib
from experiments.targets import budgets
from experiments.targets import panels

EPSILON, DELTA = 1.5, 1e-6
CHANCE = 1 / budgets.WAY
_RATE = 0.004  # Of participants.
_TITLES = {
    initialisations.RANDOM: "random",
    "pre_training": "pre-training",
    "dp_pre_training": "DP pre-training",
    "maml": "MAML",
    "dp_maml": "DP-MAML",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class FineTuning(runs_lib.Run):
  """The measurement of runs that are finished.

  Attributes:
    of: their names.
    shots: of the test tasks.
    tasks: how many.
  """

  of: tuple[str, ...] = ()
  shots: tuple[int, ...] = ()
  tasks: int = 600
  program: str = "fine-tune"

  def command(self) -> str:
    """See `Run`."""
    folders = ",".join(f"DIR/{name}" for name in self.of)
    return super().command().replace(
        "--workdir=DIR",
        f"--shots={','.join(map(str, self.shots))} --tasks={self.tasks}"
        f" --workdir={folders} --out=DIR",
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Size:
  """How large the runs of a scale are; lots are of images."""

  width: int
  maml: str
  steps: int
  lot: int
  lots: int
  trained: tuple[int, ...] = (1,)
  shots: tuple[int, ...]
  tasks: int


_SIZES = {
    "cpu": _Size(
        width=8,
        maml="participants=40000,inner_steps=1,query=1",
        steps=100,
        lot=400,
        lots=200,
        shots=(1, 5, 20),
        tasks=200,
    ),
    "full": _Size(
        width=48,
        maml="participants=400000,inner_steps=5,query=15",
        steps=250,
        lot=2000,
        lots=1920,
        trained=(1, 5),
        shots=(1, 5, 10, 15, 20),
        tasks=600,
    ),
}


def runs(scale: str) -> list[runs_lib.Run]:
  """Four trainings, or six, and the fine-tuning of them."""
  if scale == "smoke":
    return _trial()
  size = _SIZES[scale]
  rate = size.lot / cifar_fs_supervised.IMAGES
  epochs = size.lots * rate
  supervised = [
      _run(
          name,
          "cifar_fs_supervised",
          f"width={size.width},lot={size.lot},epochs={epochs!r}",
          noise=_noise(rate, size.lots) if private else None,
          every=size.lots // 10,
      )
      for name, private in (("pre_training", False), ("dp_pre_training", True))
  ]
  found = list(supervised)
  for shot in size.trained:
    mamls = [
        _run(
            f"{name}_{shot}_shot",
            "cifar_fs",
            f"shot={shot},width={size.width},steps={size.steps},{size.maml}",
            noise=_noise(_RATE, size.steps) if private else None,
            every=size.steps // 10,
        )
        for name, private in (("maml", False), ("dp_maml", True))
    ]
    found += mamls
    found.append(_fine_tuning(supervised + mamls, shot, size.shots, size.tasks))
  return found


def _noise(rate: float, steps: int) -> float:
  return budgets.noise_multiplier(rate, steps, EPSILON, DELTA)


def _run(
    name: str,
    config: str,
    arguments: str,
    *,
    noise: float | None,
    every: int,
    **more: Any,
) -> runs_lib.Run:
  fields: dict[str, Any] = {
      "delta": DELTA,
      "model.norm": "group",
      "checkpoint_every": every,
      "evaluation.every": every,
  }
  if noise is not None:
    fields["mechanism.noise_multiplier"] = noise
  return runs_lib.Run(
      name=f"start_{name}",
      config=config,
      arguments=f"private={int(noise is not None)},{arguments}",
      overrides=fields | more,
      labels=dict(start=name, private=noise is not None),
  )


def _fine_tuning(
    of: list[runs_lib.Run],
    trained: int,
    shots: tuple[int, ...],
    tasks: int,
) -> FineTuning:
  """Of runs whose last defines the test tasks."""
  return FineTuning(
      name=f"starts_{trained}_shot",
      config=of[-1].config,
      arguments=of[-1].arguments,
      overrides=of[-1].overrides,
      labels=dict(trained=trained),
      of=tuple(run.name for run in of),
      shots=shots,
      tasks=tasks,
  )


def _trial() -> list[runs_lib.Run]:
  """One start and its fine-tuning, on built-in data."""
  few = {"evaluation.validation_tasks": 8, "evaluation.test_tasks": 16}
  start = _run(
      "dp_maml_1_shot", "glyphs", "participants=200,width=2,steps=2,size=16",
      noise=1.0, every=1, **few,
  )  # fmt: skip
  return [start, _fine_tuning([start], 1, (1,), 4)]


def finish(
    run: runs_lib.Run,
    folder: str,
    *,
    shared: dict[str, Any],
    data_dir: str | None,
) -> dict[str, Any]:
  """The outcome of a run, which is taken unless that is done already.

  Raises:
    RunError: what is to be fine-tuned is not trained yet.
  """
  done = runs_lib.load(run, folder)
  if done is not None:
    return done
  if not isinstance(run, FineTuning):
    loaded = shared.setdefault("runs", runs_lib.Shared())
    return runs_lib.finish(run, folder, shared=loaded, data_dir=data_dir)
  below = pathlib.Path(folder)
  missing = [
      name for name in run.of if not (below / name / runs_lib.OUTCOME).exists()
  ]
  if missing:
    raise training.RunError(
        f"--only={run.name} measures {', '.join(missing)}, which"
        f" {below} does not hold: train with --only={','.join(missing)} first"
    )
  began = time.process_time()
  entry = initialisations.fine_tune(
      [below / name for name in run.of],
      below / run.name,
      shots=run.shots,
      config=RunConfig.parse(run.load(), data_dir=data_dir),
      data_dir=data_dir,
      tasks=run.tasks,
      steps=30,
      rate=0.1,
      body=True,
      optimizer="sgd",
  ) | {
      "labels": dict(run.labels),
      "command": run.command(),
      "code": [provenance.code()],
      "cpu_seconds": round(time.process_time() - began, 1),
  }
  files.write_json(below / run.name / runs_lib.OUTCOME, entry)
  return entry


def _measured(
    outcomes: panels.Outcomes,
) -> dict[int, list[Mapping[str, Any]]]:
  """Shots of the meta-training -> its initialisations, as they are drawn."""
  return {
      o["labels"]["trained"]: o["initialisations"]
      for o in outcomes.values()
      if "initialisations" in o
  }


def _title(start: Mapping[str, Any], trained: int) -> str:
  name = start["name"].removeprefix("start_").removesuffix(f"_{trained}_shot")
  return _TITLES[name]


def table(outcomes: panels.Outcomes) -> tuple[list[str], list[list[str]]]:
  """A row per initialisation and meta-training."""
  measured = _measured(outcomes)
  shots = list(dict.fromkeys(
      shot for starts in measured.values() for shot in starts[0]["accuracy"]
  ))
  header = [
      "initialisation",
      "MAML trained with shots",
      *(f"tested with {shot}" for shot in shots),
      "clearly below the best when tested with",
      "steps",
      "guarantee",
      "of CPU time",
  ]
  rows = []
  for trained, starts in measured.items():
    best = {
        shot: max(
            (start["accuracy"][shot] for start in starts),
            key=lambda score: score["mean"],
        )
        for shot in shots
    }
    for start in starts:
      scores = start["accuracy"]
      below = [s for s in shots if scores[s]["high"] < best[s]["low"]]
      rows.append([
          _title(start, trained),
          str(trained),
          *(
              f"{100 * scores[s]['mean']:.1f} % ±"
              f" {panels.half(scores[s]):.1f}"
              for s in shots
          ),
          ", ".join(below),
          str(start["steps"]),
          _guarantee(start),
          panels.seconds([outcomes[start["name"]]], "cpu_seconds")
          if start["name"] in outcomes
          else "",
      ])
  return header, rows


def _guarantee(start: Mapping[str, Any]) -> str:
  """The first level that has one, which is the unit that is clipped."""
  for level, stated in (start["guarantee"] or {}).items():
    if isinstance(stated["epsilon"], float):
      return f"{level}: {report.rounded_up(stated['epsilon'])}"
  return "no data used" if start["learner"] is None else "none"


def draw(outcomes: panels.Outcomes, figure: Any) -> None:
  """Accuracy over shots, a panel for each meta-training."""
  measured = _measured(outcomes)
  if not measured:
    return
  every = figure.subplots(1, len(measured), sharey=True, squeeze=False)[0]
  for axes, (trained, starts) in zip(every, measured.items()):
    for number, start in enumerate(starts):
      scores = {int(s): score for s, score in start["accuracy"].items()}
      axes.errorbar(
          [*scores],
          [100 * s["mean"] for s in scores.values()],
          yerr=[panels.half(s) for s in scores.values()],
          capsize=2,
          label=_title(start, trained),
          **plotting.series(number),
      )
    axes.axhline(100 * CHANCE, label="chance", **plotting.REFERENCE)
    axes.set_title(f"MAML trained with {trained} shot{'s' * (trained > 1)}")
    axes.set_xlabel("shots (images of a class to adapt to)")
    plotting.ticks(axes.xaxis, [*scores])
  every[0].set_ylabel("test accuracy (%), 95 % interval")
  every[0].set_ylim(0, 100)
  every[0].legend(loc="upper left", fontsize=8)


def finding(outcomes: panels.Outcomes) -> str:
  """All starts at the fewest shots, best first."""
  found = []
  for trained, starts in _measured(outcomes).items():
    shot = next(iter(starts[0]["accuracy"]))
    scores = sorted(
        ((s["accuracy"][shot], _title(s, trained)) for s in starts),
        key=lambda pair: -pair[0]["mean"],
    )
    line = ", ".join(
        f"{title} {100 * score['mean']:.1f} % ± {panels.half(score):.1f}"
        for score, title in scores
    )
    best = scores[0][1]
    order = "" if best == "MAML" else f" ({best} is best here, MAML in [M])"
    found.append(f"MAML of {trained}, tested with {shot}: {line}{order}")
  return f"Shots: {'; '.join(found)}." if found else ""
