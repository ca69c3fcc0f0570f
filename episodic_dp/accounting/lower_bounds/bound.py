"""Lower bounds on epsilon and delta of a run: what no analysis can beat."""

from collections.abc import Callable, Iterable, Mapping, Sequence
import dataclasses
import functools
import math
from typing import NamedTuple

import numpy as np
from scipy import special

from episodic_dp import plan as plan_lib
from episodic_dp.accounting import checks
from episodic_dp.accounting import run_phases
from episodic_dp.accounting.lower_bounds import candidates
from episodic_dp.accounting.lower_bounds import composition
from episodic_dp.accounting.lower_bounds import pairs
from episodic_dp.accounting.lower_bounds import passes
from episodic_dp.accounting.run_phases import Entry

# Cells of one step's outputs: to choose a data set, and for its bound.
_COARSE = 1 << 9
_FIRST_POINTS, _LAST_POINTS = 1 << 12, 1 << 16
# Of losses, a step is this many cells wide; wider where there are many steps.
_CELLS_A_STEP, _WIDEST = 2, 1 << 10
# As much of delta may be left out at the grid's ends.
_TAIL_SHARE = 1e-4
# The grid is refined until that adds less, in proportion.
_TOLERANCE = 1e-3
# So many of the data sets that look worst are computed.
_FINALISTS = 2
# A data set whose value on the coarsest grid is below this share of the first
# one's is not pursued.
_NEAR = 0.8


@dataclasses.dataclass(frozen=True)
class Question:
  """What is asked of a run; its answer is computed when it is first read.

  Attributes:
    entries: the parts of the run.
    level: the privacy unit.
    delta: to be told epsilon, or None.
    epsilon: to be told delta, or None.
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

  steps: tuple[tuple[pairs.Pair | passes.PassPair, int], ...]

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
    neighbours: checks.Relation = "add-or-remove",
) -> float:
  """Compute what epsilon (or delta) of a level is at least.

  It is the exact loss of one data set that the plan allows, with every rounding
  downwards: no analysis of this release can promise less. 0 where no data set
  is known, and where nothing is guaranteed (no noise, percentile clipping).

  Args:
    release: what a step samples and releases.
    steps: T, at least 1.
    level: the privacy unit.
    delta: in (0, 1), to be told epsilon, or None.
    epsilon: at least 0, to be told delta, or None.
    neighbours: "add-or-remove" one unit, or "replace-one".

  Raises:
    UnsoundPlanError: no guarantee is proved for the level.
    PlanError: there is no such level, or no such relation.
  """
  plan_lib.check_level(release, level)
  return of_entries(
      (Entry(release, steps),),
      level,
      delta=delta,
      epsilon=epsilon,
      replaced=checks.replaced(neighbours),
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

  Parts with different hierarchies, or with passes and without, are bounded one
  by one: the largest bound is one of the whole.
  """
  groups: list[list[Entry]] = []
  for entry in entries:
    if not entry.release.mechanism.guaranteed:
      return 0.0
    for group in groups:
      if _alike(group[0].release, entry.release):
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
  first = []
  for value, tilt, direction, run in ranked[:_FINALISTS]:
    refinement = _Refinement(
        run, direction, delta, epsilon, tilt, value, error
    )
    first.append((refinement.at(_FIRST_POINTS), refinement))
  # The first is pursued in any case, the others where they may be better.
  return max(
      (
          refinement.refined(value)
          for i, (value, refinement) in enumerate(first)
          if not i or value >= _NEAR * first[0][0]
      ),
      default=0.0,
  )


def _alike(first: plan_lib.Release, second: plan_lib.Release) -> bool:
  """Whether one data set is described for both releases."""
  kinds = {_in_passes(release) for release in (first, second)}
  return len(kinds) == 1 and first.hierarchy.same_tree(second.hierarchy)


def _in_passes(release: plan_lib.Release) -> bool:
  return isinstance(release.plan.stages[0], plan_lib.RandomAllocation)


def _runs(
    entries: Sequence[Entry], level: str, replaced: bool
) -> list[_Run]:
  """Every data set that all parts have, once."""
  if _in_passes(entries[0].release):
    return _runs_of_passes(entries, level, replaced)
  found: list[Mapping[candidates.Key, pairs.Pair]] = [
      dict(candidates.candidates(e.release, level, replaced=replaced))
      for e in entries
  ]
  return _different(
      tuple((one[key], e.steps) for one, e in zip(found, entries))
      for key in found[0]
      if all(key in one for one in found)
  )


