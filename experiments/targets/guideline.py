"""DP-MAML's guideline for L, z and k, beside what `episodic-dp plan` proposes.

The guideline (section 6.3.5) fixes z, takes steps as large as q = 1 / (16 z)
allows and clips at a percentile k of the gradient norms, 90 in its tables. Both
halves are compared on the built-in glyphs, at the same number of tasks and the
same ε of a participant: the tasks, steps and noise, and the clip norm. The
percentile is of public tasks at the initial parameters here, and stays: one of
private norms, which follows them as they fall, has no guarantee.
"""

import dataclasses
from typing import Any

from experiments import runs as runs_lib
from experiments.targets import budgets
from experiments.targets import panels

# What z = 1 spends at the guideline's largest step, and so does the other.
EPSILON, DELTA = 2.36, 1e-5
NOTES = """\
What `plan` proposes, and the norms, are the answer of `episodic-dp plan
--config=glyphs --epsilon=2.36 --tasks=9600 --format=json`, which reads no
private data; nothing was chosen by accuracy. The outer rate is the preset's for
all. What the guideline costs and is worth at the paper's size, without
training: [docs/choosing.md](../../docs/choosing.md).
"""
_KEYS = {"smoke": 1, "cpu": 2, "full": 5}


_NORMS = {"90th percentile": 13.0, "plan": 2.5}


@dataclasses.dataclass(frozen=True)
class _Scale:
  """Who takes part, and what is proposed for them: tasks a step -> steps."""

  arguments: dict[str, Any]
  participants: int
  steps: dict[str, tuple[int, int]]
  norms: dict[str, float]


_GLYPHS = _Scale(
    {},
    8000,
    {"guideline": (500, 19), "plan": (200, 48)},
    _NORMS,
)
_SCALES = {
    "smoke": _Scale(
        dict(size=16, width=2, participants=64),
        64,
        {"guideline": (4, 2), "plan": (2, 4)},
        _NORMS,
    ),
    "cpu": _GLYPHS,
    "full": _GLYPHS,
}


def runs(scale: str) -> list[runs_lib.Run]:
  """Both choices of tasks and noise with both clip norms, for each key."""
  chosen = _SCALES[scale]
  found = []
  for key in range(_KEYS[scale]):
    for choice, (tasks, steps) in chosen.steps.items():
      for clip, norm in chosen.norms.items():
        rate = tasks / chosen.participants
        noise = budgets.noise_multiplier(rate, steps, EPSILON, DELTA)
        labels = dict(choice=choice, clip=clip, tasks=tasks, key=key)
        arguments = chosen.arguments | dict(rate=rate, steps=steps)
        overrides: dict[str, Any] = {
            "mechanism.noise_multiplier": noise,
            "mechanism.clip_norm": norm,
            "seed": key,
        }
        if scale == "smoke":
          overrides |= {
              "evaluation.validation_tasks": 8, "evaluation.test_tasks": 16
          }  # fmt: skip
        found.append(
            runs_lib.Run(
                name=f"{choice}_clip_{clip.partition(' ')[0]}_key_{key}",
                config="glyphs",
                arguments=",".join(f"{k}={v}" for k, v in arguments.items()),
                overrides=overrides,
                labels=labels,
            )
        )
  return found


def table(outcomes: panels.Outcomes) -> tuple[list[str], list[list[str]]]:
  """A row for each choice and clip norm; keys together."""
  header = [
      "tasks, steps and noise of", "clip norm of", "tasks a step", "steps",
      "noise multiplier", "test accuracy", "ε of a participant",
  ]  # fmt: skip
  rows = []
  for found in panels.group(outcomes, "key").values():
    first = found[0]
    labels = first["labels"]
    rows.append([
        labels["choice"], labels["clip"], str(labels["tasks"]),
        str(first["steps"]), f"{first['noise_multiplier']:.3f}",
        panels.accuracy(found), panels.epsilon(found, budgets.LEVEL),
    ])  # fmt: skip
  return header, rows


def finding(outcomes: panels.Outcomes) -> str:
  """What each half of the guideline is worth."""
  of = {
      (found[0]["labels"]["choice"], found[0]["labels"]["clip"]): found
      for found in panels.group(outcomes, "key").values()
  }
  if len(of) < 4:
    return ""
  named = {name: panels.percent(found) for name, found in of.items()}
  return (
      "At the same epsilon and tasks the guideline's L, z and clip norm reach"
      f" {named['guideline', '90th percentile']:.1f} %, with the clip norm of"
      f" plan {named['guideline', 'plan']:.1f} %; plan's L and z reach"
      f" {named['plan', '90th percentile']:.1f} % with the guideline's clip"
      f" norm and {named['plan', 'plan']:.1f} % with its own."
  )


def draw(outcomes: panels.Outcomes, figure: Any) -> None:
  """A dot a run: the choices one below another, a colour a clip norm."""
  series: dict[str, dict[str, list[panels.Outcome]]] = {}
  for outcome in outcomes.values():
    labels = outcome["labels"]
    of_clip = series.setdefault(f"clip norm: {labels['clip']}", {})
    of_clip.setdefault(labels["choice"], []).append(outcome)
  names = list(dict.fromkeys(o["labels"]["choice"] for o in outcomes.values()))
  panels.dots(figure.subplots(), names, series, chance=1 / budgets.WAY)
