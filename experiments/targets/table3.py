"""Table 3 of DP-MAML: few-shot accuracy with a guarantee for participants."""

import dataclasses
from typing import Any

from episodic_dp import plan as plan_lib
from episodic_dp.output import plotting
from experiments import published
from experiments import runs as runs_lib
from experiments.targets import budgets
from experiments.targets import panels

EPSILON, KEYS = 0.5, 3
MODELS = ("single", "ensemble", "untrained", "untrained_ensemble")


# A network that is trained once a key and tested on some cells: the data set,
# which is its preset too; classes of a task, and images of a class that test
# tasks have; who trains, tasks expected of a private step, and its steps;
# arguments of the preset, and further fields. "plain" has the arguments of the
# run without privacy that differ, where there is one.
_Model = dict[str, Any]
_AVERAGED = {"optimizer.average": 0.9}
_COLOURED = _AVERAGED | {
    "learner.metric_scale": 0.02,
    "augmentation.flip": True,
    "optimizer.final_rate": 0.001,
}
_OURS: dict[str, tuple[_Model, ...]] = {
    "cpu": (
        dict(
            data="omniglot", way=5, shots=(1,), participants=400_000,
            tasks=1600, steps=500, arguments=dict(width=16),
            overrides=_AVERAGED,
            plain=dict(participants=16_000, steps=2000),
        ),
        dict(
            data="omniglot", way=20, shots=(1,), participants=400_000,
            tasks=800, steps=250, arguments=dict(width=16),
            overrides=_AVERAGED,
            plain=dict(participants=16_000, steps=1000, rate=0.002),
        ),
        dict(
            data="cifar_fs", way=5, shots=(1, 5), participants=400_000,
            tasks=1600, steps=250, arguments=dict(width=32, query=2),
            overrides=_COLOURED,
            plain=dict(participants=16_000, steps=1500),
        ),
        dict(
            data="mini_imagenet", way=5, shots=(1, 5), participants=100_000,
            tasks=1600, steps=125, arguments=dict(width=24, query=2, size=42),
            overrides=_COLOURED,
            plain=dict(participants=16_000, steps=1000, rate=0.004),
        ),
    ),
    "full": (
        *(
            dict(
                data="omniglot", way=way, shots=(1,), participants=400_000,
                tasks=1600, steps=1000, arguments=dict(width=64, query=4),
                overrides=_AVERAGED,
                plain=dict(participants=400_000, rate=0.004, steps=1000),
            )
            for way in (5, 20)
        ),
        dict(
            data="cifar_fs", way=5, shots=(1, 5), participants=400_000,
            tasks=1600, steps=1000, arguments=dict(width=64, query=15),
            overrides=_COLOURED,
            plain=dict(participants=400_000, rate=0.004, steps=1000),
        ),
        dict(
            data="mini_imagenet", way=5, shots=(1, 5), participants=100_000,
            tasks=1600, steps=250, arguments=dict(width=64, query=15),
            overrides=_COLOURED,
            plain=dict(participants=100_000, rate=0.016, steps=250),
        ),
    ),
}
# The paper's learner, by the kind of its clipping.
_MAML = {"learner.name": "maml", "optimizer.rate": 0.02}
_CLIPPING = {
    "quantile": {
        "mechanism.clip_norm": 15.0,
        "mechanism.clipping": "private_quantile",
        "mechanism.clip_quantile": 0.5,
        "mechanism.clip_rate": 0.2,
        "mechanism.count_noise": 20.0,
    },
    # The paper's: the 90th percentile of the last norms.
    "percentile": {
        "mechanism.clip_norm": 30.0,  # It only falls.
        "mechanism.clipping": "percentile_window",
        "mechanism.clip_percentile": 90.0,
        "mechanism.clip_window": 1600,
    },
}
_THEIRS: dict[str, dict[str, Any]] = {
    "cpu": dict(
        tasks=800, steps=125, keys=1, arguments=dict(width=8, inner_steps=1)
    ),
    "full": dict(
        tasks=1600, steps=250, arguments=dict(width=64, inner_steps=5)
    ),
}


def models(scale: str) -> list[_Model]:
  """Return our networks, and those with the paper's learner."""
  theirs = [
      dict(
          data="omniglot", way=5, shots=(1,), participants=400_000,
          overrides=_MAML | clipping, kind=name, **_THEIRS[scale],
      )
      for name, clipping in _CLIPPING.items()
  ]
  return [*_OURS[scale], *theirs]


