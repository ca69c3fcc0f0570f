"""Runs on synthetic participants that spend a given budget, within 1 %."""

from collections.abc import Mapping
import functools
import math
from typing import Any

from episodic_dp import accounting
from episodic_dp import plan as plan_lib
from experiments import runs as runs_lib

# Config file -> its participants.
PARTICIPANTS = {"omniglot": 400_000, "glyphs": 200}
LEVEL = "participant"
WAY = 5


def release(rate: float, noise: float = 1.0) -> plan_lib.Release:
  """A step that draws participants at this rate, each clipped as one unit.

  What a participant holds, and how many others there are, do not matter.
  """
  return plan_lib.Release(
      plan_lib.Hierarchy.regular((1000,), levels=(LEVEL,)),
      plan_lib.SamplingPlan((plan_lib.Poisson(rate),)),
      plan_lib.Mechanism(
          clip_unit=LEVEL, clip_norm=1.0, noise_multiplier=noise
      ),
  )


@functools.lru_cache
def noise_multiplier(
    rate: float, steps: int, epsilon: float, delta: float
) -> float:
  """What spends (epsilon, delta) for a participant drawn at this rate.

  Rounded up to six digits, so that it can be written into a command.
  """
  found = accounting.calibrate(
      release(rate),
      steps=steps,
      epsilon=epsilon,
      delta=delta,
      level=LEVEL,
  )
  return math.ceil(found.noise_multiplier * 1e6) / 1e6


def run(
    name: str,
    *,
    config: str,
    tasks: int,
    steps: int,
    width: int,
    labels: Mapping[str, Any],
    epsilon: float | None,
    delta: float = 1e-6,
    query: int = 1,
    seed: int = 0,
    overrides: Mapping[str, Any] | None = None,
) -> runs_lib.Run:
  """A run of episodic_dp/config/presets/omniglot.py or glyphs.py, 5-way 1-shot.

  Args:
    name: of the run.
    config: "omniglot" or "glyphs".
    tasks: expected tasks of a step.
    steps: how many.
    width: of the network.
    labels: of the run.
    epsilon: what a participant may cost at delta; None without privacy.
    delta: of the guarantee.
    query: images of a class that a task is judged on.
    seed: of the initial parameters; the run's own key is secret.
    overrides: of further fields.
  """
  rate = tasks / PARTICIPANTS[config]
  every = max(steps // 10, 1)
  arguments: dict[str, Any] = dict(
      private=int(epsilon is not None), width=width, rate=rate, steps=steps
  )
  fields: dict[str, Any] = {
      "delta": delta,
      "evaluation.every": every,
      "checkpoint_every": every,
      "seed": seed,
  }
  if config == "glyphs":
    # Small and few: nothing is learned, all is run.
    arguments |= dict(participants=PARTICIPANTS[config], size=16)
    fields |= {"evaluation.validation_tasks": 8, "evaluation.test_tasks": 16}
  else:
    arguments["query"] = query
  if epsilon is not None:
    fields["mechanism.noise_multiplier"] = noise_multiplier(
        rate, steps, epsilon, delta
    )
  return runs_lib.Run(
      name=name,
      config=config,
      arguments=",".join(f"{k}={v}" for k, v in arguments.items()),
      overrides=fields | dict(overrides or {}),
      labels=labels,
  )
