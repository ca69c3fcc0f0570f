"""The tables of docs/choosing.md: the score against accuracies, and [M]'s rule.

[M] is "Meta-Learning with Differential Privacy" (DP-MAML), whose section 6.3.5
is a guideline for the percentile k of the clip norm, for z and for L.
"""

import json
import pathlib

from episodic_dp import accounting
from episodic_dp import plan as plan_lib
from episodic_dp.analysis import alignment
from episodic_dp.analysis import propose
from episodic_dp.config import RunConfig
from experiments.evidence import pages
from experiments.targets import budget

_ROOT = pathlib.Path(__file__).resolve().parents[2]
FILE = _ROOT / "docs" / "choosing.md"
_RESULTS = _ROOT / "experiments" / "results" / "budget.json"
_PERCENTILE = 0.9  # k, of [M].
# Participants, each of whom takes part once, and z.
_GUIDED = (
    (25_000, 2.0), (100_000, 2.0), (400_000, 1.0), (400_000, 2.0),
    (400_000, 3.0),
)  # fmt: skip
_DELTA, _LEVEL = 1e-6, "participant"


def measured() -> tuple[RunConfig, alignment.Measured]:
  """A run of the target `budget`, and what glyphs tell of its gradients."""
  run = budget.runs("cpu")[1]
  config = RunConfig.parse(run.load())
  return config, alignment.measure(config, "glyphs")


def _problem(
    config: RunConfig, found: alignment.Measured, epsilon: float
) -> propose.Problem:
  clip_norm = propose.clip_norm(found.start, found.warm)
  return propose.Problem(
      config=config, epsilon=epsilon, delta=_DELTA, level=_LEVEL,
      clip_norm=clip_norm, gradient=found.clipped(clip_norm),
  )  # fmt: skip


def accuracies(
    config: RunConfig, found: alignment.Measured
) -> pages.Table:
  """The score of the runs of budget.json of one network and one budget."""
  gradient = _problem(config, found, budget.EPSILON).gradient
  outcomes = json.loads(_RESULTS.read_text(encoding="utf-8"))["runs"]
  rows = []
  for outcome in outcomes.values():
    labels, score = outcome["labels"], outcome["accuracy"]["single"]
    if labels["width"] == config.model.width:
      share = gradient.share(labels["tasks"], outcome["noise_multiplier"])
      rows.append((
          labels["tasks"], labels["steps"], outcome["noise_multiplier"],
          labels["steps"] * share, 100 * score["mean"],
          50 * (score["high"] - score["low"]),
      ))  # fmt: skip
  return pages.Table(
      ("tasks a step", "steps", "noise multiplier", "effective steps",
       "test accuracy, %", "95 % interval, ±"),
      tuple(rows),
  )  # fmt: skip


def guideline(
    config: RunConfig, found: alignment.Measured
) -> pages.Table:
  """[M]'s largest L, and what the tool proposes at the same epsilon."""
  # [M] takes the percentile anew as the norms fall.
  at_percentile = alignment.halfway(
      *(m.clipped(m.quantile(_PERCENTILE)) for m in (found.start, found.warm))
  )
  rows = []
  for participants, z in _GUIDED:
    tasks = participants / (16 * z)
    steps = round(16 * z)
    release = _release(tasks / participants, z)
    exact, moments = (
        accounting.guarantee(
            release, steps=steps, delta=_DELTA, level=_LEVEL, accountant=name
        ).epsilon
        for name in ("pld", "moments")
    )
    chosen = config.data.options
    changed = config.with_changes({
        "data.options.participants": participants,
        "hierarchy.sizes": (
            participants, chosen["way"], chosen["per_class"]
        ),
        "hierarchy.most_copies": None,
    })
    problem = _problem(changed, found, exact)
    best = problem.choose(participants)[1]
    rows.append((
        participants, z, round(tasks), steps, moments, exact,
        steps * at_percentile.share(tasks, z),
        steps * problem.gradient.share(tasks, z),
        round(best.tasks), best.steps, best.noise_multiplier, best.epsilon,
        best.score,
    ))  # fmt: skip
  return pages.Table(
      ("N", "z", "L = N / 16z", "steps", "ε by moments", "ε",
       "effective steps, k = 90", "with plan's clip norm", "L of plan",
       "its steps", "its z", "its ε", "its effective steps"),
      tuple(rows),
  )  # fmt: skip


def _release(rate: float, noise_multiplier: float) -> plan_lib.Release:
  """Participants of whom a step draws each with a rate."""
  return plan_lib.Release(
      plan_lib.Hierarchy.regular((1000,), levels=(_LEVEL,)),
      plan_lib.SamplingPlan((plan_lib.Poisson(rate),)),
      plan_lib.Mechanism(
          clip_unit=_LEVEL, clip_norm=1.0, noise_multiplier=noise_multiplier
      ),
  )


def document() -> str:
  """The page with its tables as the code computes them."""
  config, found = measured()
  tables = {
      "accuracies": accuracies(config, found),
      "guideline": guideline(config, found),
  }
  return pages.filled(FILE.read_text(encoding="utf-8"), "choosing", tables)
