"""Units that a step can sample at several places, from a release to a curve.

A record t may be sampled at several places of one step: in several tasks that
sample their classes independently (form "independent"), or in several of the
primary units that hold it (a hierarchy with copies). `places` describes where,
`copied` and `in_tasks` add how far the sum moves, and `Recurrence` is the
one-step profile. Section 8 of the proof has all of it. A unit that can be at
one place only is a unit of a tree.

Notation. J of the places sample the unit that contains t (t's class, for
example), and K ~ Binomial(J, p) of these sample t itself. Each of them moves
the clipped sum by at most `distance`, in standard deviations of the noise. J
has the same distribution without t.

If J is 2 or more it is assumed to be revealed: by joint convexity the
divergence is at most the average over J. Using the distribution of K alone
would be wrong, because at a place that does not sample t the rest of the sample
shows whether its parent was sampled.

If J is at most 1 the places are like a tree: take one place as the unit's path,
and the others as known. Its parent is sampled with probability
q' = P(J = 1) / P(J <= 1). Otherwise the path breaks as at a place that is known
to break (`outer`), and the tree's profile holds (`amplification`,
`random_count`).

Given J = j > 1, couple all other randomness. Place i then adds a vector v_i of
norm at most d with probability p. With S the set of places that do

  P = sum over S of w_S N(sum_(i in S) v_i),   Q = N(0).

Moving all v_i onto one line, at full length and to the same side, only
increases both divergences: the scalar mixture of sensitivities k d with weights
Binomial(j, p) dominates (Choquette-Choo, Ganesh, Steinke and Thakurta, "Privacy
Amplification for Matrix Mechanisms", ICLR 2024; `line_mixture`). If the unit
has a random number of clip units at each place, K is their total number. The
profile never decreases with j, p or d, so rounding a number of places or of
occurrences up is pessimistic.
"""

from collections.abc import Sequence
import dataclasses
import functools
import math
from typing import NamedTuple

import numpy as np

from episodic_dp import plan as plan_lib
from episodic_dp.accounting import distances
from episodic_dp.accounting.profiles import amplification
from episodic_dp.accounting.profiles import counts as counts_lib
from episodic_dp.accounting.profiles import line_mixture
from episodic_dp.accounting.profiles import random_count
from episodic_dp.accounting.profiles.amplification import Direction
from episodic_dp.accounting.profiles.amplification import UnitProfile

# Distances below this are replaced by it: larger, so never optimistic.
_MIN_DISTANCE = 1e-6
# More values of J, or of K, than these are rounded up; in logarithms of tiny
# divergences, more values of J than the last.
_MAX_PARENTS, _MAX_OCCURRENCES, _MOST_PLACES = 96, 192, 24


# From a release to its units --------------------------------------------------


def recurs(release: plan_lib.Release, k: int) -> bool:
  """Return whether a step can sample a unit of the level at several places."""
  return bool(release.plan.repeats) or release.hierarchy.holders(k) > 1


def units(
    release: plan_lib.Release, k: int, *, replaced: bool
) -> tuple[UnitProfile, ...]:
  """Describe the units of a level that recur in a step.

  Args:
    release: the release of a step.
    k: the level.
    replaced: whether neighbours differ in a unit's data, not in its presence.

  Returns:
    The types of units; () for replaced units, of which nothing is known unless
    a step has one task only.
  """
  paths = distances.paths(release, k)
  rows: list[distances.RandomPath] = []
  if distances.has_random_number(release, k, own=True):
    rows = distances.random_paths(release, k)
  if release.plan.repeats:
    return in_tasks(release, paths, replaced=replaced)
  return () if replaced else (copied(release, paths, rows),)


def places(
    release: plan_lib.Release, rates: np.ndarray
) -> tuple["Recurrence", ...]:
  """Describe the units of a level that recur in a step, at distance 1.

  Args:
    release: the release of a step.
    rates: float64[paths, level + 1], of `distances.paths`.

  Returns:
    The distinct types.
  """
  tasks = release.plan.repeats
  most = release.hierarchy.holders(rates.shape[1] - 1)
  if not tasks:
    return (_in_holders(release, most, rates.max(axis=0).tolist()),)
  if most > 1:
    return (_crossing(release, most, tasks[0], float(rates[:, 1].max())),)
  pairs = np.column_stack([rates[:, :-1].prod(axis=1), rates[:, -1]])
  none = np.empty((len(rates), 0))
  return tuple(
      Recurrence(places=tasks[0], place_rate=q, rate=p, distance=1.0)
      for (q, p), _, _ in distances.front(distances.rows(pairs, none, none))
  )