def runs(scale: str) -> list[runs_lib.Run]:
  """Return every key of every model, the first keys first."""
  if scale == "smoke":
    run = budgets.run(
        "glyphs", config="glyphs", tasks=16, steps=2, width=2, epsilon=8,
        labels=dict(data="glyphs", way=5, shot=1, private=True, key=0),
        overrides={"learner.name": "protonet", "evaluation.query": 2},
    )
    return [dataclasses.replace(run, shots=(2,), controls=True)]
  return [
      _run(model, key, private)
      for key in range(KEYS)
      for model in models(scale)
      for private in (True, False)
      if key < model.get("keys", KEYS) and (private or "plain" in model)
  ]


def _run(model: _Model, key: int, private: bool) -> runs_lib.Run:
  arguments = model["arguments"] | dict(private=int(private))
  overrides = {
      "learner.name": "protonet",
      "seed": key,
      "evaluation.validation_tasks": 300,
      **model["overrides"],
  }
  if model["data"] == "omniglot":
    arguments["way"] = model["way"]
  if private:
    rate = model["tasks"] / model["participants"]
    arguments |= dict(
        participants=model["participants"], rate=rate, steps=model["steps"]
    )
    overrides["mechanism.noise_multiplier"] = budgets.noise_multiplier(
        rate, model["steps"], EPSILON, budgets.DELTA
    )
  else:
    arguments |= model["plain"]
  labels: dict[str, Any] = dict(
      data=model["data"], way=model["way"], shot=1, private=private
  )
  kind = ""
  if "kind" in model:
    labels["clipping"] = model["kind"]
    kind = f"maml_{model['kind']}_"
  form = "private" if private else "plain"
  return runs_lib.Run(
      name=f"{model['data']}_{model['way']}_way_{kind}{form}_{key}",
      config=model["data"],
      arguments=budgets.text(arguments),
      overrides=overrides | budgets.every(arguments["steps"]),
      labels=labels | {"key": key},
      shots=[shot for shot in model["shots"] if shot != 1],
      controls=True,
  )


def cells(outcomes: panels.Outcomes) -> list[list[panels.Outcome]]:
  """Return the runs of each cell, whose accuracy is that of its shot."""
  found: list[list[panels.Outcome]] = []
  for same in panels.group(outcomes, "key"):
    first = same[0]["labels"]["shot"]
    for shot in dict.fromkeys([first, *map(int, same[0].get("tests", ()))]):
      found.append([
          {
              **o,
              "accuracy": o.get("tests", {}).get(str(shot), o["accuracy"]),
              "labels": o["labels"] | {"shot": shot},
          }
          for o in same
      ])
  order = {cell: at for at, cell in enumerate(published.TABLE3)}
  return sorted(
      found, key=lambda same: order.get(published.cell(same[0]["labels"]), 0)
  )


def _published(labels: dict[str, Any]) -> float | None:
  """Return the accuracy in the paper, in percent."""
  found = published.TABLE3.get(published.cell(labels), (None, None))
  return found[labels["private"]]


def rows(outcomes: panels.Outcomes) -> dict[str, Any]:
  """Return the cells, for the JSON: percent, means over the keys."""
  return {"rows": [_row(same) for same in cells(outcomes)]}


def _row(same: panels.Same) -> dict[str, Any]:
  labels, config = dict(same[0]["labels"]), same[0]["config"]
  del labels["key"]
  spent = same[0]["epsilon"].get(budgets.LEVEL, {}) if labels["private"] else {}
  row = labels | {
      "learner": config["learner"]["name"],
      "width": config["model"]["width"],
      "epsilon": spent.get("epsilon"),
      "delta": spent.get("delta"),
      "tasks": _tasks(same),
      "keys": len(same),
      "clipping": labels.get("clipping", "fixed"),
      "published": _published(labels),
  }
  for model in MODELS:
    if model in same[0]["accuracy"]:
      name = "accuracy" if model == "single" else model
      row[name] = round(panels.percent(same, model), 4)
      row[f"{name}_of_keys"] = [
          round(panels.percent([o], model), 4) for o in same
      ]
  # Over test tasks, which all keys share.
  halves = [panels.half(o["accuracy"]["single"]) for o in same]
  row["half_interval"] = round(sum(halves) / len(halves), 2)
  return row


