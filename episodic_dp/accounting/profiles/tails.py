"""Profiles too small for floating-point numbers, as logarithms.

A moment of high order is made by outputs that are far too unlikely for their
share of the profile to be a positive double. There the logarithm of an upper
bound is computed instead: never of a smaller value, which would be optimistic.
"""

import math

import numpy as np
from scipy import special

from episodic_dp.accounting.profiles import amplification
from episodic_dp.accounting.profiles import averaged
from episodic_dp.accounting.profiles import counts
from episodic_dp.accounting.profiles import random_count
from episodic_dp.accounting.profiles import recurrence
from episodic_dp.accounting.profiles import tabulated
from episodic_dp.accounting.profiles import unit_profile
from episodic_dp.accounting.profiles.amplification import Direction

# Below this a double may have lost digits: it is raised to it. Tabulated
# profiles end in a constant long before, but well below the second number.
_SMALL, _SMALL_IN_TABLES = 1e-280, 1e-30
# Terms that the weights of a mixture are split into; more are revealed.
_MOST_GROUPS = 16
_MOST_TERMS, _MOST_NUMBERS = 128, 64
# A distance of zero is replaced by this one: larger, so never optimistic.
MIN_DISTANCE = 1e-9


def log_excess(
    unit_profiles: unit_profile.UnitProfiles,
    log_alpha: np.ndarray,
    direction: Direction,
) -> np.ndarray:
  """ln of `profile.excess`, or of another upper bound that is less.

  Args:
    unit_profiles: all with a tail.
    log_alpha: float64[n].
    direction: "remove" or "add".

  Returns:
    float64[n]; -inf where the excess is zero.
  """
  logs = [_log_excess(kind, log_alpha, direction) for kind in unit_profiles]
  return np.max(logs, axis=0, initial=-np.inf)


def _log_excess(
    kind: unit_profile.UnitProfile, log_alpha: np.ndarray, direction: Direction
) -> np.ndarray:
  value = tabulated.excess((kind,), log_alpha, direction, _SMALL_IN_TABLES)
  with np.errstate(divide="ignore"):
    result = np.log(np.maximum(value, _SMALL))
  exact = isinstance(kind, amplification.Amplification)
  low = np.flatnonzero(value < (_SMALL if exact else _SMALL_IN_TABLES))
  other: Direction = "add" if direction == "remove" else "remove"
  for sign, which in ((1.0, direction), (-1.0, other)):
    index = low[(log_alpha[low] >= 0) == (sign > 0)]
    if not index.size:
      continue
    # alpha H_(1/alpha) below alpha = 1
    bound = _log_divergence(kind, sign * log_alpha[index], which)
    bound += np.minimum(log_alpha[index], 0.0)
    result[index] = np.minimum(result[index], bound)
  return result


def _log_divergence(
    kind: unit_profile.UnitProfile, log_alpha: np.ndarray, direction: Direction
) -> np.ndarray:
  """ln of an upper bound on a kind's divergence, for alpha >= 1."""
  assert kind.tail is not None
  weight, distance = kind.tail
  if weight == 0:
    return np.full_like(log_alpha, -np.inf)
  bound = math.log(weight) + log_hockey_stick(
      log_alpha, max(distance, MIN_DISTANCE)
  )
  if isinstance(kind, amplification.Amplification):
    log_weight, terms = kind.terms(log_alpha, direction)
    # All of the weight against the own term, or all at the largest distance.
    log_k, distance = terms[0]
    bound = np.minimum(bound, _log_weighted(log_weight, log_k, distance))
    log_k = np.logaddexp.reduce([k for k, _ in terms], axis=0)
    distance = max(d for _, d in terms)
    bound = np.minimum(bound, _log_weighted(log_weight, log_k, distance))
  elif isinstance(kind, averaged.Averaged):
    found = np.logaddexp.reduce([
        math.log(chance) + _log_divergence(part, log_alpha, direction)
        for chance, part in kind.parts
        if chance > 0
    ])
    bound = np.minimum(bound, found)
  elif isinstance(kind, recurrence.Recurrence):
    found = _log_recurrence(kind, log_alpha, direction)
    bound = np.minimum(bound, found)
  elif isinstance(kind, random_count.RandomCount):
    # What takes the unit's place is taken as known, and as large as can be.
    given = map(np.asarray, (kind.number.values, kind.number.probs))
    number = counts.coarser(counts.Counts(*given), _MOST_NUMBERS)
    values = number.values + kind.instead.most
    probs = kind.rate * number.probs
    found = _log_mixture(
        np.append(values * kind.distance, 0.0),
        np.append(probs, 1 - kind.rate),
        log_alpha,
        direction,
    )
    bound = np.minimum(bound, math.log(math.prod(kind.outer_rates)) + found)
  return bound


