"""One interface for every way of composing steps.

An accountant turns phases (what is composed, how often) into an upper bound on
the privacy profile of the whole run, one direction at a time. What all of them
share, the charge for the sampler's error, is done here once.
"""

import abc
import math
from typing import Any, Protocol

from episodic_dp.accounting.accountants.phases import Phases
from episodic_dp.accounting.profiles.amplification import Direction


class Curve(Protocol):
  """An upper bound on one direction's privacy profile of a run."""

  def epsilon(self, delta: float) -> float:
    """The smallest epsilon >= 0 known to hold at delta, or infinity."""

  def delta(self, epsilon: float) -> float:
    """The smallest delta known to hold at epsilon >= 0, at most 1."""


class Accountant(abc.ABC):
  """Composes phases; frozen and hashable.

  Formal guarantees: for every direction, `epsilon` and `delta` are upper bounds
  on the true ones of the phases' profiles; rounding, truncation and
  discretisation only raise them.
  """

  name: str

  @abc.abstractmethod
  def curve(
      self,
      phases: Phases,
      direction: Direction,
      *,
      delta: float | None = None,
      epsilon: float | None = None,
  ) -> Curve:
    """The bound, precise near the one of delta and epsilon that is given.

    Raises:
      PlanError: the accountant cannot compose these phases.
    """

  def options(self) -> dict[str, Any]:
    """Settings that change the answer, as plain data for statements."""
    return {}

  def epsilon(
      self,
      phases: Phases,
      direction: Direction,
      delta: float,
      error: float = 0.0,
  ) -> float:
    """Epsilon of a run in one direction, or infinity.

    Args:
      phases: what is composed.
      direction: "remove" or "add".
      delta: in (0, 1).
      error: total variation between the run's sampler and the plan, all steps
        together. It holds on both neighbours, so that
        delta(epsilon) + (1 + exp(epsilon)) error is what must not exceed delta.
    """
    if 2 * error >= delta:
      return math.inf
    curve = self.curve(phases, direction, delta=delta - 2 * error)
    value = curve.epsilon(delta - 2 * error)
    if error == 0:
      return value
    for _ in range(100):
      if math.isinf(value) or math.log(error) + value >= math.log(delta):
        return math.inf
      raised = value * (1 + 1e-9)
      charged = curve.epsilon(delta - (1 + math.exp(raised)) * error)
      if charged <= raised:
        return raised
      value = charged
    return math.inf

  def delta(
      self,
      phases: Phases,
      direction: Direction,
      epsilon: float,
      error: float = 0.0,
  ) -> float:
    """Delta of a run in one direction at epsilon >= 0; see `epsilon`."""
    value = self.curve(phases, direction, epsilon=epsilon).delta(epsilon)
    if error > 0:
      charge = math.log(error) + math.log1p(math.exp(-epsilon)) + epsilon
      value += math.exp(min(charge, 0.0))
    return min(1.0, value)