def _tasks(same: panels.Same) -> int:
  """Return the expected number of tasks that a run has sampled."""
  config = same[0]["config"]
  stage = plan_lib.parse_stage(config["plan"]["stages"][0])
  assert isinstance(stage, plan_lib.Poisson)  # As all runs here draw.
  units = config["data"]["options"]["participants"]
  return round(stage.p * units) * same[0]["steps"]


_LEARNERS = {"protonet": "prototypes", "maml": "MAML"}
_CLIPPED = {
    "percentile": "MAML, clipped at a percentile: no guarantee",
    "quantile": "MAML, clipped at a private quantile",
}


def _learner(same: panels.Same) -> str:
  name = same[0]["config"]["learner"]["name"]
  clipping = same[0]["labels"].get("clipping")
  return _CLIPPED.get(clipping, _LEARNERS[name])


def _stated(same: panels.Same) -> str:
  value = _published(same[0]["labels"])
  return "-" if value is None else f"{value} %"


def table(outcomes: panels.Outcomes) -> panels.Table:
  """Return a row a cell, private and not."""
  return panels.table({
      "task": lambda same: published.task(*published.cell(same[0]["labels"])),
      "learner": _learner,
      "tasks trained on, expected": lambda same: f"{_tasks(same):,}",
      "private": panels.is_private,
      "published": _stated,
      panels.SINGLE: panels.accuracy,
      "ensemble of the best": panels.ensemble,
      "untrained": panels.untrained,
      "untrained ensemble": (
          lambda same: panels.accuracy(same, "untrained_ensemble")
      ),
      budgets.EPSILON: budgets.spent,
      "keys": lambda same: str(len(same)),
      "CPU time of a key": panels.cpu_seconds,
  }, cells(outcomes))


def _series(outcome: panels.Outcome) -> str:
  labels = outcome["labels"]
  kind = "private" if labels["private"] else "not private"
  return _CLIPPED.get(labels.get("clipping"), kind)


def draw(outcomes: panels.Outcomes, figure: Any) -> None:
  """Plot a line a cell: ours, private and not, and what is published."""
  axes = figure.subplots()
  found = [outcome for same in cells(outcomes) for outcome in same]

  def name(outcome: panels.Outcome) -> str:
    return published.task(*published.cell(outcome["labels"]))

  names = panels.dots(axes, found, name, _series)
  for number, private in enumerate((True, False)):
    printed = {
        name(o): _published(o["labels"])
        for o in found if o["labels"]["private"] == private
    }
    axes.plot(
        list(printed.values()),
        [names.index(task) for task in printed],
        marker="|",
        markersize=18,
        linestyle="",
        color=plotting.series(number)["color"],
        label=f"published, {'private' if private else 'not private'}",
    )
  plotting.legend_below(axes)


TARGETS = {
    "table3": panels.Target(
        title="DP-MAML's Table 3: few-shot accuracy with a guarantee for each"
        " participant",
        about="""\
Six cells, each private and not, with the published numbers: Omniglot 5-way and
20-way, CIFAR-FS and mini-ImageNet with one and with five images of a class. The
data are the paper's: synthetic participants (400 000, or 100 000 for
mini-ImageNet) who each own a task of training classes. The learner is a
prototypical network on a narrow Conv4, clipped at a fixed norm. Each step
samples participants independently of one another (Poisson), and the noise
spends ε = 0.5 at δ = 1e-6 for a participant. One model for each key serves the
cells of one image and of five. Rows of the paper's learner, MAML, are given for
Omniglot 5-way, at a smaller size: with the clip norm at a percentile of the raw
norms, as in the paper, for which no guarantee holds, and with one at a private
quantile.""",
        notes="""\
About twenty trials of a few minutes each on the same training classes chose the
outer rate, the scale of the distances, the clip norm, the size of a step,
averages of the iterates and queries. They were compared by validation accuracy
and by the agreement of training tasks' gradients, and are not charged to ε.
Earlier results on the same test classes (`budget`, `learners`) were known by
then; none of this page's were. The means are over keys; "± " is the 95 %
interval over 600 test tasks, which all keys share. Networks are narrower,
tasks several times fewer without privacy (so the difference of two such rows is
not the price of privacy), and mini-ImageNet's images smaller (42 pixels) than
in the papers. So a cell's distance from the published network without privacy
has two parts: noise, clipping and fewer, larger steps; and network, images and
tasks.""",
        runs=runs, table=table, draw=draw, more=rows,
    )
}
