"""Records that recur across the tasks of a step: the one-step profile.

Notation. A record t may be sampled at several places of one step: in several
tasks that sample their classes independently, or in several of the participants
that hold it. J of the places sample the unit that contains t (t's class, for
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

import dataclasses
import functools
import itertools
import math

import numpy as np

from episodic_dp.accounting.profiles import amplification
from episodic_dp.accounting.profiles import counts as counts_lib
from episodic_dp.accounting.profiles import line_mixture
from episodic_dp.accounting.profiles import random_count
from episodic_dp.accounting.profiles.amplification import Direction

# Distances below this are replaced by it: larger, so never optimistic.
_MIN_DISTANCE = 1e-6
# More values of J, or of K, than these are rounded up.
_MAX_PARENTS, _MAX_OCCURRENCES = 96, 192

Once = amplification.Amplification | random_count.RandomCount


@dataclasses.dataclass(frozen=True, kw_only=True)
class Recurrence:
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
    outer: pairs (share, distance). If no place samples the parent: the
      probability that the path to one place breaks at a stage, and the change
      of the sum by that; the shares add up to 1. Empty if J is revealed.
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
  outer: tuple[tuple[float, float], ...] = ()
  counted: bool = False
  number: counts_lib.Counts = counts_lib.constant(1)
  instead: counts_lib.Counts = counts_lib.constant(0)
  raised_by: float = 0.0

  slow = True

  @functools.cached_property
  def parents(self) -> counts_lib.Counts:
    """Return the distribution of J, the number of places with the parent."""
    return counts_lib.raised(
        _parents(self.places, self.place_rate, self.drawn_of), self.raised_by
    )

  @property
  def most(self) -> int:
    """Return the largest number of clip units, an upper bound on K."""
    return self.parents.most * (self.number.most + self.instead.most)

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
  def once(self) -> tuple[float, Once]:
    """Return P(J <= 1), and the equivalent tree for that case."""
    few = self.parents.values <= 1
    values, probs = self.parents.values[few], self.parents.probs[few]
    chance = float(probs.sum())
    drawn = float(probs[values == 1].sum()) / chance if chance else 0.0
    pairs = self.outer or ((1.0, math.inf),)
    # The rates of stages at which the path breaks with these probabilities.
    left = [drawn]
    for share, _ in reversed(pairs):
      left.append(left[-1] + share * (1 - drawn))
    rates = tuple(
        b / a if a else 0.0
        for a, b in itertools.pairwise(reversed(left))
    )
    outer = tuple(distance for _, distance in pairs)
    if not self.counted:
      return chance, amplification.Amplification(
          rates, self.rate, outer, self.least_distance
      )
    return chance, random_count.RandomCount(
        outer_rates=rates,
        rate=self.rate,
        outer_distances=outer,
        number=self.number,
        instead=self.instead,
        distance=self.least_distance,
    )

  def divergence(
      self, log_alpha: np.ndarray, direction: Direction
  ) -> np.ndarray:
    """Compute H_alpha in the direction, for alpha >= 1.

    Args:
      log_alpha: float64[n] of ln alpha >= 0.
      direction: "remove" for M(T) against M(T - t), "add" for the reverse.

    Returns:
      float64[n], an upper bound that convexity makes composable.
    """
    log_alpha = np.asarray(log_alpha, float)
    weight, farthest = self.tail
    if weight == 0:
      return np.zeros_like(log_alpha)
    bound = weight * amplification.hockey_stick(log_alpha, farthest)
    chance, tree = self.once
    value = chance * tree.divergence(log_alpha, direction)
    if self.rate == 1 and not self.counted:
      for j, chance in several(self):
        value += chance * amplification.hockey_stick(
            log_alpha, j * self.least_distance
        )
    else:
      for chance, curve in _given_several(self, direction):
        value += chance * curve(log_alpha)
    return np.minimum(value, bound)


@functools.lru_cache(maxsize=256)
def _parents(
    places: int, place_rate: float, drawn_of: tuple[int, int] | None
) -> counts_lib.Counts:
  if drawn_of is None:
    return counts_lib.binomial(places, place_rate)
  drawn, population = drawn_of
  counts = counts_lib.hypergeometric(
      population, places, min(drawn, population)
  )
  return counts_lib.thinned(counts, place_rate) if place_rate < 1 else counts


def several(
    kind: Recurrence, limit: int = _MAX_PARENTS
) -> list[tuple[int, float]]:
  """List (j, P(J = j)) for j of 2 or more, rounded up to few values."""
  many = kind.parents.values > 1
  counts = counts_lib.coarser(
      counts_lib.Counts(*(part[many] for part in kind.parents)), limit
  )
  return [
      (int(j), float(chance))
      for j, chance in zip(*counts, strict=True)
      if chance > 0
  ]


def occurrences(kind: Recurrence, j: int) -> counts_lib.Counts:
  """Compute the number of clip units that differ, given J = j."""
  if not kind.counted:
    return counts_lib.binomial(j, kind.rate)
  # The replacing unit is assumed to be known, and as large as possible.
  one = kind.number._replace(values=kind.number.values + kind.instead.most)
  if kind.rate < 1:
    one = counts_lib.mixed(
        [(1 - kind.rate, counts_lib.constant(0)), (kind.rate, one)]
    )
  return counts_lib.times(one, j)


@functools.lru_cache(maxsize=8)
def _given_several(
    kind: Recurrence, direction: Direction
) -> list[tuple[float, line_mixture.Curve]]:
  """List P(J = j) and the profile given that, for j of 2 or more."""
  groups = several(kind)
  if not groups:
    return []
  numbers = [occurrences(kind, j) for j, _ in groups]
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
