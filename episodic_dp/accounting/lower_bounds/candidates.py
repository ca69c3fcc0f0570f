"""Pairs of outputs of one step that a release allows: candidates for the worst.

Each is what one data set and its neighbour release, exactly. They are built
from the hierarchy, the plan and the mechanism alone, and share nothing with the
distances and profiles of the upper bounds: an error there shows as an epsilon
below the lower bound.

Where the clip norm follows a noised count, the count is not looked at.
"""

from collections.abc import Iterator
import dataclasses
import math

import numpy as np
from scipy import special

from episodic_dp import plan as plan_lib
from episodic_dp.accounting.lower_bounds import data_sets
from episodic_dp.accounting.lower_bounds import laws
from episodic_dp.accounting.lower_bounds import pairs
from episodic_dp.accounting.lower_bounds import paths

# (unit, gradients): the same for all parts of a run.
Key = tuple[int, str]
Sums = data_sets.Sums

# Numbers that an adapted task's gradient takes, to either side of 0.
_LEVELS = 12
# How far beyond their means inner sums are told apart, in deviations.
_INNER_REACH = 4.0


def candidates(
    release: plan_lib.Release, level: str, *, replaced: bool = False
) -> Iterator[tuple[Key, pairs.Pair]]:
  """Yield pairs of outputs of a step that draws afresh.

  Args:
    release: with noise that covers all that is released.
    level: the privacy unit.
    replaced: the neighbour has another unit in t's place, with the opposite
      gradient, instead of lacking it.
  """
  k = release.hierarchy.level_index(level)
  z = release.mechanism.gradient_noise_multiplier
  for key, spacing, make in _all_sums(release, k):
    try:
      larger, smaller = make(1)
      if replaced:
        smaller = make(-1).larger
      found = pairs.pair_of(larger, smaller, spacing / z)
    except laws.TooWideError:
      continue
    if pairs.differs(found):
      yield key, found


def pass_candidates(
    release: plan_lib.Release, level: str
) -> Iterator[tuple[Key, pairs.Pair]]:
  """Yield what the step that uses t's primary unit releases, with t or without.

  Only data sets of which no trace is left without t: then all other steps, and
  without t this one too, release noise around 0.
  """
  hierarchy, clip = release.hierarchy, release.clip_level
  k = hierarchy.level_index(level)
  spacing = 1.0
  if release.sample_level:
    release, clip, spacing = _query_sums(release, k)
  for path in paths.paths(release, k, clip):
    values = data_sets.Values(
        (0,) * min(clip + 1, k + 1), (0,) * max(k - clip, 0)
    )
    try:
      if k == 0 and clip >= 0:
        larger, smaller = path.own, laws.point(0)
      else:
        larger, smaller = data_sets.sums_in_primary(
            path, clip, values, tasks=release.plan.episode is not None
        )
      found = pairs.pair_of(
          larger, smaller,
          spacing / release.mechanism.gradient_noise_multiplier,
      )
    except laws.TooWideError:
      continue
    if pairs.differs(found):
      yield (path.unit, str(values)), found


_Made = Iterator[tuple[Key, float, "_Maker"]]


@dataclasses.dataclass(frozen=True)
class _Maker:
  """Sums of a step for the gradient +1 or -1 of the unit.

  Attributes:
    release: what a step samples.
    path: to the unit.
    clip: the level of clip units, or -1.
    values: the gradients.
  """

  release: plan_lib.Release
  path: paths.Path
  clip: int
  values: data_sets.Values

  def __call__(self, own: int) -> Sums:
    raise NotImplementedError

  def within(self, own: int) -> Sums:
    """The sums of one drawn primary unit, or of one task."""
    return data_sets.sums_in_primary(
        self.path, self.clip, self.values._replace(own=own), tasks=self.tasks
    )

  @property
  def tasks(self) -> bool:
    """Whether units with too few children leave a task short."""
    return self.release.plan.episode is not None


class _Tree(_Maker):
  """A tree of partitions."""

  def __call__(self, own: int) -> Sums:
    return data_sets.sums(
        self.path, self.clip, self.values._replace(own=own), tasks=self.tasks
    )


