"""The price of privacy for 539 people: MNIST by its writers, 5-way.

Each run spends a given epsilon for a writer, and the table says what the digit
and the image of a writer cost in it. Runs without privacy, and the untrained
network, stand beside them. All are judged on people who did not train.

What the guarantees protect, by the same noise: a *writer*, all images of a
person (whether this person took part); a *writer's digit*, what a person wrote
of one of the ten (whether this person's sevens, say, are among the data); an
*image*, one of these. That there are ten digits, who was asked, and how many
images each wrote of each digit are public. A small ε is dear because there are
few people to hide among: each is drawn in half of the steps. The three levels
cost nearly the same: of a writer drawn half of the digits are, but a digit is
exchanged for another one, which moves a task twice as far as a writer's absence
does, and of a digit with few images all are drawn.
"""

from typing import Any

from episodic_dp.config.presets import mnist_writers
from episodic_dp.data.mnist_writers import source
from episodic_dp.output import plotting
from experiments import runs as runs_lib
from experiments.targets import budgets
from experiments.targets import panels

EPSILONS = (None, 8, 4, 2, 1)  # None: without privacy.
DELTA = 1e-5
NOTES = """\
An interval over test tasks takes tasks of one person for independent ones. The
ten digits are those of the training writers: a large part of what is learned is
how digits look whoever wrote them, and a classifier of ten digits would need no
example of the new hand at all.

Rate, steps, queries, width, clip norm and outer rate were chosen by the
accuracy on validation writers of a few runs of one image a digit, most at
ε = 2; the best took half as long again as what is run here. This choice is not
charged to ε. Two runs at a time, one core each, with much other work beside.
"""
CHANCE = 1 / budgets.WAY

# Scale -> arguments of the preset, and (shot, query, keys) of the runs.
_SIZES: dict[str, dict[str, Any]] = {
    "cpu": dict(
        arguments=dict(rate=0.5, steps=40, width=8),
        tasks=((1, 4, 3), (5, 1, 3)),
    ),
    "full": dict(
        arguments=dict(rate=0.5, steps=120, width=32),
        tasks=((1, 4, 5), (5, 1, 5)),
    ),
}


def runs(scale: str) -> list[runs_lib.Run]:
  """Every budget, with tasks of one image and of five; several keys each."""
  if scale == "smoke":
    labels = dict(shot=1, epsilon=8, key=0)
    return [
        budgets.run(
            "glyphs", config="glyphs", tasks=16, steps=2, width=2, epsilon=8,
            delta=DELTA, labels=labels,
        )
    ]  # fmt: skip
  size = _SIZES[scale]
  return [
      _run(shot, query, epsilon, key, size["arguments"])
      for shot, query, keys in size["tasks"]
      for key in range(keys)
      for epsilon in EPSILONS
  ]


def _run(
    shot: int,
    query: int,
    epsilon: float | None,
    key: int,
    arguments: dict[str, Any],
) -> runs_lib.Run:
  chosen = arguments | dict(
      shot=shot, query=query, private=int(epsilon is not None)
  )
  if epsilon is not None:
    chosen["noise_multiplier"] = budgets.noise_multiplier(
        arguments["rate"], arguments["steps"], epsilon, DELTA
    )
  return runs_lib.Run(
      name=f"{shot}_shot_epsilon_{epsilon or 'none'}_{key}",
      config=mnist_writers.__name__.rpartition(".")[2],
      arguments=",".join(f"{k}={v}" for k, v in chosen.items()),
      # Initial parameters of its own; the secret key is always another.
      overrides={"seed": key},
      labels=dict(shot=shot, epsilon=epsilon, key=key),
  )


def table(outcomes: panels.Outcomes) -> tuple[list[str], list[list[str]]]:
  """A row for each budget and shot."""
  header = [
      "images of a digit",
      "noise multiplier",
      "ε of a writer",
      "of a writer's digit",
      "of an image",
      "test accuracy, last checkpoint",
      "ensemble of the best",
      "untrained",
      "training",
  ]
  rows = []
  for key, found in panels.group(outcomes, "key").items():
    rows.append(
        [
            str(dict(key)["shot"]),
            f"{found[0]['noise_multiplier']:.3f}",
            *(panels.epsilon(found, level) for level in source.LEVELS),
            panels.accuracy(found),
            panels.accuracy(found, "ensemble"),
            panels.accuracy(found, "untrained"),
            panels.seconds(found),
        ]
    )
  return header, rows


def draw(outcomes: panels.Outcomes, figure: Any) -> None:
  """Accuracy over epsilon, a dot a run; lines of what is not private."""
  axes = figure.subplots()
  spent: set[float] = set()
  shots = sorted({o["labels"]["shot"] for o in outcomes.values()})
  for number, shot in enumerate(shots):
    found = [o for o in outcomes.values() if o["labels"]["shot"] == shot]
    private = [o for o in found if o["labels"]["epsilon"]]
    spent |= {o["labels"]["epsilon"] for o in private}
    style = plotting.series(number)
    axes.errorbar(
        [o["labels"]["epsilon"] * 1.03**number for o in private],
        [100 * o["accuracy"]["single"]["mean"] for o in private],
        yerr=[panels.half(o["accuracy"]["single"]) for o in private],
        capsize=2,
        label=f"private, {shot} image{'s' * (shot > 1)} of a digit",
        **style | {"linestyle": ""},
    )
    plain = [o for o in found if not o["labels"]["epsilon"]]
    for what, model, chosen in (
        ("not private", "single", plain), ("untrained", "untrained", found)
    ):  # fmt: skip
      means = [o["accuracy"][model]["mean"] for o in chosen]
      if means:
        axes.axhline(
            100 * sum(means) / len(means),
            color=style["color"],
            linestyle="--" if what == "not private" else ":",
            label=f"{what}, {shot}",
        )
  axes.axhline(100 * CHANCE, label="chance", **plotting.REFERENCE)
  axes.set_xscale("log")
  plotting.ticks(axes.xaxis, sorted(spent))
  axes.set_xlabel(f"ε of a writer at δ = {DELTA:g}")
  axes.set_ylabel("test accuracy (%) on other writers, 95 % interval")
  axes.set_ylim(0, 100)
  axes.legend(loc="lower right", ncols=2)


def finding(outcomes: panels.Outcomes) -> str:
  """The points that each budget costs, for each number of shots."""
  of: dict[tuple[int, float | None], list[panels.Outcome]] = {}
  for o in outcomes.values():
    of.setdefault((o["labels"]["shot"], o["labels"]["epsilon"]), []).append(o)
  parts = []
  for shot in sorted({shot for shot, epsilon in of if epsilon is None}):
    best = panels.percent(of[shot, None])
    costs = [
        f"{best - panels.percent(of[shot, e]):.1f} at ε = {e:g}"
        for e in EPSILONS if e and (shot, e) in of
    ]  # fmt: skip
    parts.append(
        f"{shot} image{'s' * (shot > 1)} of a digit: {best:.1f} % without"
        f" privacy, points lost {', '.join(costs)}"
    )
  return "; ".join(parts) + "." if parts else ""
