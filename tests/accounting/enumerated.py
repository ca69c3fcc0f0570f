"""Sums of enumerated steps, compared with the bounds."""

from collections.abc import Sequence
import itertools
import math

import numpy as np
from scipy import signal
from scipy import special

from episodic_dp.accounting.profiles import amplification
from episodic_dp.accounting.profiles import unit_profile
from tests.oracles import exact


def profile(
    units: unit_profile.UnitProfiles, log_alpha: np.ndarray, direction: str
) -> np.ndarray:
  """Compute the one-step privacy profile delta(ln alpha), for alpha > 0."""
  base = np.where(log_alpha < 0, -np.expm1(np.minimum(log_alpha, 0.0)), 0.0)
  return np.minimum(
      base + unit_profile.excess(units, log_alpha, direction), 1.0
  )


def check_bounds(
    pair: Sequence[exact.Mixture],
    units: unit_profile.UnitProfiles,
    z: float,
    epsilons: Sequence[float],
) -> dict[str, float]:
  """Require that the bounds hold; return the share of them that is reached.

  Args:
    pair: sums with a unit and without it.
    units: the profiles that bound them.
    z: the noise multiplier.
    epsilons: where the divergences are compared.

  Returns:
    The largest share of each direction, of divergences that are not tiny.
  """
  reached = dict.fromkeys(amplification.DIRECTIONS, 0.0)
  for epsilon, direction in itertools.product(epsilons, reached):
    one, other = pair if direction == "remove" else pair[::-1]
    truth = exact.hockey_stick(one, other, math.exp(epsilon), z)
    (bound,) = profile(units, np.asarray([epsilon]), direction)
    # Rounding of the sums, of large bounds and of small ones.
    assert truth <= min(bound + 1e-9, bound * (1 + 1e-7) + 1e-12), direction
    if truth > 1e-3:
      reached[direction] = max(reached[direction], truth / float(bound))
  return reached


# Several releases -------------------------------------------------------------

# Masses of P and of Q on cells of the outputs: two float64[cells].
Cells = tuple[np.ndarray, np.ndarray]

# Cells along each axis, by how many axes there are.
_CELLS = {1: 1500, 2: 200, 3: 60}
# Losses, and logarithms of alpha, are multiples of the step up to the last.
_STEP, _LAST = 2e-3, 8_000
_LOG_ALPHA = np.arange(-_LAST, _LAST + 1) * _STEP


def cells(pair: Sequence[exact.Mixture], z: float) -> Cells:
  """Merge the outputs of a release into cells, which show no more than they.

  Args:
    pair: sums in clip norms, means float64[n] or float64[n, steps].
    z: the noise multiplier.
  """
  both = [np.atleast_2d(means.T) / z for means, _ in pair]
  masses = []
  for columns, (_, weights) in zip(both, pair):
    total = np.asarray(weights)[:, None]
    for i, column in enumerate(columns):
      low, high = (f(f(part[i]) for part in both) for f in (min, max))
      axis = np.linspace(low - 8, high + 8, _CELLS[len(columns)])
      edges = np.concatenate([[-np.inf], axis, [np.inf]]) - column[:, None]
      # Right of a mean the masses are read off the other tail.
      left, right = special.ndtr(edges), special.ndtr(-edges)
      mass = np.where(
          edges[:, :-1] > 0,
          right[:, :-1] - right[:, 1:],
          left[:, 1:] - left[:, :-1],
      )
      if i < len(columns) - 1:
        total = (total[:, :, None] * mass[:, None]).reshape(len(column), -1)
    masses.append((total.T @ mass).ravel())
  return masses[0], masses[1]


def composed(
    releases: Sequence[Sequence[Cells]], epsilon: float
) -> float:
  """Bound the divergence of several releases from below, for known data.

  The data of a release may depend on what earlier ones showed, as composition
  allows. So it is a dynamic program over H_alpha of the releases still to come.
  Losses are rounded down, and alpha up, which makes it no larger.

  Args:
    releases: of each, its outputs for different data.
    epsilon: at least 0.
  """
  value = np.maximum(-np.expm1(_LOG_ALPHA), 0.0)  # Of no release.
  for choices in reversed(releases):
    laws = []
    for p, q in choices:
      with np.errstate(divide="ignore"):
        loss = np.log(p[p > 0]) - np.log(q[p > 0])
      place = np.floor(np.minimum(loss / _STEP, _LAST)).astype(int) + _LAST
      kept = place >= 0
      laws.append(np.bincount(place[kept], p[p > 0][kept], value.size))
    # It is larger where alpha is smaller, and counts as 0 where that is larger.
    padded = np.pad(value, (2 * _LAST, 0), mode="edge")
    found = signal.fftconvolve(padded[None], np.stack(laws), axes=1)
    value = found[:, 3 * _LAST :][:, : value.size].max(axis=0)
    value[-1] = 0.0
  return float(value[min(np.searchsorted(_LOG_ALPHA, epsilon), 2 * _LAST)])