def _log_recurrence(
    kind: recurrence.Recurrence, log_alpha: np.ndarray, direction: Direction
) -> np.ndarray:
  """ln of the average over J, where it is above 1; see `recurrence`."""
  chance, tree = kind.once
  total = np.full(log_alpha.shape, -np.inf)
  if chance * tree.tail[0] > 0:
    total = math.log(chance) + _log_divergence(tree, log_alpha, direction)
  groups = _fewer(recurrence.several(kind))
  laws = [recurrence.occurrences(kind, j) for j, _ in groups]
  terms = sum(law.values.size for law in laws)
  for (_, weight), law in zip(groups, laws):
    law = counts.coarser(law, max(_MOST_TERMS * law.values.size // terms, 8))
    value = math.log(weight) + _log_mixture(
        law.values * kind.least_distance, law.probs, log_alpha, direction
    )
    total = np.logaddexp(total, value)
  return total


def _fewer(groups: list[tuple[int, float]]) -> list[tuple[int, float]]:
  """At most so many numbers, rising; the rest count as the next larger one."""
  width = max(-(-len(groups) // _MOST_GROUPS), 1)
  parts = [groups[max(i - width, 0) : i] for i in range(len(groups), 0, -width)]
  return [(part[-1][0], sum(w for _, w in part)) for part in parts[::-1]]


def _log_mixture(
    distances: np.ndarray,
    probs: np.ndarray,
    log_alpha: np.ndarray,
    direction: Direction,
) -> np.ndarray:
  """ln of a bound on P = sum over k of w_k N(s_k) against Q = N(0).

  Of the splits of alpha, or of Q's weight, into terms with s_k > 0,

    remove  sum of [w_k N(s_k) - a_k N(0)]_+,  a_k adding up to alpha - w_0,
    add     sum of [u_k N(0) - alpha w_k N(s_k)]_+,  u_k to 1 - alpha w_0;

  every such split is a bound, and the best one is `amplification.split`.
  """
  some = (distances > 0) & (probs > 0)
  none = float(probs[distances == 0].sum())
  if not some.any():
    return np.full_like(log_alpha, -np.inf)
  log_w = np.log(probs[some])[:, None] + np.zeros_like(log_alpha)
  s = distances[some][:, None]
  if direction == "remove":
    log_u = log_w
    with np.errstate(divide="ignore"):
      total = log_alpha + np.log1p(-min(none, 1.0) * np.exp(-log_alpha))
    log_k = np.full_like(log_w, -np.inf)
    rest = np.isfinite(total)  # Nothing is left to split where w_0 is alpha.
    if rest.any():
      log_k[:, rest] = amplification.split(total[rest], log_w[:, rest], s)
  else:
    left = 1 - none * np.exp(np.minimum(log_alpha, 700.0))
    log_k = log_w + log_alpha
    log_u = np.full_like(log_k, -np.inf)
    some = left > 0
    if some.any():
      log_u[:, some] = amplification.split(
          np.log(left[some]), log_k[:, some], s
      )
  return np.logaddexp.reduce(_log_weighted(log_u, log_k, s), axis=0)


def _log_weighted(
    log_weight: np.ndarray,
    log_against: np.ndarray,
    distance: float | np.ndarray,
) -> np.ndarray:
  """ln of w H_(k/w)(N(d) || N(0)), or of w where k is smaller than that."""
  with np.errstate(invalid="ignore"):
    ratio = log_against - log_weight
    value = log_weight + log_hockey_stick(np.maximum(ratio, 0.0), distance)
  return np.where(
      np.isneginf(log_weight), -np.inf, np.where(ratio < 0, log_weight, value)
  )


def log_hockey_stick(
    log_alpha: np.ndarray, distance: float | np.ndarray
) -> np.ndarray:
  """ln H_alpha(N(d, 1) || N(0, 1)) for alpha >= 1, or a little more."""
  with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
    x = distance / 2 - log_alpha / distance
    first = special.erfcx(-x / math.sqrt(2))
    # alpha Phi(x - d) = phi(x) times this; rounding must not make it too large.
    second = special.erfcx((distance - x) / math.sqrt(2)) * (1 - 1e-14)
    tail = np.asarray(-x * x / 2 + np.log((first - second) / 2))
    # Where it is large enough for a double it is computed as such.
    near = x > 0
    if near.any():
      tail[near] = np.log(
          amplification.hockey_stick(
              np.broadcast_to(log_alpha, x.shape)[near],
              np.broadcast_to(distance, x.shape)[near],
          )
      )
  return np.where(np.isneginf(x), -np.inf, tail)
