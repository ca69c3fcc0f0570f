"""Lower bounds on epsilon and delta of a run: what no analysis can beat."""

from collections.abc import Callable, Mapping, Sequence
import dataclasses
import functools
import math
from typing import NamedTuple

import numpy as np
from scipy import special

from episodic_dp import plan as plan_lib
from episodic_dp.accounting import run_phases
from episodic_dp.accounting.lower_bounds import candidates
from episodic_dp.accounting.lower_bounds import composition
from episodic_dp.accounting.lower_bounds import pairs
from episodic_dp.accounting.run_phases import Entry

# Cells of one step's outputs: to choose a data set, and for its bound.
_COARSE = 1 << 9
_FIRST_POINTS, _LAST_POINTS = 1 << 12, 1 << 16
# As much of delta may be left out at the grid's ends.
_TAIL_SHARE = 1e-4
# The grid is refined until that adds less, in proportion.
_TOLERANCE = 5e-4
# So many of the data sets that look worst are computed.
_FINALISTS = 2


@dataclasses.dataclass(frozen=True)
class Question:
  """What is asked of a run; its answer is computed when it is first read.

  Attributes:
    entries: the parts of the run.
    level: the privacy unit.
    delta: to be told epsilon; or
    epsilon: to be told delta.
    replaced: neighbours differ in a unit's data, not in its presence.
  """

  entries: tuple[Entry, ...]
  level: str
  delta: float | None
  epsilon: float | None
  replaced: bool

  @functools.cached_property
  def answer(self) -> float:
    """A lower bound on epsilon (or delta); 0 where none is known."""
    return of_entries(
        self.entries, self.level, delta=self.delta, epsilon=self.epsilon,
        replaced=self.replaced,
    )


class _Run(NamedTuple):
  """One data set in all steps of a run, or of a part of it."""

  steps: tuple[tuple[pairs.Pair, int], ...]

  def losses(
      self, direction: pairs.Direction, tail: float, points: int
  ) -> list[composition.Step]:
    times = sum(t for _, t in self.steps)
    return [
        composition.Step(pair.losses(direction, tail / times, points), t)
        for pair, t in self.steps
    ]


def lower_bound(
    release: plan_lib.Release,
    *,
    steps: int,
    level: str,
    delta: float | None = None,
    epsilon: float | None = None,
    neighbours: str = "add-or-remove",
) -> float:
  """Compute what epsilon (or delta) of a level is at least.

  It is the exact loss of one data set that the plan allows, with every rounding
  downwards: no analysis of this release can promise less. 0 where no data set
  is known, and where nothing is guaranteed (no noise, percentile clipping).

  Args:
    release: what a step samples and releases.
    steps: T, at least 1.
    level: the privacy unit.
    delta: in (0, 1), to be told epsilon; or
    epsilon: at least 0, to be told delta.
    neighbours: "add-or-remove" one unit, or "replace-one".

  Raises:
    UnsoundPlanError: no guarantee is proved for the level.
    PlanError: there is no such level.
  """
  plan_lib.check_level(release, level)
  return of_entries(
      (Entry(release, steps),),
      level,
      delta=delta,
      epsilon=epsilon,
      replaced=neighbours == "replace-one",
  )


def of_entries(
    entries: Sequence[Entry],
    level: str,
    *,
    delta: float | None = None,
    epsilon: float | None = None,
    replaced: bool = False,
) -> float:
  """Compute `lower_bound` of several parts of a run.

  Parts with different hierarchies are bounded one by one: the largest bound is
  one of the whole.
  """
  groups: list[list[Entry]] = []
  for entry in entries:
    if not entry.release.mechanism.guaranteed:
      return 0.0
    if isinstance(entry.release.plan.stages[0], plan_lib.RandomAllocation):
      continue
    for group in groups:
      if group[0].release.hierarchy.same_tree(entry.release.hierarchy):
        group.append(entry)
        break
    else:
      groups.append([entry])
  error = run_phases.sampler_error(entries)
  return max(
      (
          _of_group(group, level, delta, epsilon, replaced, error)
          for group in groups
      ),
      default=0.0,
  )


