"""Attacks on private runs: lower bounds on epsilon beside the claimed one.

The parts are loaded on first use: `bounds` needs no JAX.
"""

import importlib
from typing import Any, TYPE_CHECKING

if TYPE_CHECKING:
  from episodic_dp.auditing.attack import many_runs as many_runs
  from episodic_dp.auditing.attack import one_run as one_run
  from episodic_dp.auditing.attack import Scores as Scores
  from episodic_dp.auditing.bounds import best_threshold as best_threshold
  from episodic_dp.auditing.bounds import Bound as Bound
  from episodic_dp.auditing.bounds import lower_bound as lower_bound
  from episodic_dp.auditing.bounds import most_epsilon as most_epsilon
  from episodic_dp.auditing.bounds import one_run_bound as one_run_bound
  from episodic_dp.auditing.canaries import Canary as Canary
  from episodic_dp.auditing.canaries import many_in_one_run as many_in_one_run
  from episodic_dp.auditing.canaries import worst_case as worst_case
  from episodic_dp.auditing.populations import miniature as miniature
  from episodic_dp.auditing.runs import keys_of as keys_of
  from episodic_dp.auditing.runs import observed as observed
  from episodic_dp.auditing.runs import Releases as Releases
  from episodic_dp.auditing.runs import releases as releases

_WHERE = {
    "Bound": "bounds",
    "Canary": "canaries",
    "Releases": "runs",
    "Scores": "attack",
    "best_threshold": "bounds",
    "keys_of": "runs",
    "lower_bound": "bounds",
    "many_in_one_run": "canaries",
    "many_runs": "attack",
    "miniature": "populations",
    "most_epsilon": "bounds",
    "observed": "runs",
    "one_run": "attack",
    "one_run_bound": "bounds",
    "releases": "runs",
    "worst_case": "canaries",
}
__all__ = [*_WHERE]


def __getattr__(name: str) -> Any:
  if name in _WHERE:
    module = importlib.import_module(f"episodic_dp.auditing.{_WHERE[name]}")
    return getattr(module, name)
  raise AttributeError(
      f"module 'episodic_dp.auditing' has no attribute '{name}'"
  )


def __dir__() -> list[str]:
  return sorted({*globals(), *__all__})
