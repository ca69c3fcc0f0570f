"""One interface for every way of composing steps.

An accountant turns phases (what is composed, how often) into an upper bound on
the privacy profile of the whole run, one direction at a time. What all of them
share, the charge for the sampler's error, is done here once.
"""

import abc
import math
from typing import Any

from episodic_dp import plan as plan_lib
from episodic_dp.accounting.accountants import curves
from episodic_dp.accounting.accountants.phases import Phases
from episodic_dp.accounting.profiles.amplification import Direction


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
      enough: float = 0.0,
  ) -> curves.Curve:
    """The bound, precise near the one of delta and epsilon that is given.

    Args:
      phases: what is composed.
      direction: "remove" or "add".
      delta: in (0, 1), or None where epsilon is given.
      epsilon: at least 0, or None where delta is given.
      enough: what need not be told from less: of epsilon where delta is given,
        of delta where epsilon is. A quick bound that is no more will do.

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
      error: plan_lib.SamplerError = plan_lib.EXACT,
      enough: float = 0.0,
  ) -> float:
    """Epsilon of a run in one direction, or infinity.

    Args:
      phases: what is composed.
      direction: "remove" or "add".
      delta: in (0, 1).
      error: of the run's sampler, all steps together; see
        `curves.charge_sampler_error`.
      enough: an epsilon that need not be told from smaller ones.
    """
    left = curves.left_by_sampler(delta, error)
    if left <= 0:
      return math.inf
    curve = self.curve(phases, direction, delta=left, enough=enough)
    return curves.charge_sampler_error(curve, error).epsilon(delta)

  def delta(
      self,
      phases: Phases,
      direction: Direction,
      epsilon: float,
      error: plan_lib.SamplerError = plan_lib.EXACT,
      enough: float = 0.0,
  ) -> float:
    """Delta of a run in one direction at epsilon >= 0; see `epsilon`."""
    curve = self.curve(
        phases, direction, epsilon=epsilon,
        enough=max(enough, curves.negligible(error, epsilon)),
    )
    return min(
        1.0, curves.charge_sampler_error(curve, error).delta(epsilon)
    )
