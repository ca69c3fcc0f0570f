"""PyTorch's ways to the sum of one case: which are quickest, and what it is.

Named "ghost, side by side": how it is computed (`torch_shared`), and by which
processes (`workers`).
"""

from collections.abc import Callable, Mapping
import functools
from typing import Any

from experiments.benchmarks import harness
from experiments.benchmarks import shared_problem
from experiments.benchmarks import sums
from experiments.benchmarks import workers

WAYS = ("loop", "vmap", "ghost")
_LONG = 3.0  # Seconds: a trial that takes longer is not repeated.


class Peers:
  """Programs that workers hold until the next ones are made."""

  def __init__(self, pools: Mapping[str, workers.Workers]) -> None:
    self._pools = pools

  def trial(
      self, problem: shared_problem.Problem
  ) -> tuple[dict[str, float], dict[str, float]]:
    """Name -> seconds of every way, and how far its sum is from float64's."""
    self.clear()
    seconds: dict[str, float] = {}
    totals: dict[str, Any] = {}
    # One thread each first: several wait by spinning, on a busy machine long.
    for arrangement in reversed(list(self._pools)):
      for way in WAYS:
        name = f"{way}, {arrangement}"
        run = self.start(name, problem)
        took = run().seconds  # A little of it warms up, and tries.
        if took < _LONG:
          took = run().seconds
        seconds[name], totals[name] = took, self.total(name)
    exact = self.exact(problem)
    self.clear()
    return seconds, {n: sums.difference(t, exact) for n, t in totals.items()}

  def start(
      self, name: str, problem: shared_problem.Problem
  ) -> Callable[[], harness.Turn]:
    """Makes a program; the function that runs it."""
    way, arrangement = name.split(", ")
    pool = self._pools[arrangement]
    parts = [problem.part(i, pool.count) for i in range(pool.count)]
    pool.make(way, "torch_shared.make", [(way, part) for part in parts])
    return functools.partial(pool.run, way)

  def total(self, name: str) -> Any:
    """The sum that a program finds."""
    way, arrangement = name.split(", ")
    return sums.added(self._pools[arrangement].values(way))

  def exact(self, problem: shared_problem.Problem) -> Any:
    """The sum by loops in float64, which take the place of others."""
    name = f"loop, {workers.SIDE_BY_SIDE}"
    self.start(name, problem._replace(dtype="float64"))
    return self.total(name)

  def clear(self) -> None:
    """Drops all programs."""
    for pool in self._pools.values():
      pool.clear()
