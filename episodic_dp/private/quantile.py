"""Clip norms that adapt from step to step.

Formal guarantees
-----------------
"private_quantile": a step releases the noised sums of `plan.Mechanism`, which
shows that the two together are one Gaussian mechanism of the stated noise
multiplier. The clip norms of step t + 1 are a function of the noised counts of
steps 1 .. t and of public constants, so they may be published with the
parameters.

| clip unit | contribution to the count |
| --- | --- |
| norm within C, not scaled down | + 1/2 |
| scaled down to C | - 1/2 |
| not finite: its gradient is the zero vector | 0 |

"percentile_window" (only to reproduce the paper): no guarantee. `Window.norms`
are raw norms of single clip units and determine the clip norms: both are
private data.
"""

import math
from typing import NamedTuple

import jax
from jax import lax
import jax.numpy as jnp

from episodic_dp import plan as plan_lib
from episodic_dp.models.model import Params
from episodic_dp.private import clipping
from episodic_dp.private import noise

# The range of clip norms in which float32 keeps the bound and the noise.
_MIN_NORM, _MAX_NORM = 1e-20, 1e20


class Window(NamedTuple):
  """The clip norm of "percentile_window" and the norms that determine it.

  Attributes:
    bounds: float32[groups], the clip norm of the next step.
    norms: float32[W, groups], the raw norms of the last clip units, oldest
      first; zeros precede the first.
    held: int32, the number of norms in the window.
    fresh: int32, clip units since the bounds were last updated.
  """

  bounds: jax.Array
  norms: jax.Array
  held: jax.Array
  fresh: jax.Array


def init(mechanism: plan_lib.Mechanism, params: Params) -> jax.Array | Window:
  """Return the first step's clip norm in the form of `State.clip`."""
  groups = 1
  if mechanism.clip_by == "layer":
    groups = len(jax.tree.leaves(params))
  first = mechanism.clip_norm / math.sqrt(groups)
  bounds = jnp.full(groups, first, jnp.float32)
  if mechanism.clipping != "percentile_window":
    return bounds
  size = mechanism.clip_window
  assert size is not None  # Checked by the mechanism.
  none = jnp.zeros((), jnp.int32)
  return Window(bounds, jnp.zeros((size, groups)), none, none)


def stddev(multiplier: jax.Array, bounds: jax.Array) -> jax.Array:
  """Return the standard deviation of the noise on a sum: float32[groups].

  With a separate bound for each of m arrays, array j has noise z' sqrt(m) C_j.
  In units of the noise every array then moves by at most 1 / (z' sqrt(m)).

  Args:
    multiplier: z', the noise multiplier of the gradients; 0 for no noise, also
      with infinite clip norms.
    bounds: float32[groups], the clip norms of the step.
  """
  spread = (multiplier * math.sqrt(bounds.size)) * bounds
  return jnp.where(multiplier == 0, 0.0, spread)


def count_within(clipped: clipping.Clipped, real: jax.Array) -> jax.Array:
  """Sum the contributions of clip units to the counts: float32[groups].

  Args:
    clipped: arrays [units]; the gradients are not used.
    real: bool[units], false for units to leave out.
  """
  signs = jnp.where(clipped.within, 0.5, -0.5)
  # Exact in float32: halves, up to 2^23 of them.
  return jnp.where((real & clipped.finite)[:, None], signs, 0.0).sum(0)


def update(
    mechanism: plan_lib.Mechanism,
    bounds: jax.Array,
    counts: jax.Array,
    key: jax.Array,
    tasks: float,
    *,
    terms: int = 1,
) -> jax.Array:
  """Return the clip norms of the next step by the geometric update.

  Source: Andrew et al., "Differentially Private Learning with Adaptive
  Clipping" (2021), section 2. Each of m counts has noise sqrt(m) sigma_b, so
  that together they cost the same as one count with sigma_b.

  Args:
    mechanism: with clipping="private_quantile".
    bounds: float32[groups], the clip norms of this step.
    counts: float32[groups], `count_within` of all clip units of the step.
    key: key of the noise on the counts, used for nothing else.
    tasks: the expected number of clip units, a public constant.
    terms: as in `noise.add_noise`.
  """
  gamma, rate = mechanism.clip_quantile, mechanism.clip_rate
  sigma = mechanism.count_noise
  assert gamma and rate and sigma  # Checked by the mechanism.
  spread = sigma * math.sqrt(counts.size)
  noised = noise.add_noise(key, counts, spread, terms=terms)
  share = noised / tasks + 0.5
  factor = jnp.exp(-rate * (share - gamma))
  return jnp.clip(bounds * factor, _MIN_NORM, _MAX_NORM)


def push(
    mechanism: plan_lib.Mechanism, window: Window, new: jax.Array
) -> Window:
  """Append a step's norms; update the clip norm when half a window is new.

  Source: "Meta-Learning with Differential Privacy" (DP-MAML), section 5.2.1:
  the percentile of a full window, unless it rises.

  Args:
    mechanism: with clipping="percentile_window".
    window: the state before the step.
    new: float32[slots, groups], -1 in slots without a finite clip unit.
  """
  size = len(window.norms)
  chosen = new[:, 0] >= 0
  order = jnp.argsort(~chosen, stable=True)  # Chosen norms first, in order.
  count = chosen.sum(dtype=jnp.int32)
  norms = lax.dynamic_slice_in_dim(
      jnp.concatenate([window.norms, new[order]]), count, size
  )
  held = jnp.minimum(window.held + count, size)
  fresh, step = window.fresh + count, size // 2
  due = (held == size) & (fresh >= step)
  k = mechanism.clip_percentile
  assert k is not None  # Checked by the mechanism.
  percentile = jnp.maximum(jnp.percentile(norms, k, axis=0), _MIN_NORM)
  lower = jnp.minimum(window.bounds, percentile)
  return Window(
      jnp.where(due, lower, window.bounds),
      norms,
      held,
      # Modulo: a sample larger than half a window counts as several updates.
      jnp.where(due, fresh % step, fresh),
  )