def in_tasks(
    release: plan_lib.Release, paths: distances.Paths, *, replaced: bool
) -> tuple[UnitProfile, ...]:
  """Describe units if every task of a step samples from the whole pool.

  Each of the L tasks samples the unit's parent with probability q = r_1 ..
  r_(k-1), whether or not the unit t exists, and independently of the others: J
  is Binomial(L, q). Given that it does, let the stage sample n of the N
  children. For n < N, with probability p = n / N the task holds t in one of its
  places. If it does not hold t, its sample is distributed as without t. If it
  does, the sample is the same with a uniform other child in t's place. For a
  full stage (`All`, or n >= N) p = 1, and without t the task has one unit less.
  In both cases one task becomes another one with probability p, independently
  for each task, and its clipped gradient moves by at most 2C. No other task
  changes, with a full stage or not: tasks share no samples, and none is
  regrouped. Given J <= 1 take a uniformly random task, and assume that the
  others are known. It samples the parent with probability P(J = 1) / P(J <= 1),
  and sampling it or not moves this one task, by at most 2C. One task alone is
  the tree of form "disjoint".
  """
  d = 2 / float(release.mechanism.noise_multiplier)
  result: list[UnitProfile] = []
  for kind in places(release, paths.rates):
    if kind.places > 1:
      if not replaced:
        result.append(
            dataclasses.replace(kind, distance=d, outer=(Break(1.0, d),))
        )
    elif replaced:
      rates = kind.place_rate, kind.rate
      result.append(amplification.Amplification(rates, 1.0, (d, d), d))
    else:
      result.append(amplification.Amplification(
          (kind.place_rate,), kind.rate, (d,), d
      ))
  return tuple(result)


def _crossing(
    release: plan_lib.Release, most: int, tasks: int, rate: float
) -> "Recurrence":
  """Describe a unit that has parts in up to `most` primary units.

  An example is a patient with images of several diagnoses. A task samples a
  number h of the diagnoses that hold a part of the patient, whether or not the
  patient exists. Given those, it samples each part with its own rate, at most
  p: some part with a probability u <= u_h = 1 - (1 - p)^h. Let u_max be that of
  the largest h. Call the task live with probability u / u_max, by a coin that
  depends on the sampled diagnoses alone, and let it hold some part of the
  patient with probability u_max if it is live, and never otherwise. This is the
  same law. So the patient is a unit whose parent is sampled with probability q
  = E[u] / u_max and which has the rate u_max. The task's sample of it, and
  whether it is live, move the one task by at most 2C.
  """
  first, units = release.plan.stages[0], release.hierarchy.num_units(0)
  number, chances = counts_lib.hypergeometric(
      units, most, int(first.most(units))
  )
  some = -np.expm1(number * math.log1p(-rate)) if rate < 1 else number > 0
  largest = float(max(some))
  return Recurrence(
      places=tasks,
      # Rounding may not make it smaller.
      place_rate=min(1.0, float(chances @ some) / largest * (1 + 1e-12)),
      rate=largest,
      distance=1.0,
  )


def copied(
    release: plan_lib.Release,
    paths: distances.Paths,
    rows: Sequence[distances.RandomPath],
) -> "Recurrence":
  """Describe records (or classes) that up to M primary units hold.

  With M = 1 no record is held twice, and the hierarchy is a tree of records.

  Neighbours differ by the record in every primary unit that holds it. The
  sample of primary units does not depend on it, and the sampled ones sample
  their inner stages independently of each other. So the number J of sampled
  holders that also sample the record's parent is Binomial(M, q), where q is the
  product of the rates above the record's own, for `Poisson` and `All` primary
  stages. For `FixedSize` the sampled holders are hypergeometric, and each of
  them then samples the parent with the product of the inner rates. J has the
  same distribution without the record. Each such parent samples the record with
  its own rate p, and its sample is otherwise distributed as without it.

  The inner rates above the record's own belong to J, which is revealed if it is
  2 or more. If they were part of p, a holder that does not sample the record
  would be treated as without it, but it tends to sample other parents: the
  direction "add" fails.

  Given J <= 1 take a uniformly random holder. Its path breaks at each stage
  with the probabilities of `_breaks`, and only that differs: section 8 of the
  proof has the coupling for a `FixedSize` primary stage.

  If levels cross (form "disjoint" of classes that hold the unit in parts) the
  holders are the classes, and their rates p differ: the largest is used.

  Args:
    release: the release of a step.
    paths: the paths to the records.
    rows: their only type if a record has a random number of clip units; or ().
  """
  z = float(release.mechanism.noise_multiplier)
  (kind,) = places(release, paths.rates)
  shares = _breaks(kind, paths.rates.max(axis=0).tolist())
  if rows:
    (row,) = rows
    far = [m / z for m in (*row.others, 1.0)]
    kind = dataclasses.replace(
        kind, counted=True, number=row.number, instead=row.instead
    )
  else:
    every = paths.changes(release.clip_level) / z
    # A regular hierarchy has one path. If levels cross, the first stage and the
    # stages inside tasks are the same on all paths.
    if (every != every[0]).any():
      raise plan_lib.UnsoundPlanError(
          "no guarantee for a unit whose copies lie in units of different"
          f" sizes: ask for level '{release.levels[0]}'"
      )
    far = every[0].tolist()
  outer = tuple(map(Break, shares, far[:-1]))
  return dataclasses.replace(kind, distance=far[-1], outer=outer)


