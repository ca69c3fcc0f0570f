"""A run as phases: what is composed, and how often."""

import dataclasses

from episodic_dp.accounting import profile


@dataclasses.dataclass(frozen=True)
class Phase:
  """Equal steps (or passes) of a run.

  Attributes:
    kinds: the kinds of units of the level; the profile is their maximum.
    times: how often it is composed, at least 1.
  """

  kinds: profile.Kinds
  times: int


Phases = tuple[Phase, ...]
