"""What raises private accuracy: one change at a time, at one budget.

Omniglot, 5-way 1-shot. Every run spends ε = 0.5 at δ = 1e-6 for a participant
on the same number of tasks, and differs from the first row in one thing alone;
the last rows have four times the tasks, or no noise and so no guarantee. They
are compared on validation classes, whose people are public; test classes are
not looked at, so that what is chosen here may be used for DP-MAML's Table 3.
Starting from the built-in glyphs is another claim, since those weights are not
random: it stands apart, with what the start reaches before any private step.
"""

import dataclasses
from typing import Any

from episodic_dp.output import plotting
from experiments import runs as runs_lib
from experiments.targets import budgets
from experiments.targets import panels

EPSILON, DELTA = 0.5, 1e-6
KEYS = 3  # Of the first row: how far keys alone are apart.
CHANCE = 1 / budgets.WAY
NOTES = """\
One key a row, but for the first: a difference below the spread of its keys, or
within the intervals, says nothing. Times are of one core with other work beside
it.
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Change:
  """What a row differs in from the first.

  Attributes:
    about: in words.
    tasks: expected of a step.
    steps: how many.
    arguments: of the preset.
    overrides: of fields.
    start: whether it begins with weights of the built-in glyphs.
  """

  about: str
  tasks: int = 400
  steps: int = 120
  arguments: dict[str, Any] = dataclasses.field(default_factory=dict)
  overrides: dict[str, Any] = dataclasses.field(default_factory=dict)
  start: bool = False


_ADAPTIVE = {
    "mechanism.clipping": "private_quantile", "mechanism.clip_quantile": 0.5,
    "mechanism.clip_rate": 0.2, "mechanism.count_noise": 20.0,
}  # fmt: skip
CHANGES = {
    "base": Change(about="prototypical network, width 16, 1 query"),
    "steps": Change(about="more, smaller steps", tasks=100, steps=480),
    "tasks": Change(about="fewer, larger steps", tasks=1600, steps=30),
    "queries": Change(about="4 queries a class", arguments=dict(query=4)),
    "width": Change(about="width 32", arguments=dict(width=32)),
    "average": Change(
        about="average of the iterates, decay 0.95",
        overrides={"optimizer.average": 0.95},
    ),
    "shift": Change(
        about="images shifted by up to 2 pixels",
        overrides={"augmentation.shift": 2},
    ),
    "draws": Change(
        about="the same, two draws averaged before clipping",
        overrides={"augmentation.shift": 2, "augmentation.draws": 2},
    ),
    "clip_low": Change(
        about="clip norm 0.01", overrides={"mechanism.clip_norm": 0.01}
    ),
    "clip_high": Change(
        about="clip norm 5", overrides={"mechanism.clip_norm": 5.0}
    ),
    "clip_layer": Change(
        about="clipped layer by layer",
        overrides={"mechanism.clip_by": "layer"},
    ),
    "clip_quantile": Change(
        about="clip norm at the private median", overrides=_ADAPTIVE
    ),
    "cosine": Change(
        about="cosine prototypes, learned temperature",
        overrides={"learner.metric": "cosine", "learner.metric_scale": 10.0},
    ),
    "temperature": Change(
        about="distances divided by 10", overrides={"learner.metric_scale": 0.1}
    ),
    "ridge": Change(
        about="ridge head",
        overrides={"learner.name": "ridge", "learner.metric": "euclidean"},
    ),
    "maml": Change(
        about="MAML, one inner step",
        overrides={"learner.name": "maml", "learner.inner_steps": 1},
    ),
    "momentum": Change(
        about="Adam with momentum 0.95", overrides={"optimizer.momentum": 0.95}
    ),
    "warm_up": Change(
        about="12 steps of warm-up", overrides={"optimizer.warm_up": 12}
    ),
    "rate": Change(
        about="outer rate 0.03",
        overrides={"optimizer.rate": 0.03, "optimizer.final_rate": 0.003},
    ),
    "glyphs": Change(about="starts from the glyphs", start=True),
    "glyphs_scale": Change(
        about="starts from the glyphs, scale and shift alone trained",
        overrides={"model.trained": "scale_shift"},
        start=True,
    ),
    "more_tasks": Change(about="four times the tasks", tasks=1600),
    "noiseless": Change(
        about="without noise (no guarantee)",
        overrides={"mechanism.noise_multiplier": 0.0},
    ),
}
_LIMITS = ("more_tasks", "noiseless")  # Of another budget than the others.
_START = "glyphs_start"


def runs(scale: str) -> list[runs_lib.Run]:
  """A run a change, several keys of the first."""
  if scale == "smoke":
    chosen = {k: CHANGES[k] for k in ("base", "average", "glyphs")}
    keys = 1
  else:
    chosen, keys = CHANGES, KEYS
  start = _start(scale)
  found = [_run(scale, "base", CHANGES["base"], key) for key in range(keys)]
  for name, change in chosen.items():
    if name != "base":
      run = _run(scale, name, change, 0)
      found.append(
          dataclasses.replace(run, start=start) if change.start else run
      )
  return found


def _start(scale: str) -> runs_lib.Run:
  """What trains the public weights: on generated glyphs, without privacy."""
  size = dict(participants=100, steps=2, width=2, size=16)
  if scale != "smoke":
    size = dict(participants=8000, steps=400, width=16, size=28)
  arguments = dict(private=0, rate=0.01) | size
  return runs_lib.Run(
      name=_START,
      config="glyphs",
      arguments=",".join(f"{k}={v}" for k, v in arguments.items()),
      overrides={"learner.name": "protonet"},
  )


def _run(scale: str, name: str, change: Change, key: int) -> runs_lib.Run:
  small = scale == "smoke"
  arguments = dict(width=16, query=1) | change.arguments
  overrides = {
      "learner.name": "protonet", "evaluation.validation_tasks": 600,
  } | change.overrides  # fmt: skip
  return budgets.run(
      f"{name}_{key}" if name == "base" else name,
      config="glyphs" if small else "omniglot",
      tasks=16 if small else change.tasks,
      steps=2 if small else change.steps,
      epsilon=8 if small else EPSILON,
      delta=DELTA,
      width=2 if small else arguments["width"],
      query=arguments["query"],
      labels=dict(change=name, about=change.about, key=key),
      seed=key,
      overrides=overrides,
  )


def _validated(outcome: panels.Outcome) -> tuple[float, float]:
  """The last validation in percent, and half of its interval."""
  found = outcome["validation"]
  half = 50 * (found["high"][-1] - found["low"][-1])
  return 100 * found["values"][-1], half


def _apart(
    outcome: panels.Outcome, base: list[panels.Outcome]
) -> tuple[float, bool]:
  """How far a row is from the first, and whether that says anything."""
  reference = [_validated(o)[0] for o in base]
  value, half = _validated(outcome)
  difference = value - sum(reference) / len(reference)
  # One key each: the interval, and as much again for what a key is worth.
  noise = max(half, max(reference) - min(reference))
  return difference, abs(difference) > noise


def table(outcomes: panels.Outcomes) -> tuple[list[str], list[list[str]]]:
  """A row a change, by validation accuracy alone."""
  header = [
      "change", "tasks a step", "steps", "noise multiplier",
      "validation accuracy", "against the first row", "ε of a participant",
      "CPU time",
  ]  # fmt: skip
  base = _base(outcomes)
  rows = []
  for outcome in outcomes.values():
    value, half = _validated(outcome)
    difference, tells = _apart(outcome, base) if base else (0.0, False)
    is_base = outcome["labels"]["change"] == "base"
    change = CHANGES[outcome["labels"]["change"]]
    rows.append(
        [
            outcome["labels"]["about"],
            str(change.tasks),
            str(outcome["steps"]),
            f"{outcome['noise_multiplier']:.3f}",
            f"{value:.1f} % ± {half:.1f}",
            "key " + str(outcome["labels"]["key"])
            if is_base
            else f"{difference:+.1f}" + ("" if tells else " (says nothing)"),
            panels.epsilon([outcome], budgets.LEVEL),
            panels.seconds([outcome], "cpu_seconds"),
        ]
    )
  return header, rows


def _base(outcomes: panels.Outcomes) -> list[panels.Outcome]:
  return [o for o in outcomes.values() if o["labels"]["change"] == "base"]


def finding(outcomes: panels.Outcomes) -> str:
  """What raises it most and lowers it most, of what can be told; its limits."""
  base = _base(outcomes)
  told, limits = [], []
  for outcome in outcomes.values() if base else ():
    difference, tells = _apart(outcome, base)
    about = outcome["labels"]["about"]
    if outcome["labels"]["change"] in _LIMITS:
      limits.append(f"{about} {difference:+.1f}")
    elif tells and outcome["labels"]["change"] != "base":
      told.append((difference, f"{about} ({difference:+.1f} points)"))
  sentences = [] if told else ["No change can be told from the spread of keys."]
  if told and max(told)[0] > 0:
    sentences.append(f"Most is gained by: {max(told)[1]}.")
  if told and min(told)[0] < 0:
    sentences.append(f"Most is lost by: {min(told)[1]}.")
  if limits:
    sentences.append(f"At another budget: {', '.join(limits)}.")
  return " ".join(sentences)


def draw(outcomes: panels.Outcomes, figure: Any) -> None:
  """A line a change, with the interval over validation tasks."""
  axes = figure.subplots()
  names = list(dict.fromkeys(o["labels"]["about"] for o in outcomes.values()))
  for outcome in outcomes.values():
    value, half = _validated(outcome)
    first = outcome["labels"]["change"] == "base"
    axes.errorbar(
        [value], [names.index(outcome["labels"]["about"])], xerr=[half],
        capsize=2, **plotting.series(0 if first else 1) | {"linestyle": ""},
    )  # fmt: skip
  axes.set_yticks(range(len(names)), names)
  axes.invert_yaxis()
  axes.set_xlabel("validation accuracy (%), last step, 95 % interval")
  axes.grid(visible=False, axis="y")
