"""The one-step privacy profile of a level: the largest over its units."""

from typing import Any, Protocol, runtime_checkable

import numpy as np

from episodic_dp.accounting.profiles.amplification import Direction


class UnitProfile(Protocol):
  """What one step does to one kind of privacy unit; hashable.

  Implemented by `Amplification` (a tree of partitions), `RandomCount` (a random
  number of clip units under the unit), `Averaged` (over what its siblings
  draw), `Recurrence` (records that recur across the tasks of a step) and
  `Allocation` (one pass over the units, taken as one step), among others.
  """

  @property
  def tail(self) -> tuple[float, float] | None:
    """A bound (weight, d) on the tails; None where nothing like it holds.

    For alpha >= 1 and both directions the divergence is at most
    weight H_alpha(N(d) || N(0)).
    """

  def divergence(
      self, log_alpha: np.ndarray, direction: Direction
  ) -> np.ndarray:
    """An upper bound on H_alpha, float64[n], convex in alpha >= 1."""

  def as_dict(self) -> dict[str, Any]:
    """Plain data for statements."""


@runtime_checkable
class WithMoments(Protocol):
  """A `UnitProfile` whose Renyi moments are not read off its divergences."""

  def log_moments(
      self, direction: Direction, orders: tuple[float, ...]
  ) -> np.ndarray:
    """ln E_Q (P/Q)^order or more, float64[orders], for orders above 1."""


UnitProfiles = tuple[UnitProfile, ...]


def excess(
    unit_profiles: UnitProfiles, log_alpha: np.ndarray,
    direction: Direction
) -> np.ndarray:
  """f(alpha) - (1 - alpha)_+, pointwise the largest over kinds of units.

  f is the direction's profile for every alpha > 0. Below alpha = 1 it is
  1 - alpha + alpha H_(1/alpha) of the other direction, so that each side is
  computed directly: turning one side into the other by arithmetic cancels.
  A maximum of convex functions is convex, so ragged hierarchies compose too.
  """
  log_alpha = np.asarray(log_alpha, float)
  other: Direction = "add" if direction == "remove" else "remove"
  result = np.zeros_like(log_alpha)
  above = log_alpha >= 0
  for kind in unit_profiles:
    if above.any():
      result[above] = np.maximum(
          result[above], kind.divergence(log_alpha[above], direction)
      )
    if not above.all():
      low = log_alpha[~above]
      value = np.exp(low) * kind.divergence(-low, other)
      result[~above] = np.maximum(result[~above], value)
  return result


def profile(
    unit_profiles: UnitProfiles, log_alpha: np.ndarray,
    direction: Direction
) -> np.ndarray:
  """The one-step privacy profile delta(ln alpha), for every alpha > 0."""
  log_alpha = np.asarray(log_alpha, float)
  base = np.where(log_alpha < 0, -np.expm1(np.minimum(log_alpha, 0.0)), 0.0)
  return np.minimum(base + excess(unit_profiles, log_alpha, direction), 1.0)
