"""Runs on synthetic participants that spend a given budget, within 1 %.

[M] is "Meta-Learning with Differential Privacy".
"""

from collections.abc import Mapping
import functools
import math
from typing import Any

from episodic_dp import accounting
from episodic_dp import plan as plan_lib
from episodic_dp.accounting import report
from episodic_dp.accounting.accountants import moments
from experiments import runs as runs_lib
from experiments.targets import panels

# Preset -> its participants.
PARTICIPANTS = {"omniglot": 400_000, "glyphs": 200}
LEVEL = "participant"
CHANCE = 20.0  # Accuracy of a blind guess among five classes, in percent.
DELTA, BUDGET = 1e-6, 1.5  # Of [M].
EPSILON = "ε of a participant"
# Fields of a trial, which learns nothing.
SMALL = {"evaluation.validation_tasks": 8, "evaluation.test_tasks": 16}

spent = panels.epsilon(LEVEL)


def release(
    first: float | plan_lib.Stage, noise: float = 1.0
) -> plan_lib.Release:
  """Describe a step that samples participants so and clips each.

  A number is the rate of `Poisson`. The data of a participant, and the number
  of others, do not matter.
  """
  if isinstance(first, float):
    first = plan_lib.Poisson(first)
  return plan_lib.Release(
      plan_lib.Hierarchy.regular((1000,), levels=(LEVEL,)),
      plan_lib.SamplingPlan((first,)),
      plan_lib.Mechanism(
          clip_unit=LEVEL, clip_norm=1.0, noise_multiplier=noise
      ),
  )


@functools.lru_cache
def noise_multiplier(
    first: float | plan_lib.Stage, steps: int, epsilon: float, delta: float
) -> float:
  """Return the noise that spends (epsilon, delta), rounded up to six digits."""
  found = accounting.calibrate(
      release(first), steps=steps, epsilon=epsilon, delta=delta, level=LEVEL
  )
  return math.ceil(found.noise_multiplier * 1e6) / 1e6


@functools.lru_cache
def stated(
    rate: float,
    steps: int,
    noise: float,
    *,
    papers: bool,
    epsilon: float | None = None,
    delta: float | None = None,
) -> accounting.Guarantee:
  """Return a participant's guarantee after some steps.

  Args:
    rate: probability that a step samples a participant.
    steps: number of steps.
    noise: the noise multiplier.
    papers: whether to use the accountant of [M], moments with λ up to 64, which
      assumes a given clip norm; otherwise the tight one.
    epsilon: if given, compute delta.
    delta: if given, compute epsilon.
  """
  return accounting.guarantee(
      release(rate, noise),
      steps=steps,
      level=LEVEL,
      accountant=moments.Moments(max_order=64) if papers else "pld",
      epsilon=epsilon,
      delta=delta,
  )


def papers_epsilon(same: panels.Same) -> str:
  """Return the epsilon that [M] would state for a run."""
  labels = same[0]["labels"]
  return report.rounded_up(stated(
      labels["rate"], same[0]["steps"], labels["noise"], papers=True,
      delta=DELTA,
  ).epsilon)


def sufficient_noise(same: panels.Same) -> str:
  """Return the noise multiplier that would spend the budget of [M]."""
  rate, steps = same[0]["labels"]["rate"], same[0]["steps"]
  return f"{noise_multiplier(rate, steps, BUDGET, DELTA):.3f}"


COSTS: dict[str, panels.Cell] = {
    "ε of a participant, as it ran": spent,
    "ε by the accountant of [M]": papers_epsilon,
    f"z that would spend {BUDGET}": sufficient_noise,
}


def text(arguments: Mapping[str, Any]) -> str:
  """Return the arguments of a preset in the form of its command line."""
  return ",".join(f"{k}={v}" for k, v in arguments.items())


def every(steps: int) -> dict[str, int]:
  """Validate and keep a checkpoint ten times in a run."""
  often = max(steps // 10, 1)
  return {"evaluation.every": often, "checkpoint_every": often}


def run(
    name: str,
    *,
    config: str,
    tasks: int,
    steps: int,
    width: int,
    labels: Mapping[str, Any],
    epsilon: float | None,
    delta: float = DELTA,
    query: int = 1,
    seed: int = 0,
    overrides: Mapping[str, Any] | None = None,
) -> runs_lib.Run:
  """Describe a 5-way 1-shot run of the preset `omniglot` or `glyphs`.

  Args:
    name: name of the run.
    config: "omniglot" or "glyphs".
    tasks: expected tasks of a step.
    steps: number of steps.
    width: width of the network.
    labels: labels of the run.
    epsilon: budget of a participant at delta; None without privacy.
    delta: delta of the guarantee.
    query: query images of a class in a training task.
    seed: of the initial parameters; the run's own key is secret.
    overrides: further fields.
  """
  rate = tasks / PARTICIPANTS[config]
  arguments: dict[str, Any] = dict(
      private=int(epsilon is not None), width=width, rate=rate, steps=steps
  )
  fields: dict[str, Any] = {"delta": delta, **every(steps), "seed": seed}
  if config == "glyphs":
    # Small and few: everything runs, and nothing is learned.
    arguments |= dict(participants=PARTICIPANTS[config], size=16)
    fields |= SMALL
  else:
    arguments["query"] = query
  if epsilon is not None:
    fields["mechanism.noise_multiplier"] = noise_multiplier(
        rate, steps, epsilon, delta
    )
  return runs_lib.Run(
      name=name,
      config=config,
      arguments=text(arguments),
      overrides=fields | dict(overrides or {}),
      labels=labels,
  )
