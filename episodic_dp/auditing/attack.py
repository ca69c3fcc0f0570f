"""Make many small private runs of both neighbours, and score every run.

The runs are real: each is `private.make_meta_step`, step by step, with its own
key; `vmap` over the keys only makes thousands of them quick.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
from jax import lax
import jax.numpy as jnp
import numpy as np
import optax

from episodic_dp import private
from episodic_dp.auditing import canaries
from episodic_dp.auditing import scores
from episodic_dp.data import dataset as dataset_lib


class Scores(NamedTuple):
  """Cumulative scores: column t is the score of the first t + 1 steps.

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
    progress: Callable[[int], None] | None = None,
) -> Scores:
  """Score independent runs with the record, and as many without it.

  Args:
    canary: see `canaries.worst_case`.
    runs: of each kind.
    steps: of each run.
    seed: of the runs' secret keys, which all differ.
    runs_at_once: number of runs that share the device's memory.
    progress: called with the number of runs that were finished.
  """
  keys = jax.random.split(jax.random.key(seed), 2 * runs)
  return Scores(*(
      _scored(canary, dataset, part, steps, runs_at_once, progress)
      for dataset, part in (
          (canary.present, keys[:runs]), (canary.absent, keys[runs:])
      )
  ))


def _scored(
    canary: canaries.Canary,
    dataset: dataset_lib.Dataset,
    keys: jax.Array,
    steps: int,
    runs_at_once: int,
    progress: Callable[[int], None] | None,
) -> np.ndarray:
  optimizer = with_mean(optax.sgd(0.0))
  release = canary.release.replace(hierarchy=dataset.hierarchy)
  step = private.make_meta_step(
      canary.learner, optimizer, dataset, release,
      compute=private.Compute(microbatch_size=1, mesh=None),
  )

  def initial(key):
    return private.init(key, canary.learner, optimizer, release.mechanism)

  released = releases(
      step, initial, keys, steps=steps, runs_at_once=runs_at_once,
      progress=progress,
  )
  count = scores.clip_units(release)
  # In parts, since a score holds more numbers than a release.
  return np.concatenate([
      canary.score(
          Releases(*(a[start : start + runs_at_once] for a in released)), count
      )
      for start in range(0, len(keys), runs_at_once)
  ])


class Releases(NamedTuple):
  """The releases of runs, in order.

  Attributes:
    means: float32[runs, steps, coordinates], the noised means of the clipped
      gradients: the arrays of the parameters in the order of `jax.tree.leaves`,
      flattened and joined.
    clip_norms: float32[runs, steps + 1, groups], the clip norms before each
      step and after the last one. Where they adapt by a private quantile they
      reveal the noised counts.
  """

  means: np.ndarray
  clip_norms: np.ndarray


class WithMean(NamedTuple):
  """The state of `with_mean`.

  Attributes:
    mean: the noised mean gradient of the last step, like the parameters.
    inner: the state of the optimizer itself.
  """

  mean: Any
  inner: Any


def with_mean(
    optimizer: optax.GradientTransformation,
) -> optax.GradientTransformation:
  """Make the optimizer's state also hold its last input, the released mean.

  An optimizer sees the released mean and nothing else of a step. Nothing is
  lost to rounding, as it would be in the difference of two vectors of
  parameters.
  """

  def init(params):
    nothing = jax.tree.map(jnp.zeros_like, params)
    return WithMean(nothing, optimizer.init(params))

  def update(mean, state, params=None):
    updates, inner = optimizer.update(mean, state.inner, params)
    return updates, WithMean(mean, inner)

  return optax.GradientTransformation(init, update)


def releases(
    step: Callable[[private.State], tuple[private.State, Any]],
    initial: Callable[[jax.Array], private.State],
    keys: jax.Array,
    *,
    steps: int,
    runs_at_once: int = 1024,
    progress: Callable[[int], None] | None = None,
) -> Releases:
  """Make one run for every key, and return the release of every step.

  Args:
    step: of `private.make_meta_step` on data of the device, its optimizer
      `with_mean`, with `Compute(mesh=None)`: many runs share the device.
    initial: key -> state, of `private.init` with the same optimizer.
    keys: typed keys [runs], the secret keys of the runs.
    steps: of each run, at least 1.
    runs_at_once: how many share the device's memory; the result depends on it
      by rounding only.
    progress: called with the number of runs that a batch finished.
  """
  def one_run(key):
    def one_step(state, _):
      bounds = _clip_norms(state)
      state, _ = step(state)
      return state, (_flat(state.opt_state.mean), bounds)

    state, (means, bounds) = lax.scan(
        one_step, initial(key), None, length=steps
    )
    return means, jnp.concatenate([bounds, _clip_norms(state)[None]])

  count = len(keys)
  size = min(runs_at_once, count)
  batch = jax.jit(jax.vmap(one_run))
  parts = []
  for start in range(0, count, size):
    # The last batch is filled up with runs that are thrown away, so that one
    # program serves all.
    chosen = np.minimum(np.arange(start, start + size), count - 1)
    kept = min(size, count - start)
    part = jax.device_get(batch(keys[chosen]))
    parts.append([array[:kept] for array in part])
    if progress is not None:
      progress(kept)
  means, bounds = (np.concatenate(arrays) for arrays in zip(*parts))
  return Releases(means, bounds)


def _clip_norms(state: private.State) -> jax.Array:
  """Return the clip norms of the next step, float32[groups]."""
  return jax.tree.leaves(state.clip)[0]  # Also of a window.


def _flat(tree: Any) -> jax.Array:
  return jnp.concatenate([leaf.ravel() for leaf in jax.tree.leaves(tree)])
