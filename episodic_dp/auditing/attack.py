"""Runs a canary's two data sets many times, and scores every run."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import numpy as np
import optax

from episodic_dp import private
from episodic_dp.auditing import canaries
from episodic_dp.auditing import runs as runs_lib
from episodic_dp.auditing import scores as scores_lib
from episodic_dp.data import dataset as dataset_lib

Progress = Callable[[int], None] | None


class Scores(NamedTuple):
  """Cumulative scores: column t is what an attacker knows after t + 1 steps.

  Attributes:
    with_record: float64[runs, steps], of runs with the record.
    without_record: float64[runs, steps], of runs without it.
  """

  with_record: np.ndarray
  without_record: np.ndarray


def many_runs(
    canary: canaries.Canary,
    *,
    runs: int,
    steps: int,
    seed: int = 0,
    runs_at_once: int = 1024,
    progress: Progress = None,
) -> Scores:
  """Scores of independent runs with the record, and of as many without it.

  Args:
    canary: see `canaries.worst_case`.
    runs: of each kind.
    steps: of each run.
    seed: of the runs' secret keys, all of which differ.
    runs_at_once: how many share the device's memory.
    progress: called with the number of runs that were finished.
  """
  assert canary.absent is not None  # Of one run: see `one_run`.
  keys = runs_lib.keys_of(seed, 2 * runs)
  return Scores(*(
      _scored(canary, dataset, part, steps, runs_at_once, progress)
      for dataset, part in (
          (canary.present, keys[:runs]), (canary.absent, keys[runs:])
      )
  ))


def one_run(
    canary: canaries.Canary, *, steps: int, seed: int = 0
) -> np.ndarray:
  """float64[m], the scores of the canaries of `canaries.many_in_one_run`."""
  released = _released(
      canary, canary.present, runs_lib.keys_of(seed, 1), steps, 1, None
  )
  count = scores_lib.clip_units(canary.release)
  return canary.score.each(released, count)[0, -1]


def _scored(
    canary: canaries.Canary,
    dataset: dataset_lib.Dataset,
    keys: jax.Array,
    steps: int,
    runs_at_once: int,
    progress: Progress,
) -> np.ndarray:
  released = _released(canary, dataset, keys, steps, runs_at_once, progress)
  count = scores_lib.clip_units(
      canary.release.replace(hierarchy=dataset.hierarchy)
  )
  parts = []
  for start in range(0, len(released.means), runs_at_once):
    part = [array[start : start + runs_at_once] for array in released]
    parts.append(canary.score(runs_lib.Releases(*part), count))
  return np.concatenate(parts)


def _released(
    canary: canaries.Canary,
    dataset: dataset_lib.Dataset,
    keys: jax.Array,
    steps: int,
    runs_at_once: int,
    progress: Progress,
) -> runs_lib.Releases:
  optimizer = runs_lib.observed(optax.sgd(canary.rate))
  release = canary.release.replace(hierarchy=dataset.hierarchy)
  step = private.make_meta_step(
      canary.learner, optimizer, dataset, release,
      compute=private.Compute(microbatch_size=1, mesh=None),
  )

  def initial(key):
    return private.init(
        key, canary.learner, optimizer, release.mechanism, params=canary.params
    )

  return runs_lib.releases(
      step, initial, keys, steps=steps, runs_at_once=runs_at_once,
      progress=progress,
  )
