"""What an accountant composes: equal steps, and how often."""

import dataclasses

from episodic_dp.accounting.profiles import unit_profile


@dataclasses.dataclass(frozen=True)
class Phase:
  """Equal steps (or passes) of a run, seen from one level.

  Attributes:
    unit_profiles: of each kind of unit of the level; what is composed is
      their maximum.
    times: how often it is composed, at least 1.
  """

  unit_profiles: unit_profile.UnitProfiles
  times: int


Phases = tuple[Phase, ...]
