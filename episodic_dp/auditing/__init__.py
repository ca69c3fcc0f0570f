"""Attacks on private runs: lower bounds on epsilon next to the claimed one.

The parts are loaded on first use: `bounds` needs no JAX.
"""

import importlib
from typing import Any, TYPE_CHECKING

if TYPE_CHECKING:
  from episodic_dp.auditing.attack import many_runs as many_runs
  from episodic_dp.auditing.bounds import lower_bound as lower_bound
  from episodic_dp.auditing.canaries import worst_case as worst_case

__all__ = ["lower_bound", "many_runs", "worst_case"]

_WHERE = {
    "lower_bound": "bounds", "many_runs": "attack", "worst_case": "canaries"
}


def __getattr__(name: str) -> Any:
  if name in _WHERE:
    module = importlib.import_module(f"episodic_dp.auditing.{_WHERE[name]}")
    return getattr(module, name)
  raise AttributeError(
      f"module 'episodic_dp.auditing' has no attribute '{name}'"
  )
