"""The code's answer to one combination: what is guaranteed, or why not."""

from collections.abc import Mapping
import dataclasses
import functools
import math
from typing import Any

import jax
import optax

from episodic_dp import accounting
from episodic_dp import plan as plan_lib
from episodic_dp import private
from experiments.evidence import plans
from experiments.evidence.learners import cases

DELTA = 1e-5
REFUSALS = (plan_lib.PlanError, plan_lib.UnsoundPlanError)
# Level -> epsilon, or why there is none.
Levels = Mapping[str, float | plans.Refusal]


@dataclasses.dataclass(frozen=True)
class Answer:
  """What training and accounting say.

  Attributes:
    training: None where `make_meta_step` makes a step, or its refusal.
    levels: what `accounting.guarantee` says of every level; empty where plan
      or mechanism cannot be made.
  """

  training: plans.Refusal | None
  levels: Levels

  @property
  def protected(self) -> dict[str, float]:
    """Level -> epsilon of a step that is made."""
    if self.training is not None:
      return {}
    return {
        level: found for level, found in self.levels.items()
        if not isinstance(found, plans.Refusal)
    }

  @property
  def refusal(self) -> plans.Refusal | None:
    """Why nothing is protected, or None."""
    if self.protected:
      return None
    return self.training or next(
        found for found in self.levels.values()
        if isinstance(found, plans.Refusal)
    )


def ask(
    variant: cases.Variant,
    norm: str,
    unit: cases.Unit,
    first: plan_lib.Stage,
    **clipping: Any,
) -> Answer:
  """Makes the plan, the guarantees and the step.

  Args:
    variant: the learner.
    norm: of its network.
    unit: what is clipped.
    first: how primary units are drawn.
    **clipping: further fields of the mechanism.
  """
  try:
    plan = unit.plan(first)
    way = plan.episode.way if plan.episode else cases.WAY
    learner = variant.build(norm, way)
    mechanism = unit.mechanism(learner, **clipping)
  except REFUSALS as e:
    return Answer(_refusal(e), {})
  levels = _guarantees(unit.hierarchy, plan, mechanism)
  try:
    private.make_meta_step(
        learner, optax.sgd(1.0), unit.dataset, plan, mechanism
    )
  except REFUSALS as e:
    return Answer(_refusal(e), levels)
  except ValueError as e:
    if str(e) != _without_parameters(learner):
      raise
    return Answer(_refusal(e), levels)
  return Answer(None, levels)


def _without_parameters(learner: Any) -> str:
  """Why the learner is none for this network, or ""."""
  try:
    jax.eval_shape(learner.init, jax.random.key(0))
  except ValueError as e:
    return str(e)
  return ""


@functools.cache
def _guarantees(hierarchy, plan, mechanism) -> Levels:
  found: dict[str, float | plans.Refusal] = {}
  for level in hierarchy.levels:
    try:
      g = accounting.guarantee(
          hierarchy, plan, mechanism, steps=cases.STEPS, delta=DELTA,
          level=level,
      )
    except REFUSALS as e:
      found[level] = _refusal(e)
      continue
    found[level] = (
        g.epsilon if math.isfinite(g.epsilon)
        else plans.Refusal(g.caveat or "epsilon is infinite", True)
    )
  return found


def _refusal(error: ValueError) -> plans.Refusal:
  return plans.Refusal(
      str(error), isinstance(error, plan_lib.UnsoundPlanError)
  )