def _runs_of_passes(
    entries: Sequence[Entry], level: str, replaced: bool
) -> list[_Run]:
  """The same for passes over the units; none where a unit is replaced."""
  if replaced:
    return []
  found = [
      dict(candidates.pass_candidates(e.release, level)) for e in entries
  ]
  return _different(
      tuple(
          part
          for one, e in zip(found, entries)
          for part in _passes(one[key], e, way)
      )
      for key in found[0]
      if all(key in one for one in found)
      for way in passes.WAYS
  )


def _passes(
    pair: pairs.Pair, entry: Entry, way: float | None
) -> list[tuple[passes.PassPair, int]]:
  """The whole passes of an entry, and the last one that was cut short."""
  stage = entry.release.plan.stages[0]
  assert isinstance(stage, plan_lib.RandomAllocation)
  whole, rest = divmod(entry.steps, stage.steps)
  return [
      (passes.PassPair(pair, stage.steps, observed, way), times)
      for observed, times in ((stage.steps, whole), (rest, int(rest > 0)))
      if times
  ]


def _different(
    steps: Iterable[tuple[tuple[pairs.Pair | passes.PassPair, int], ...]]
) -> list[_Run]:
  """A run for each, but one for those that are equal."""
  return list(
      {tuple(pair.key for pair, _ in one): _Run(one) for one in steps}.values()
  )


@dataclasses.dataclass(frozen=True)
class _Refinement:
  """The bound of one data set on grids that become finer.

  Attributes:
    run: the data set.
    direction: of the loss.
    delta: to be told epsilon, or None.
    epsilon: to be told delta, or None.
    tilt: where losses of interest are likely.
    estimate: about epsilon or ln delta, from above.
    error: the sampler's.
  """

  run: _Run
  direction: pairs.Direction
  delta: float | None
  epsilon: float | None
  tilt: float
  estimate: float
  error: plan_lib.SamplerError

  def figure(self, profile: Callable[[float], float], lost: float) -> float:
    """Epsilon or delta of a lower bound on the ideal plan's profile.

    Args:
      profile: epsilon -> delta.
      lost: the total variation that it does not cover.
    """
    # Losses are right to `ROUNDING` a step; the drawn P and Q are those of the
    # plan up to a ratio, and `lost`.
    steps = self.run.steps
    slack = sum(t for _, t in steps) * pairs.ROUNDING + 2 * self.error.log_ratio
    lost += self.error.tails

    def value(at: float) -> float:
      charge = (1 + math.exp(min(at, 700.0))) * lost if lost else 0.0
      share = math.exp(-self.error.log_ratio)
      return profile(at + slack) * share - charge

    if self.epsilon is not None:
      return max(value(self.epsilon), 0.0)
    delta = self.delta
    assert delta is not None
    return composition.largest_epsilon(
        lambda at: value(at) >= delta, 1.01 * max(self.estimate, 0.0) + 1e-9
    )

  def at(self, points: int) -> float:
    """The bound on a grid of so many cells; 0 where it is too long."""
    exact = _gaussian(self.run)
    if exact is not None:
      return self.figure(exact, 0.0)
    small = self.delta
    if small is None:
      small = math.exp(min(max(self.estimate, -660.0), 0.0))
    steps = self.run.losses(self.direction, _TAIL_SHARE * small, points)
    widest = max(float(np.ptp(s.losses.losses)) for s in steps)
    if not widest > 0:
      return 0.0
    bound, cells = None, _CELLS_A_STEP
    while bound is None and cells <= _WIDEST:
      bound = composition.compose(steps, cells * widest / points, self.tilt)
      cells *= 4
    lost = sum(s.times * s.losses.lost for s in steps)
    return self.figure(bound.delta, lost) if bound is not None else 0.0

  def refined(self, first: float) -> float:
    """The best bound; `first` is that of the coarsest grid."""
    best, points = first, _FIRST_POINTS
    if _gaussian(self.run) is not None:
      return best
    while points < _LAST_POINTS:
      points *= 4
      found = self.at(points)
      if found <= best * (1 + 15 * _TOLERANCE):
        return max(best, found)
      best = max(best, found)
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
