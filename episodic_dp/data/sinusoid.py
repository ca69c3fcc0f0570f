"""Sinusoids: the smallest data set, for regression.

Every participant holds one sinusoid, a sin(x - b) with amplitude a uniform in
[0.1, 5] and phase b uniform in [0, pi], as a few points x uniform in [-5, 5]:
Finn, Abbeel and Levine, "Model-Agnostic Meta-Learning" (ICML 2017), section
5.1. Nobody else holds the same points.

Everything follows from a *public* seed: participant i of a split is a pure
function of (seed, split, i), so a larger set contains the smaller one.
"""

import math

import numpy as np

from episodic_dp.data import dataset
from episodic_dp.data import originals
from episodic_dp.data import pools
from episodic_dp.data.pools import Sinusoids

AMPLITUDES = (0.1, 5.0)
PHASES = (0.0, math.pi)
RANGE = (-5.0, 5.0)


def load(options: Sinusoids, where: originals.Where) -> dataset.Splits:
  """Generate the three splits, which share no participant.

  Returns:
    Splits whose hierarchies are participant -> point, declared by the options,
    with the points (x, y) in float32[participants * points, 1, 1, 2], y the one
    target.
  """
  points, seed = options.points, options.seed

  def make_part(number: int, count: int) -> dataset.ArrayDataset:
    part = dataset.PARTS[number]
    amplitude, phase = curves(count, seed=seed, split=part)
    x = _uniform((count, points), RANGE, seed, number, 1)
    y = amplitude[:, None] * np.sin(x - phase[:, None])
    return dataset.ArrayDataset(
        name=f"sinusoid/{part}",
        images=np.stack([x, y], -1).astype(np.float32).reshape(-1, 1, 1, 2),
        hierarchy=options.hierarchy(count),
        targets=1,
    )

  return pools.generate(options, make_part)


def curves(
    count: int, *, seed: int = 0, split: str = "train"
) -> tuple[np.ndarray, np.ndarray]:
  """Return amplitudes and phases float64[count] of a split's participants."""
  part = dataset.PARTS.index(split)
  numbers = _uniform((count, 2), (0.0, 1.0), seed, part, 0)
  lowest, highest = np.asarray([AMPLITUDES, PHASES]).T
  amplitude, phase = (lowest + (highest - lowest) * numbers).T
  return amplitude, phase


def _uniform(
    shape: tuple[int, int], bounds: tuple[float, float], *seed: int
) -> np.ndarray:
  # One stream, row by row, so that a larger set starts with the same numbers.
  low, high = bounds
  return np.random.default_rng(seed).uniform(low, high, shape)
