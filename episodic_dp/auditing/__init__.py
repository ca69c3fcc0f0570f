"""Attacks on private runs: lower bounds on epsilon next to the claimed one."""

from episodic_dp.auditing.attack import many_runs
from episodic_dp.auditing.bounds import lower_bound
from episodic_dp.auditing.canaries import worst_case

__all__ = ["lower_bound", "many_runs", "worst_case"]


def __dir__() -> list[str]:
  return __all__