def _in_holders(
    release: plan_lib.Release, most: int, rates: Sequence[float]
) -> "Recurrence":
  """Describe a unit of `copied` at distance 1."""
  first, units = release.plan.stages[0], release.hierarchy.num_units(0)
  inner, drawn_of = math.prod(rates[1:-1]), None
  place_rate = rates[0] * inner
  if first.exchanges(units):
    place_rate, drawn_of = inner, (int(first.most(units)), units)
  return Recurrence(
      places=most,
      place_rate=place_rate,
      rate=rates[-1],
      distance=1.0,
      drawn_of=drawn_of,
  )


def _breaks(kind: "Recurrence", rates: Sequence[float]) -> list[float]:
  """Compute where a holder's path breaks, given that every holder's does."""
  first, *others = rates[:-1]
  inner = math.prod(others)
  if inner == 1:  # Then no holder is sampled.
    return [1.0] + [0.0] * len(others)
  # The probability that a holder is sampled nevertheless.
  drawn = first * (1 - inner) / (1 - first * inner)
  if kind.drawn_of is not None:
    number, probs = kind.holders
    probs = probs * np.exp(
        (number - number[0]) * math.log1p(-inner)  # Relative to its largest.
    )
    drawn = float(probs @ number) / (kind.places * float(probs.sum()))
  shares, left = [1 - drawn], drawn / (1 - inner)
  for rate in others:
    shares.append(left * (1 - rate))
    left *= rate
  return shares


# The profile ------------------------------------------------------------------