def _of_group(
    entries: Sequence[Entry],
    level: str,
    delta: float | None,
    epsilon: float | None,
    replaced: bool,
    error: plan_lib.SamplerError,
) -> float:
  """The bound for parts with one hierarchy."""
  runs = _runs(entries, level, replaced)
  ranked = []
  for run in runs:
    for direction in pairs.DIRECTIONS:
      steps = run.losses(direction, _TAIL_SHARE * (delta or 1e-9), _COARSE)
      moments = composition.log_moments(steps)
      value, tilt = composition.estimate(moments, delta, epsilon)
      ranked.append((value, tilt, direction, run))
  ranked.sort(key=lambda row: -row[0])
  best = 0.0
  for value, tilt, direction, run in ranked[:_FINALISTS]:
    # The moment bound is one from above: less than the best is no use.
    if delta is not None and value <= best:
      continue
    found = _refined(run, direction, delta, epsilon, tilt, value, error)
    best = max(best, found)
  return best


def _runs(
    entries: Sequence[Entry], level: str, replaced: bool
) -> list[_Run]:
  """Every data set that all parts have, once."""
  found: list[Mapping[candidates.Key, pairs.Pair]] = [
      dict(candidates.candidates(e.release, level, replaced=replaced))
      for e in entries
  ]
  result = {}
  for key in found[0]:
    if all(key in one for one in found):
      steps = tuple((one[key], e.steps) for one, e in zip(found, entries))
      seen = tuple(
          b"".join(
              np.round(a, 12).tobytes()
              for a in (pair.means - pair.means[0], pair.larger, pair.smaller)
          )
          for pair, _ in steps
      )
      result[seen] = _Run(steps)
  return list(result.values())


def _refined(
    run: _Run,
    direction: pairs.Direction,
    delta: float | None,
    epsilon: float | None,
    tilt: float,
    estimate: float,
    error: plan_lib.SamplerError,
) -> float:
  """The bound of one data set on grids that become finer."""
  exact = _gaussian(run)
  times = sum(t for _, t in run.steps)
  lost = error.tails + sum(t * pair.lost for pair, t in run.steps)
  small = delta if delta is not None else math.exp(max(estimate, -690.0))
  tail = _TAIL_SHARE * max(small, 1e-290)

  def figure(profile: Callable[[float], float]) -> float:
    # Losses are right to `ROUNDING` a step; the drawn P and Q are those of the
    # plan up to a ratio, and `lost`.
    slack = times * pairs.ROUNDING + 2 * error.log_ratio

    def value(at: float) -> float:
      charge = (1 + math.exp(min(at, 700.0))) * lost if lost else 0.0
      return profile(at + slack) * math.exp(-error.log_ratio) - charge

    if epsilon is not None:
      return max(value(epsilon), 0.0)
    assert delta is not None
    return composition.largest_epsilon(
        lambda at: value(at) >= delta, 1.01 * max(estimate, 0.0) + 1e-9
    )

  if exact is not None:
    return figure(exact)
  best, points = 0.0, _FIRST_POINTS
  while points <= _LAST_POINTS:
    steps = run.losses(direction, tail, points)
    widest = max(float(np.ptp(s.losses.losses)) for s in steps)
    bound = composition.compose(steps, 2 * widest / points, tilt)
    value = figure(bound.delta) if bound is not None else 0.0
    before, best = best, max(best, value)
    if before > 0 and best - before <= 15 * _TOLERANCE * best:
      break
    points *= 4
  return best


def _gaussian(run: _Run) -> Callable[[float], float] | None:
  """The profile of a run that is one Gaussian at a distance; else None."""
  squares = 0.0
  for pair, times in run.steps:
    if pair.distance is None:
      return None
    squares += times * pair.distance**2
  d = math.sqrt(squares)

  def delta(epsilon: float) -> float:
    first = float(special.log_ndtr(d / 2 - epsilon / d))
    second = epsilon + float(special.log_ndtr(-d / 2 - epsilon / d))
    if second >= first:
      return 0.0
    return math.exp(first) * -math.expm1(second - first) * (1 - 1e-9)

  return delta