class _OneTask(_Maker):
  """One of the tasks may hold the unit, the others are as without it."""

  def __call__(self, own: int) -> Sums:
    return self.within(own)


class _Independent(_Maker):
  """Each task draws from the whole pool."""

  def __call__(self, own: int) -> Sums:
    episode = self.release.plan.episode
    assert episode is not None and episode.tasks is not None
    tasks = episode.tasks
    return Sums(*(laws.power(law, tasks) for law in self.within(own)))


class _Copied(_Maker):
  """As many primary units as are allowed hold the record."""

  def __call__(self, own: int) -> Sums:
    # Lazy import: half of what it takes to import the accountant.
    from scipy import stats

    hierarchy = self.release.hierarchy
    assert hierarchy.most_copies is not None
    first = self.path.stages[0]
    holders = hierarchy.most_copies[len(self.path.stages) - 1]
    law = self.within(own)
    if not isinstance(first.stage, plan_lib.FixedSize) or first.rate == 1:
      return Sums(*(
          laws.power(laws.thinned(one, first.rate), holders) for one in law
      ))
    n, units = first.stage.n, first.children
    counts = np.arange(max(0, n + holders - units), min(holders, n) + 1)
    weights = stats.hypergeom.pmf(counts, units, holders, n)
    weights = weights / math.fsum(weights)
    others = first.sibling or laws.point(0)
    return Sums(*(
        laws.mix(
            (
                float(w),
                laws.add(
                    laws.power(one, int(h)),
                    laws.times(
                        laws.power(others, n - int(h)), self.values.beside[0]
                    ),
                ),
            )
            for h, w in zip(counts, weights)
        )
        for one in law
    ))


class _Blocks(_Maker):
  """Units of several classes, in tasks cut out of the drawn classes."""

  def __call__(self, own: int) -> Sums:
    plan, hierarchy = self.release.plan, self.release.hierarchy
    assert plan.episode is not None
    way, k = plan.episode.way, len(self.path.stages) - 1
    drawn = plan_lib.capacities(hierarchy, plan)
    block = math.prod(drawn[k + 1 : self.release.clip_level + 1])
    places = math.prod(drawn[: k + 1])
    touched = laws.mix(
        (1 / places, laws.point(_tasks(m * block, block, way)))
        for m in range(places)
    )
    rate = math.prod(stage.rate for stage in self.path.stages)
    # Tasks that do not hold t give -1; where t is always drawn, 0, since there
    # may be fewer of them without it.
    moved = laws.times(touched, own + 1 if rate < 1 else own)
    return Sums(laws.thinned(moved, rate), laws.point(0))


class _Adapted(_Maker):
  """A support example seen through the outer gradients of its task.

  Its S inner steps release sums around 0 or around mu = 2 sqrt(S) / z_inner, in
  deviations (other support examples give -1, t gives +1), of which the adapted
  weights are a function, and the gradients of the task's query examples are a
  function of these: one of 2 m + 1 multiples of C, rising with the sum.
  """

  def __call__(self, own: int) -> Sums:
    mechanism = self.release.mechanism
    assert mechanism.inner_noise_multiplier and mechanism.inner_steps
    moved = (
        2 * math.sqrt(mechanism.inner_steps) / mechanism.inner_noise_multiplier
    )
    if own < 0:
      moved = 0.0
    first = self.path.stages[0]
    inside = math.prod(stage.rate for stage in self.path.stages[1:])
    ends = np.linspace(-_INNER_REACH, self._reach(), 2 * _LEVELS)

    def levels(mean: float) -> laws.Law:
      below = special.ndtr(ends - mean)
      above = special.ndtr(mean - ends)
      cells = np.where(
          ends[1:] < mean, below[1:] - below[:-1], above[:-1] - above[1:]
      )
      return laws.Law(
          -_LEVELS, np.concatenate([below[:1], cells, above[-1:]])
      )

    without = levels(0.0)
    with_t = laws.mix(((inside, levels(moved)), (1 - inside, without)))
    return Sums(
        laws.thinned(with_t, first.rate), laws.thinned(without, first.rate)
    )

  def _reach(self) -> float:
    mechanism = self.release.mechanism
    assert mechanism.inner_noise_multiplier and mechanism.inner_steps
    return _INNER_REACH + (
        2 * math.sqrt(mechanism.inner_steps) / mechanism.inner_noise_multiplier
    )