class Break(NamedTuple):
  """A stage at which the path to one place may break.

  Attributes:
    share: the probability that it does, if no place samples the parent.
    distance: change of the sum by that, in noise standard deviations.
  """

  share: float
  distance: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Recurrence(UnitProfile):
  """The number of times that a record recurs in one step, and its distance.

  Attributes:
    places: the tasks of a step, or the primary units that hold the record.
    place_rate: the probability that a (sampled) place samples the parent of the
      record, independently of the other places; 1 if it surely does.
    rate: p, the record's own rate given that its parent is sampled.
    distance: change of the sum by one occurrence, in noise standard deviations;
      by one clip unit of it if `counted`.
    drawn_of: None if all places are sampled; (n, N) if the step samples n of N
      primary units without replacement, and `places` of the N hold the record.
    outer: for each stage above the record's own; the shares add up to 1. Empty
      if J is revealed.
    counted: whether the clip units of an occurrence are counted; then the
      distances of `outer` include neither `number` nor `instead`, even if one
      clip unit is certain.
    number: number of clip units of an occurrence, if `counted`.
    instead: number of clip units of the replacing unit, if `counted`.
    raised_by: probability that is moved to the largest J.
  """

  places: int
  place_rate: float
  rate: float
  distance: float
  drawn_of: tuple[int, int] | None = None
  outer: tuple[Break, ...] = ()
  counted: bool = False
  number: counts_lib.Counts = counts_lib.constant(1)
  instead: counts_lib.Counts = counts_lib.constant(0)
  raised_by: float = 0.0

  slow = True
  counting = True

  @functools.cached_property
  def holders(self) -> counts_lib.Counts:
    """Return the distribution of the number of places that are sampled."""
    if self.drawn_of is None:
      return counts_lib.constant(self.places)
    drawn, population = self.drawn_of
    return counts_lib.hypergeometric(population, self.places, drawn)

  @functools.cached_property
  def parents(self) -> counts_lib.Counts:
    """Return the distribution of J, the number of places with the parent."""
    found = self.holders
    if self.place_rate < 1:
      found = counts_lib.thinned(found, self.place_rate)
    return counts_lib.raised(found, self.raised_by)

  @property
  def most(self) -> int:
    """Return the largest number of clip units, an upper bound on K."""
    return self.parents.most * (self.number.most + self.instead.most)

  @property
  def families(self) -> int:
    """Return the number of places: a family at each."""
    return self.places

  @property
  def inclusion_rate(self) -> float:
    """Return the probability that a step samples the record at all."""
    j, probs = self.parents
    some = -np.expm1(j * np.log1p(-self.rate)) if self.rate < 1 else j > 0
    return float(min(probs @ some, 1.0))

  @property
  def tail(self) -> tuple[float, float]:
    """Return (P(it is sampled), the largest distance), by joint convexity."""
    return self.inclusion_rate, self.most * self.least_distance

  def raised(self, chance: float) -> "Recurrence":
    """Return the record with numbers raised by a probability."""
    return dataclasses.replace(
        self,
        number=counts_lib.raised(self.number, chance),
        instead=counts_lib.raised(self.instead, chance),
        raised_by=self.raised_by + chance,
    )

  @property
  def least_distance(self) -> float:
    """Return the distance, or a small one if it is 0."""
    return max(self.distance, _MIN_DISTANCE)

  @functools.cached_property
  def once(self) -> tuple[float, UnitProfile]:
    """Return P(J <= 1), and the equivalent tree for that case."""
    few = self.parents.values <= 1
    values, probs = self.parents.values[few], self.parents.probs[few]
    chance = float(probs.sum())
    drawn = float(probs[values == 1].sum()) / chance if chance else 0.0
    outer = self.outer or (Break(1.0, math.inf),)
    # The rates of stages at which the path breaks with these probabilities,
    # from the record outwards.
    rates, reached = [], drawn
    for share, _ in reversed(outer):
      above = reached + share * (1 - drawn)
      rates.append(reached / above if above else 0.0)
      reached = above
    far = tuple(distance for _, distance in outer)
    if not self.counted:
      return chance, amplification.Amplification(
          tuple(rates[::-1]), self.rate, far, self.least_distance
      )
    return chance, random_count.RandomCount(
        outer_rates=tuple(rates[::-1]),
        rate=self.rate,
        outer_distances=far,
        number=self.number,
        instead=self.instead,
        distance=self.least_distance,
    )

  def several(self, limit: int = _MAX_PARENTS) -> list[tuple[int, float]]:
    """List (j, P(J = j)) for j of 2 or more, rounded up to few values."""
    many = self.parents.values > 1
    counts = counts_lib.coarser(
        counts_lib.Counts(*(part[many] for part in self.parents)), limit
    )
    pairs = zip(*(part.tolist() for part in counts), strict=True)
    return [(j, chance) for j, chance in pairs if chance > 0]

  def occurrences(self, j: int) -> counts_lib.Counts:
    """Compute the number of clip units that differ, given J = j."""
    if not self.counted:
      return counts_lib.binomial(j, self.rate)
    # The replacing unit is assumed to be known, and as large as possible.
    values = self.number.values + self.instead.most
    return counts_lib.chosen(self.number._replace(values=values), j, self.rate)

  def divergence(
      self, log_alpha: np.ndarray, direction: Direction
  ) -> np.ndarray:
    """See `UnitProfile`."""
    return self.below_tail(
        log_alpha, functools.partial(self._average, direction)
    )

  def _average(
      self, direction: Direction, log_alpha: np.ndarray
  ) -> np.ndarray:
    """Bound the average divergence over J, float64[n]."""
    chance, tree = self.once
    value = chance * tree.divergence(log_alpha, direction)
    if self.rate == 1 and not self.counted:
      for j, chance in self.several():
        value += chance * amplification.hockey_stick(
            log_alpha, j * self.least_distance
        )
    else:
      for chance, curve in _given_several(self, direction):
        value += chance * curve(log_alpha)
    return value

  def _log_divergence(
      self, log_alpha: np.ndarray, direction: Direction
  ) -> np.ndarray:
    """See `UnitProfile`: the average over J."""
    chance, tree = self.once
    total = np.full(log_alpha.shape, -np.inf)
    if chance * tree.tail[0] > 0:
      total = math.log(chance) + tree.log_divergence(log_alpha, direction)
    for j, weight in self.several(_MOST_PLACES):
      law = counts_lib.coarser(self.occurrences(j), line_mixture.MOST_GROUPS)
      value = math.log(weight) + line_mixture.log_divergence(
          law.values * self.least_distance, law.probs, log_alpha, direction
      )
      total = np.logaddexp(total, value)
    return total


@functools.lru_cache(maxsize=8)
def _given_several(
    kind: Recurrence, direction: Direction
) -> list[tuple[float, line_mixture.MixtureCurve]]:
  """List P(J = j) and the profile given that, for j of 2 or more."""
  groups = kind.several()
  if not groups:
    return []
  numbers = [kind.occurrences(j) for j, _ in groups]
  chances = [chance for _, chance in groups]
  # K is rounded up to values that suit all of J.
  values = counts_lib.coarser(
      counts_lib.without_tail(
          counts_lib.mixed(list(zip(chances, numbers, strict=True)))
      ),
      _MAX_OCCURRENCES,
  ).values
  seen = np.zeros((len(groups), values.size))
  for row, counts in zip(seen, numbers, strict=True):
    places = np.searchsorted(values, counts.values)
    row += np.bincount(places, weights=counts.probs, minlength=values.size)
  line = line_mixture.Line(seen, values * kind.least_distance)
  curves = line_mixture.curves(line, direction)
  return list(zip(chances, curves, strict=True))
