"""Time of a task, MAML and DP-MAML, on this machine: [M] Table 4.

A task is 5-way 1-shot, adapted in five inner steps of second-order MAML, as in
the paper; MAML's gradients are summed, DP-MAML's clipped task by task, summed
and noised. What is timed is the whole step, compiled before, over its tasks, in
turns; images are random, since what they show costs nothing. The published
times are those of one RTX 2080 Ti at width 64 (48 for colour). At the scale cpu
networks are narrow, so that the two columns are not comparable, but the ratio
of private to not private is. No private data are used and nothing was chosen.
"""

from collections.abc import Callable
import math
from typing import Any

from episodic_dp import training
from episodic_dp.output import plotting
from experiments import published
from experiments import runs as runs_lib
from experiments.benchmarks import harness
from experiments.benchmarks import settings
from experiments.targets import panels

# [M] Table 4, milliseconds of a task: (MAML, DP-MAML).
PUBLISHED = {
    "omniglot": (39.9, 54.7),
    "cifar_fs": (68.7, 81.3),
    "mini_imagenet": (112.3, 102.7),
}
_KINDS = {"maml": "MAML", "dp_maml": "DP-MAML"}
# Data -> shape of an image, queries of a class, width at full size.
_DATA = {
    "omniglot": ((28, 28, 1), 1, 64),
    "cifar_fs": ((32, 32, 3), 15, 48),
    "mini_imagenet": ((84, 84, 3), 15, 48),
}
# Scale -> width (None for that of the paper), tasks a step, turns.
_SIZES: dict[str, tuple[int | None, int, int]] = {
    "smoke": (2, 2, 1), "cpu": (8, 4, 3), "full": (None, 16, 5),
}  # fmt: skip


def runs(scale: str) -> list[runs_lib.Computed]:
  """The two learners on the images of a data set."""
  width, tasks, repeats = _SIZES[scale]
  return [
      runs_lib.Computed(
          name=data, target="table4", scale=scale,
          labels=dict(
              data=data, width=width or _DATA[data][2], tasks=tasks,
              repeats=repeats,
          ),
      )
      for data in _DATA
  ]  # fmt: skip


def finish(
    run: runs_lib.Computed, folder: str, **shared: Any
) -> dict[str, Any]:
  """Times the steps of both learners in turns."""
  del shared
  smoke = run.scale == "smoke"
  tasks = run.labels["tasks"]
  shape, query, _ = _DATA[run.name]

  def step(clip_norm: float, noise_multiplier: float) -> Callable[[], Any]:
    made = settings.omniglot(
        inner_steps=1 if smoke else 5, query=query, width=run.labels["width"],
        tasks=tasks, shape=shape, smoke=smoke, clip_norm=clip_norm,
        noise_multiplier=noise_multiplier,
    )  # fmt: skip
    return made.advance(mesh=training.make_mesh())

  steps = {"maml": step(math.inf, 0.0), "dp_maml": step(0.25, 1.0)}
  options = harness.Options(smoke=smoke, repeats=run.labels["repeats"])
  found = harness.summaries(harness.interleaved(steps, options), tasks)
  ratio = found["dp_maml"]["seconds"] / found["maml"]["seconds"]
  return runs_lib.record(run, folder, {"per_task": found, "ratio": ratio})


def _ms(summary: dict[str, float]) -> str:
  """The median, and the fastest and slowest turn."""
  median, low, high = (
      1e3 * summary[k] for k in ("seconds", "fastest", "slowest")
  )
  return f"{median:.3g} ms ({low:.3g} to {high:.3g})"


def table(outcomes: panels.Outcomes) -> tuple[list[str], list[list[str]]]:
  """A row per data set."""
  header = [
      "data", "width", *(f"{kind}, here" for kind in _KINDS.values()),
      "private / not", *(f"{kind}, published" for kind in _KINDS.values()),
      "private / not, published",
  ]  # fmt: skip
  rows = []
  for data, o in outcomes.items():
    plain, private = PUBLISHED[data]
    rows.append([
        published.NAMES[data], str(o["labels"]["width"]),
        *(_ms(o["per_task"][kind]) for kind in _KINDS), f"{o['ratio']:.2f}",
        f"{plain} ms", f"{private} ms", f"{private / plain:.2f}",
    ])  # fmt: skip
  return header, rows


def draw(outcomes: panels.Outcomes, figure: Any) -> None:
  """Milliseconds of a task, a pair of dots each, ours and published."""
  axes = figure.subplots()
  names = list(outcomes)
  here = {
      kind: [1e3 * outcomes[n]["per_task"][kind]["seconds"] for n in names]
      for kind in _KINDS
  }
  there = dict(zip(_KINDS, zip(*(PUBLISHED[n] for n in names))))
  number = 0
  for where, values in (("here", here), ("published", there)):
    for kind, title in _KINDS.items():
      y = [i + 0.12 * (number - 1.5) for i in range(len(names))]
      style = plotting.series(number) | {"linestyle": ""}
      axes.plot(values[kind], y, label=f"{title}, {where}", **style)
      number += 1
  axes.set_yticks(range(len(names)), [published.NAMES[n] for n in names])
  axes.invert_yaxis()
  axes.set_xscale("log")
  axes.set_xlabel("milliseconds of a task")
  plotting.legend_below(axes, columns=4)


def finding(outcomes: panels.Outcomes) -> str:
  """What clipping and noise add, here and as published."""
  return "A private task takes, of one without privacy: " + "; ".join(
      f"{published.NAMES[data]} {o['ratio']:.2f} (published"
      f" {PUBLISHED[data][1] / PUBLISHED[data][0]:.2f})"
      for data, o in outcomes.items()
  ) + "."
