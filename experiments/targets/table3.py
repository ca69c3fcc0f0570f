"""DP-MAML's Table 3: few-shot accuracy with a guarantee for each participant.

Six cells, each private and not, beside the numbers that are published: Omniglot
5-way and 20-way, CIFAR-FS and mini-ImageNet with one and with five images of a
class. The data are the paper's: synthetic participants (400 000, or 100 000 for
mini-ImageNet) who own a task of training classes each. The learner is a
prototypical network on a narrow Conv4, clipped at a fixed norm; each step draws
participants independently of one another (Poisson), and the noise is what
spends ε = 0.5 at δ = 1e-6 for a participant. One model a key serves the cells
of one image and of five. Rows of the paper's learner, MAML, stand beside it on
Omniglot 5-way, at a smaller size: with the clip norm at a percentile of the raw
norms, as the paper has it, for which no guarantee holds, and with one at a
private quantile.
"""

import dataclasses
from typing import Any

from episodic_dp import plan as plan_lib
from episodic_dp.output import plotting
from experiments import published
from experiments import runs as runs_lib
from experiments.targets import budgets
from experiments.targets import panels
from experiments.targets import table3_models

EPSILON, DELTA = 0.5, 1e-6
NOTES = """\
The settings follow some twenty trials of a few minutes each on the same
training classes, judged by validation accuracy and by how well the gradients of
training tasks agree, and are not charged to ε: of the outer rate, the scale of
the distances, the clip norm, the size of a step, averages of the iterates and
queries. `frontier` compares such changes at one budget, and what the noise
alone costs there. Earlier results on the same test classes (`budget`,
`learners`) were known by then; none of this page's were. The means are over
keys; "± " is the 95 % interval over 600 test tasks, which all keys share.
Networks are narrower, tasks several times fewer without privacy (so that the
distance of such two rows is not the price of privacy), and mini-ImageNet's
images smaller (42 pixels) than in the papers. So of the points that a cell is
below the published network without privacy, the first part is of noise,
clipping and fewer, larger steps, and the second of network, images and tasks.
"""


def runs(scale: str) -> list[runs_lib.Run]:
  """Every key of every model, the first keys first."""
  if scale == "smoke":
    labels = dict(data="glyphs", way=5, shot=1, private=True, key=0)
    run = budgets.run(
        "glyphs", config="glyphs", tasks=16, steps=2, width=2, epsilon=8,
        labels=labels,
        overrides={"learner.name": "protonet", "evaluation.query": 2},
    )  # fmt: skip
    return [dataclasses.replace(run, shots=(2,), controls=True)]
  return [
      _run(model, key, private)
      for key in range(table3_models.KEYS)
      for model in table3_models.models(scale)
      for private in (True, False)
      if key < model.keys and (private or model.plain is not None)
  ]


