"""The price of privacy for 539 people: MNIST by its writers, 5-way."""

import itertools
from typing import Any

from episodic_dp.config.presets import mnist_writers
from episodic_dp.data import mnist_writers as source
from experiments import runs as runs_lib
from experiments.targets import budgets
from experiments.targets import panels

EPSILONS = (None, 8, 4, 2, 1)  # None: without privacy.
DELTA = 1e-5
# Scale -> arguments of the preset, and keys.
_SIZES: dict[str, tuple[dict[str, Any], int]] = {
    "cpu": (dict(rate=0.5, steps=40, width=8), 3),
    "full": (dict(rate=0.5, steps=120, width=32), 5),
}
_QUERIES = {1: 4, 5: 1}  # Shots -> queries.


def runs(scale: str) -> list[runs_lib.Run]:
  """Return every budget, with tasks of one image and of five."""
  if scale == "smoke":
    return [
        budgets.run(
            "glyphs", config="glyphs", tasks=16, steps=2, width=2, epsilon=8,
            delta=DELTA, labels=dict(shot=1, epsilon=8, key=0),
        )
    ]
  arguments, keys = _SIZES[scale]
  found = []
  for shot, query in _QUERIES.items():
    for key, epsilon in itertools.product(range(keys), EPSILONS):
      found.append(_run(shot, query, epsilon, key, arguments))
  return found


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
      arguments=budgets.text(chosen),
      # Other initial parameters; the secret key always differs.
      overrides={"seed": key},
      labels=dict(shot=shot, epsilon=epsilon, key=key),
  )


_table = panels.tabled({
    "images of a digit": panels.label("shot"),
    "noise multiplier": panels.field("noise_multiplier", "{:.3f}"),
    **{
        header: panels.epsilon(level)
        for header, level in zip(
            ("ε of a writer", "of a writer's digit", "of an image"),
            source.LEVELS,
        )
    },
    panels.SINGLE: panels.accuracy,
    "ensemble of the best": panels.ensemble,
    "untrained": panels.untrained,
    "training": panels.seconds,
}, "key")


_UNLIMITED = 2 * max(filter(None, EPSILONS))  # Where privacy is none.


TARGETS = {
    "mnist_writers": panels.Target(
        title="The price of privacy for 539 people: MNIST by its writers,"
        " 5-way",
        about="""\
Each run spends a given epsilon for a writer, and the table has the epsilon of a
writer's digit and image in the same run. They are compared with runs without
privacy and with the untrained network. All are tested on people who did not
train.

One noise protects three units: a *writer*, all images of a person (whether this
person took part); a *writer's digit*, one of the ten digits by this person (for
example, whether this person's sevens are among the data); an *image*, one of
these. Public are the ten digits, the list of people, and the number of images
that each wrote of each digit. A small ε is costly because there are few people:
each is sampled in half of the steps. The three levels spend nearly the same.
Half of a sampled writer's digits are sampled, but a removed digit is replaced
by another one, which moves a task twice as far as a writer's absence; and all
images of a digit with few are sampled.""",
        notes="""\
An interval over test tasks assumes that tasks of one person are independent.
The ten digits are those of the training writers. A large part of the accuracy
comes from features of digits that all writers share, and a classifier of ten
digits would need no example by the new writer.

Rate, steps, queries, width, clip norm and outer rate were chosen by the
accuracy on validation writers in a few runs of one image a digit, most at
ε = 2; the best took half as long again as the runs here. This choice is not
charged to ε. Two runs at a time, one core each, on a busy machine.""",
        runs=runs, table=_table,
        draw=lambda outcomes, figure: panels.draw_lines(
            figure.subplots(),
            panels.lines(
                panels.group(outcomes, "key"),
                lambda same: f"{same[0]['labels']['shot']} image(s) of a digit",
                lambda same: same[0]["labels"]["epsilon"] or _UNLIMITED,
            ),
            f"ε of a writer at δ = {DELTA:g}; {_UNLIMITED}: without privacy",
            chance=budgets.CHANCE,
            logarithmic=True,
        ),
    )
}
