"""Attacks on private runs: lower bounds on epsilon next to the claimed one."""

from episodic_dp.auditing.attack import many_runs
from episodic_dp.auditing.bounds import measure_epsilon
from episodic_dp.auditing.canaries import worst_case

__all__ = ["many_runs", "measure_epsilon", "worst_case"]

__dir__ = __all__.copy