def _all_sums(release: plan_lib.Release, k: int) -> _Made:
  """Keys, how far one clip unit moves the sum (in C), and the sums."""
  hierarchy, episode = release.hierarchy, release.plan.episode
  if release.sample_level:
    yield from _sample_level(release, k)
  elif episode is not None and episode.form == "independent":
    yield from _made(release, k, -1, 1.0, _Independent)
  elif episode is not None and episode.form == "disjoint":
    if k >= release.clip_level:
      yield from _made(release, k, -1, 1.0, _OneTask)
    else:
      for path in paths.paths(release, k, -1):
        values = data_sets.Values((), ())
        yield (path.unit, ""), 1.0, _Blocks(release, path, -1, values)
  elif hierarchy.copies and k > 0:
    yield from _made(release, k, release.clip_level, 1.0, _Copied)
  else:
    yield from _made(release, k, release.clip_level, 1.0, _Tree)


def _made(
    release: plan_lib.Release,
    k: int,
    clip: int,
    spacing: float,
    maker: type[_Maker],
) -> _Made:
  """All data sets of some paths."""
  for path in paths.paths(release, k, clip):
    for values in data_sets.choices(path, clip):
      if maker is _OneTask and not _within_one_task(release, values):
        continue
      if release.sample_level and k < clip + 1 and _short(path, values):
        continue
      yield (
          (path.unit, str(values)),
          spacing,
          maker(release, path, clip, values),
      )


def _within_one_task(
    release: plan_lib.Release, values: data_sets.Values
) -> bool:
  """Whether only the one task that may hold t differs from other tasks.

  The classes of a larger unit than one class can be in several tasks.
  """
  differing = values.within[:-1]
  if len(values.within) < release.hierarchy.depth:  # t is a class
    differing = values.within if release.hierarchy.depth > 2 else ()
  return len(set(differing)) <= 1


def _short(path: paths.Path, values: data_sets.Values) -> bool:
  """Whether others of a task that is short without t would have gradients."""
  return path.stages[-1].rate == 1 and any(values.beside)


def _query_sums(
    release: plan_lib.Release, k: int
) -> tuple[plan_lib.Release, int, float]:
  """Sample-level training as a plan of which every clip unit is drawn.

  For an example each query example is one, a uniform draw of its class; above,
  each class with all of its query examples.

  Returns:
    The release with this plan, the clip level, and C's that a clip unit moves
    the sum by.
  """
  plan, last = release.plan, release.hierarchy.depth - 1
  assert plan.episode is not None
  if k < last:
    return release, last - 1, float(plan.episode.query)
  return _last_stage(release, plan.episode.query), last, 1.0


def _last_stage(release: plan_lib.Release, n: int) -> plan_lib.Release:
  """The release, drawing n examples of a class for the role in question."""
  stages = (*release.plan.stages[:-1], plan_lib.FixedSize(n))
  plan = dataclasses.replace(release.plan, stages=stages, episode=None)
  # Only the clip unit says what is summed: no tasks, no inner steps.
  mechanism = dataclasses.replace(
      release.mechanism,
      inner_steps=None, inner_clip_norm=None, inner_noise_multiplier=None,
      order=None,
  )
  return plan_lib.Release(release.hierarchy, plan, mechanism)


def _sample_level(release: plan_lib.Release, k: int) -> _Made:
  """Clipping per example inside adapted tasks: by role."""
  outer, clip, spacing = _query_sums(release, k)
  yield from _made(outer, k, clip, spacing, _Tree)
  episode = release.plan.episode
  assert episode is not None
  if k < release.hierarchy.depth - 1 or episode.form != "unit":
    return
  support = _last_stage(release, episode.shot)
  for path in paths.paths(support, k, clip):
    yield (
        (path.unit, "support"),
        episode.way * episode.query / _LEVELS,
        _Adapted(release, path, clip, data_sets.Values((), ())),
    )


def _tasks(start: int, classes: int, way: int) -> int:
  """How many tasks a block of consecutive classes touches."""
  return (start + classes - 1) // way - start // way + 1
