"""Attacks on private runs: lower bounds on epsilon beside the claimed one.

The parts are loaded on first use: `bounds` needs no JAX.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
  from episodic_dp.auditing.bounds import Bound as Bound
  from episodic_dp.auditing.bounds import lower_bound as lower_bound
  from episodic_dp.auditing.bounds import most_epsilon as most_epsilon
  from episodic_dp.auditing.bounds import one_run_bound as one_run_bound
  from episodic_dp.auditing.runs import keys_of as keys_of
  from episodic_dp.auditing.runs import observed as observed
  from episodic_dp.auditing.runs import Releases as Releases
  from episodic_dp.auditing.runs import releases as releases

_WHERE = {
    "Bound": "bounds",
    "Releases": "runs",
    "keys_of": "runs",
    "lower_bound": "bounds",
    "most_epsilon": "bounds",
    "observed": "runs",
    "one_run_bound": "bounds",
    "releases": "runs",
}
__all__ = [*_WHERE]  # noqa: PLE0605


def __getattr__(name: str) -> Any:
  if name in _WHERE:
    module = importlib.import_module(f"episodic_dp.auditing.{_WHERE[name]}")
    return getattr(module, name)
  raise AttributeError(
      f"module 'episodic_dp.auditing' has no attribute '{name}'"
  )


def __dir__() -> list[str]:
  return sorted({*globals(), *__all__})
