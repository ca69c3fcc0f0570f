"""What can be asked for: steps, one of delta and epsilon, and neighbours."""

import math
from typing import Literal

import numpy as np

from episodic_dp import plan as plan_lib

Relation = Literal["add-or-remove", "replace-one"]
RELATIONS: tuple[Relation, Relation] = ("add-or-remove", "replace-one")


def check(
    steps: int, delta: float | None, epsilon: float | None
) -> None:
  """Raise PlanError unless steps and one of delta and epsilon are in range."""
  whole = isinstance(steps, (int, np.integer)) and not isinstance(steps, bool)
  if not whole or steps < 1:
    raise plan_lib.PlanError(
        f"steps {steps!r} must be a whole number of at least 1"
    )
  if (delta is None) == (epsilon is None):
    raise plan_lib.PlanError(
        f"delta {delta!r} and epsilon {epsilon!r}: give one of them, to be told"
        " the other"
    )
  if delta is not None and not is_delta(delta):
    raise plan_lib.PlanError(
        f"delta {delta!r} must lie between 0 and 1, and well below 1 / (number"
        " of units)"
    )
  if epsilon is not None and not (
      isinstance(epsilon, (int, float)) and 0 <= epsilon < math.inf
  ):
    raise plan_lib.PlanError(
        f"epsilon {epsilon!r} must be a finite number of at least 0"
    )


def is_delta(delta: float) -> bool:
  """Whether it is one: a number between 0 and 1."""
  return isinstance(delta, (int, float)) and 0 < delta < 1


def replaced(neighbours: Relation) -> bool:
  """Whether neighbours differ in a unit's data, not in its presence.

  Raises:
    PlanError: there is no such relation.
  """
  if neighbours not in RELATIONS:
    raise plan_lib.PlanError(
        f"neighbours {neighbours!r} must be one of"
        f" {', '.join(map(repr, RELATIONS))}"
    )
  return neighbours == "replace-one"
