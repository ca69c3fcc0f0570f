"""What the noise of two published recipes does not cover, computed exactly."""

import math

import numpy as np
from scipy import special

from episodic_dp.accounting.profiles import amplification
from experiments.evidence import pages


def percentile_clipping() -> pages.Table:
  """C from raw norms: one small task more, and the noise itself shrinks.

  20 scalar tasks a step, all of them used, 18 of gradient 0.001 and two of
  gradient 1, and the 90th percentile of their norms clips the next step, which
  adds noise of z times that. Its release alone is compared, without sampling.
  """
  small, large = 0.001, 1.0
  without = [small] * 18 + [large] * 2
  rows: list[tuple[pages.Cell, ...]] = []
  for z in (1.0, 10.0, 100.0):
    outputs = []
    for gradients in ([*without, small], without):
      clip = float(np.percentile(gradients, 90))
      total = sum(min(g, clip) for g in gradients)
      outputs.append((total, z * clip))
    rows.append((
        z,
        f"{outputs[1][1] / z:.4g}", f"{outputs[0][1] / z:.4g}",
        *(
            _normals(outputs[0], outputs[1], epsilon)
            for epsilon in (1.0, 3.0)
        ),
        # Two steps of the Gaussian mechanism of sensitivity C: what is claimed.
        *(_gaussian(math.sqrt(2) / z, epsilon) for epsilon in (1.0, 3.0)),
    ))
  return pages.Table(
      ("z", "C without t", "C with t", "exact δ(1)", "exact δ(3)",
       "claimed δ(1)", "claimed δ(3)"),
      tuple(rows),
  )


def second_order() -> pages.Table:
  """The outer gradient of second order reads the support set un-noised.

  One parameter at φ = 0. The support loss is s θ² / 2 with s = 2 / (inner
  rate) when t is in the support set and 0 otherwise: its gradient at 0 is 0, so
  the noised inner step does not depend on t at all. The outer gradient of every
  query example is (1 - rate · s) times a constant above C: it changes its sign
  with t. 15 query examples, clipped to C each, noise z C on their sum.
  """
  queries = 15
  rows = []
  for z in (1.0, 4.0, 16.0):
    moved = 2 * queries / z
    rows.append((
        z, *(_gaussian(moved, epsilon) for epsilon in (1.0, 3.0)),
        *(_gaussian(1 / z, epsilon) for epsilon in (1.0, 3.0)),
    ))
  return pages.Table(
      ("z, inner and outer", "exact δ(1)", "exact δ(3)",
       "claimed δ(1), one noised inner step", "claimed δ(3)"),
      tuple(rows),
  )


def _gaussian(distance: float, epsilon: float) -> float:
  """H_alpha(N(distance) || N(0)) of standard deviation 1."""
  at = np.asarray([epsilon])
  value = float(amplification.hockey_stick(at, distance)[0])
  return max(value, 5e-324)  # Positive, however small.


def _normals(
    p: tuple[float, float], q: tuple[float, float], epsilon: float
) -> float:
  """H_alpha between normal distributions (mean, deviation), p the narrower."""
  (a, s), (b, r) = p, q
  # ln p - ln q - epsilon is a parabola that opens downwards.
  roots = np.sort(np.roots([
      0.5 / r**2 - 0.5 / s**2,
      a / s**2 - b / r**2,
      0.5 * (b / r) ** 2 - 0.5 * (a / s) ** 2 + math.log(r / s) - epsilon,
  ]).real)
  inside = [np.diff(special.ndtr((roots - m) / d))[0] for m, d in (p, q)]
  return float(inside[0] - math.exp(epsilon) * inside[1])