def _run(model: table3_models.Model, key: int, private: bool) -> runs_lib.Run:
  arguments = model.arguments | dict(private=int(private))
  overrides = {
      "learner.name": "protonet",
      "seed": key,
      "evaluation.validation_tasks": 300,
      **model.overrides,
  }
  if model.data == "omniglot":
    arguments["way"] = model.way
  if private:
    rate = model.tasks / model.participants
    arguments |= dict(
        participants=model.participants, rate=rate, steps=model.steps
    )
    overrides["mechanism.noise_multiplier"] = budgets.noise_multiplier(
        rate, model.steps, EPSILON, DELTA
    )
  else:
    arguments |= model.plain or {}
  every = max(arguments["steps"] // 10, 1)
  overrides |= {"evaluation.every": every, "checkpoint_every": every}
  name = f"{model.data}_{model.way}_way"
  labels = dict(data=model.data, way=model.way, shot=1, private=private)
  if model.kind:
    name += f"_maml_{model.kind}"
    labels["clipping"] = model.kind
  form = "private" if private else "plain"
  return runs_lib.Run(
      name=f"{name}_{form}_{key}",
      config=model.data,
      arguments=",".join(f"{k}={v}" for k, v in arguments.items()),
      overrides=overrides,
      labels=labels | {"key": key},
      shots=[shot for shot in model.shots if shot != 1],
      controls=True,
  )


_LEARNERS = {"protonet": "prototypes", "maml": "MAML"}
_CLIPPED = {
    "percentile": ", clipped at a percentile: no guarantee",
    "quantile": ", clipped at a private quantile",
}


def more(outcomes: panels.Outcomes) -> dict[str, Any]:
  """The cells of the table, each of all keys that are finished: "rows"."""
  return {"rows": [_row(*cell) for cell in _cells(outcomes)]}


def _cells(
    outcomes: panels.Outcomes,
) -> list[tuple[dict[str, Any], list[panels.Outcome]]]:
  """What each cell is, and its runs with the scores of its shot."""
  found: list[tuple[dict[str, Any], list[panels.Outcome]]] = []
  for of_keys in panels.group(outcomes, "key").values():
    shots = {of_keys[0]["labels"]["shot"]: None}
    shots |= dict.fromkeys(int(s) for s in of_keys[0].get("tests", ()))
    for shot in shots:
      scored: list[panels.Outcome] = [
          {**o, "accuracy": o.get("tests", {}).get(str(shot), o["accuracy"])}
          for o in of_keys
      ]
      labels = dict(of_keys[0]["labels"]) | {"shot": shot}
      del labels["key"]
      found.append((labels, scored))
  order = {cell: i for i, cell in enumerate(published.TABLE3)}
  return sorted(
      found,
      key=lambda c: (
          order.get((c[0]["data"], c[0]["way"], c[0]["shot"]), len(order)),
          not c[0]["private"],
          c[0].get("clipping", ""),
      ),
  )


def _published(labels: dict[str, Any]) -> float | None:
  """What the paper has for a cell, in percent."""
  cell = labels["data"], labels["way"], labels["shot"]
  return published.TABLE3.get(cell, (None, None))[labels["private"]]


def _row(
    labels: dict[str, Any], found: list[panels.Outcome]
) -> dict[str, Any]:
  """One cell: percent, means over the keys."""
  spent = found[0]["epsilon"].get(budgets.LEVEL, {})
  row = labels | {
      "learner": found[0]["config"]["learner"]["name"],
      "width": found[0]["config"]["model"]["width"],
      "epsilon": spent.get("epsilon") if labels["private"] else None,
      "delta": spent.get("delta") if labels["private"] else None,
      "tasks": _tasks(found[0]),
      "keys": len(found),
      "clipping": labels.get("clipping", "fixed"),
      "published": _published(labels),
  }
  for model, name in (
      ("single", "accuracy"), ("ensemble", "ensemble"),
      ("untrained", "untrained"), ("untrained_ensemble", "untrained_ensemble"),
  ):  # fmt: skip
    means = [
        100 * o["accuracy"][model]["mean"]
        for o in found
        if model in o["accuracy"]
    ]
    if means:
      row[name] = round(sum(means) / len(means), 4)
      row[f"{name}_of_keys"] = [round(m, 4) for m in means]
  # Over test tasks, which all keys share.
  row["half_interval"] = round(
      sum(panels.half(o["accuracy"]["single"]) for o in found) / len(found), 2
  )
  return row


def table(outcomes: panels.Outcomes) -> tuple[list[str], list[list[str]]]:
  """A row a cell, private and not."""
  header = [
      "data",
      "task",
      "learner",
      "tasks trained on, expected",
      "private",
      "published",
      "test accuracy, last checkpoint",
      "ensemble of the best",
      "untrained",
      "untrained ensemble",
      "ε of a participant",
      "keys",
      "CPU time of a key",
  ]
  rows = []
  for labels, found in _cells(outcomes):
    row = _row(labels, found)
    rows.append(
        [
            _named(labels),
            f"{labels['way']}-way {labels['shot']}-shot",
            _LEARNERS[row["learner"]]
            + _CLIPPED.get(row["clipping"], ""),
            f"{row['tasks']:,}",
            "no" if panels.epsilon(found, budgets.LEVEL) == "none" else "yes",
            "-" if row["published"] is None else f"{row['published']} %",
            panels.accuracy(found),
            *(
                panels.accuracy(found, model) if name in row else "-"
                for model, name in (
                    ("ensemble", "ensemble"),
                    ("untrained", "untrained"),
                    ("untrained_ensemble", "untrained_ensemble"),
                )
            ),
            panels.epsilon(found, budgets.LEVEL),
            str(row["keys"]),
            panels.seconds(found, "cpu_seconds"),
        ]
    )
  return header, rows


def finding(outcomes: panels.Outcomes) -> str:
  """What each private cell has, and what lies between it and the published one.

  In two parts: to our own network without privacy, and from there to theirs.
  """
  rows = [r for r in more(outcomes)["rows"] if r["clipping"] == "fixed"]
  plain = {_cell(row): row for row in rows if not row["private"]}
  said = []
  for row in (r for r in rows if r["private"]):
    text = (
        f"{_named(row)} {row['way']}-way {row['shot']}-shot"
        f" {row['accuracy']:.1f} %"
    )
    other = plain.get(_cell(row))
    if other is not None and other["published"] is not None:
      text += (
          f" ({other['accuracy'] - row['accuracy']:.1f} +"
          f" {other['published'] - other['accuracy']:.1f})"
      )
    said.append(text)
  return (
      "Accuracy with privacy (points below our network without it + points of"
      f" that one below the published one): {'; '.join(said)}."
  )


def _tasks(outcome: panels.Outcome) -> int:
  """The tasks that a run is expected to have drawn in all."""
  config = outcome["config"]
  stage = plan_lib.parse_stage(config["plan"]["stages"][0])
  assert isinstance(stage, plan_lib.Poisson)  # As all runs here draw.
  units = config["data"]["options"]["participants"]
  return round(stage.p * units) * outcome["steps"]


def _named(labels: dict[str, Any]) -> str:
  return published.NAMES.get(labels["data"], labels["data"])


def _cell(row: dict[str, Any]) -> tuple[str, int, int]:
  return row["data"], row["way"], row["shot"]


def draw(outcomes: panels.Outcomes, figure: Any) -> None:
  """A line a cell: ours, private and not, and what is published."""
  names: list[str] = []
  # In the colours of what is published.
  series: dict[str, dict[str, list[panels.Outcome]]] = {
      "private": {},
      "not private": {},
  }
  printed: dict[bool, dict[str, float]] = {True: {}, False: {}}
  for labels, found in _cells(outcomes):
    name = f"{_named(labels)}\n{labels['way']}-way {labels['shot']}-shot"
    if name not in names:
      names.append(name)
    legend = "private" if labels["private"] else "not private"
    if "clipping" in labels:
      legend = "MAML" + _CLIPPED[labels["clipping"]]
    series.setdefault(legend, {})[name] = found
    value = _published(labels)
    if value is not None:
      printed[labels["private"]][name] = value
  axes = figure.subplots()
  panels.dots(axes, names, series, chance=None)
  for number, private in enumerate((True, False)):
    axes.plot(
        list(printed[private].values()),
        [names.index(name) for name in printed[private]],
        marker="|",
        markersize=18,
        linestyle="",
        color=plotting.series(number)["color"],
        label=f"published, {'private' if private else 'not private'}",
    )
  plotting.legend_below(axes)
