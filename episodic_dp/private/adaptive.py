"""Clip norms that adapt: what a run carries from step to step, and updates.

Formal guarantees
-----------------
"private_quantile": the counts that a step adds up, their noise, and the noise
on the gradients are those of `plan.Mechanism`, where it is shown that the two
sums together are one Gaussian mechanism of the announced noise multiplier. The
clip norms of step t + 1 are a function of the noised counts of steps 1 .. t and
of public constants, so they may be published with the parameters.

| clip unit | what it adds to the count |
| --- | --- |
| norm within C, not scaled down | + 1/2 |
| scaled down to C | - 1/2 |
| not finite: a zero vector, as its gradient | 0 |

"percentile_window": no guarantee. `Window.norms` are raw norms of single clip
units and the clip norms follow from them: both are private data.
"""

import math
from typing import Any, NamedTuple

import jax
from jax import lax
import jax.numpy as jnp
import numpy as np

from episodic_dp import plan as plan_lib
from episodic_dp.private import clipping
from episodic_dp.private import noise

# The range of clip norms: within it float32 keeps the bound and the noise.
_MIN_NORM, _MAX_NORM = 1e-20, 1e20


class Quantile(NamedTuple):
  """What "private_quantile" carries: functions of noised releases.

  Attributes:
    bounds: float32[groups], the clip norm of the next step: one for the whole
      gradient, or one for each array (clip_by="layer").
  """

  bounds: jax.Array


class Window(NamedTuple):
  """What "percentile_window" carries: private data, not noised.

  Attributes:
    bounds: as in `Quantile`.
    norms: float32[W, groups], the raw norms of the last clip units, oldest
      first; zeros come before the first.
    held: int32, how many of them are norms.
    fresh: int32, clip units since the bounds were last updated.
  """

  bounds: jax.Array
  norms: jax.Array
  held: jax.Array
  fresh: jax.Array


class Fixed(NamedTuple):
  """A clip norm that stays, as an argument of the step.

  Runs that differ in clip norm and noise alone share their program. No state of
  a run holds it: it is put in before each step and taken out behind it.

  Attributes:
    bounds: as in `Quantile`, infinity for no clipping.
    stddev: float32[1], of the noise on the sum of gradients.
  """

  bounds: Any
  stddev: Any


# Of a run's state; () where the clip norm is fixed.
ClipState = Quantile | Window | Fixed | tuple[()]


class SlotNorms(NamedTuple):
  """The norms that one device observed, for a window that all devices fill.

  Attributes:
    norms: float32[slots, groups], -1 where there is no clip unit.
  """

  norms: jax.Array


def init(mechanism: plan_lib.Mechanism, params: Any) -> ClipState:
  """The state of the clip norm before the first step."""
  if mechanism.clipping == "fixed":
    return ()
  groups = 1
  if mechanism.clip_by == "layer":
    groups = len(jax.tree.leaves(params))
  first = mechanism.clip_norm / math.sqrt(groups)
  bounds = jnp.full(groups, first, jnp.float32)
  if mechanism.clipping == "private_quantile":
    return Quantile(_in_range(bounds))
  size = mechanism.clip_window
  assert size is not None  # Checked by the mechanism.
  return Window(
      bounds,
      jnp.zeros((size, groups)),
      jnp.zeros((), jnp.int32),
      jnp.zeros((), jnp.int32),
  )


def fixed(mechanism: plan_lib.Mechanism, params: Any) -> Fixed | tuple[()]:
  """What a step takes for a fixed clip norm, as NumPy arrays.

  Args:
    mechanism: whose clip norm may also adapt: then there is nothing to take,
      nor with noisy inner steps, whose clip units are examples.
    params: the arrays that are clipped, or their shapes.
  """
  if mechanism.clipping != "fixed" or mechanism.noisy_inner_steps:
    return ()
  groups = 1
  if mechanism.clip_by == "layer":
    groups = len(jax.tree.leaves(params))
  bound = mechanism.clip_norm / math.sqrt(groups)
  return Fixed(
      np.full(groups, bound, np.float32),
      np.full(1, stddev(mechanism, ()), np.float32),
  )


def bounds(mechanism: plan_lib.Mechanism, clip: ClipState) -> float | jax.Array:
  """The clip norm of this step, as `clipping.clip` takes it."""
  return clip.bounds if clip else mechanism.clip_norm


def clip_norm(clip: ClipState) -> jax.Array:
  """float32, the bound C on the whole gradient in this step.

  Args:
    clip: of a clip norm that adapts.
  """
  assert clip
  return jnp.sqrt(jnp.sum(jnp.square(clip.bounds)))


def stddev(mechanism: plan_lib.Mechanism, clip: ClipState) -> float | jax.Array:
  """The noise on the sum of gradients, as `noise.add_noise` takes it.

  With m arrays that have bounds of their own, array j has noise z' sqrt(m) C_j:
  in units of the noise every array then moves by 1 / (z' sqrt(m)) at most.
  """
  if isinstance(clip, Fixed):
    return clip.stddev
  multiplier = mechanism.gradient_noise_multiplier
  if multiplier == 0:
    return 0.0  # Also for an infinite clip norm.
  if not clip:
    return multiplier * mechanism.clip_norm
  return (multiplier * math.sqrt(clip.bounds.size)) * clip.bounds


def begin(clip: ClipState) -> Any:
  """What `observe` adds the norms of a step to; () for fixed clipping."""
  if isinstance(clip, Quantile):
    return jnp.zeros_like(clip.bounds)
  if isinstance(clip, Window):
    return clip[1:]
  return ()


def begin_on_device(clip: ClipState, slots: int) -> Any:
  """`begin` on one device of several, which computes `slots` at most."""
  if isinstance(clip, Window):
    # A window holds norms in the order of slots, which `gather` restores.
    return SlotNorms(jnp.full((slots, clip.bounds.size), -1.0))
  return begin(clip)


def observe(
    observed: Any,
    clipped: clipping.Clipped,
    real: jax.Array,
    start: jax.Array | int = 0,
) -> Any:
  """Add the norms of some clip units.

  Args:
    observed: from `begin`, or from the units before.
    clipped: of [units], its gradients not used.
    real: bool[units], false for those that are to be left out.
    start: the slot of the first of them, on its device.
  """
  if isinstance(observed, tuple) and not observed:
    return ()
  chosen = real & clipped.finite
  if isinstance(observed, SlotNorms):
    values = jnp.where(chosen[:, None], clipped.norms, -1.0)
    return SlotNorms(
        lax.dynamic_update_slice_in_dim(observed.norms, values, start, 0)
    )
  if isinstance(observed, tuple):
    norms, held, fresh = observed
    return _push(norms, held, fresh, clipped.norms, chosen)
  signs = jnp.where(clipped.within, 0.5, -0.5)
  # Exact: halves, in float32, up to 2^23 of them.
  return observed + jnp.where(chosen[:, None], signs, 0.0).sum(0)


def scatter(
    observed: Any, device: jax.Array | int, devices: int
) -> Any:
  """What one device observed, at its own places among those of all devices.

  The sum over the devices holds what all of them observed.
  """
  if not isinstance(observed, SlotNorms):
    return observed
  own = jnp.arange(devices)[:, None] == device
  return SlotNorms(jnp.where(own, observed.norms[:, None], 0.0))


def gather(clip: ClipState, observed: Any) -> Any:
  """What `update` takes, from the sum of `scatter` over all devices."""
  if not isinstance(observed, SlotNorms):
    return observed
  assert isinstance(clip, Window)
  # Slot i is that of device i modulo their number.
  norms = observed.norms.reshape(-1, clip.bounds.size)
  return _push(*clip[1:], norms, norms[:, 0] >= 0)


def update(
    mechanism: plan_lib.Mechanism,
    clip: ClipState,
    observed: Any,
    key: jax.Array,
    tasks: float,
    *,
    terms: int = 1,
) -> ClipState:
  """The state of the clip norm for the next step.

  Args:
    mechanism: how the clip norm adapts.
    clip: of this step.
    observed: of all clip units of the step.
    key: of the noise on the counts, used for nothing else.
    tasks: the expected number of clip units, a public constant.
    terms: of the noise, as `noise.add_noise` takes it.
  """
  if isinstance(clip, Quantile):
    return _quantile_update(mechanism, clip, observed, key, tasks, terms)
  if isinstance(clip, Window):
    return _percentile_update(mechanism, clip.bounds, *observed)
  return clip


def _quantile_update(
    mechanism: plan_lib.Mechanism,
    clip: Quantile,
    counts: jax.Array,
    key: jax.Array,
    tasks: float,
    terms: int,
) -> Quantile:
  """[A] Andrew et al. 2021, section 2: the geometric update.

  With m counts each has noise sqrt(m) sigma_b, so that together they cost what
  one with sigma_b does.
  """
  gamma, rate = mechanism.clip_quantile, mechanism.clip_rate
  sigma = mechanism.count_noise
  assert gamma and rate and sigma  # Checked by the mechanism.
  spread = sigma * math.sqrt(counts.size)
  noised = noise.add_noise(key, counts, spread, terms=terms)
  share = noised / tasks + 0.5
  factor = jnp.exp(-rate * (share - gamma))
  return Quantile(_in_range(clip.bounds * factor))


def _push(
    norms: jax.Array,
    held: jax.Array,
    fresh: jax.Array,
    new: jax.Array,
    chosen: jax.Array,
) -> tuple[jax.Array, jax.Array, jax.Array]:
  """The last W norms once the chosen of `new` [units, groups] are appended."""
  size = norms.shape[0]
  order = jnp.argsort(~chosen, stable=True)  # The chosen first, in order.
  count = chosen.sum(dtype=jnp.int32)
  both = jnp.concatenate([norms, new[order]])
  return (
      lax.dynamic_slice_in_dim(both, count, size),
      jnp.minimum(held + count, size),
      fresh + count,
  )


def _percentile_update(
    mechanism: plan_lib.Mechanism,
    bounds_before: jax.Array,
    norms: jax.Array,
    held: jax.Array,
    fresh: jax.Array,
) -> Window:
  """[M] section 5.2.1: the percentile of a full window, unless it rises."""
  size, step = norms.shape[0], norms.shape[0] // 2
  due = (held == size) & (fresh >= step)
  k = mechanism.clip_percentile
  assert k is not None  # Checked by the mechanism.
  percentile = jnp.percentile(norms, k, axis=0)
  lower = jnp.minimum(bounds_before, jnp.maximum(percentile, _MIN_NORM))
  return Window(
      jnp.where(due, lower, bounds_before),
      norms,
      held,
      # Modulo: a draw larger than a step of the window counts as several.
      jnp.where(due, fresh % step, fresh),
  )


def _in_range(values: jax.Array) -> jax.Array:
  return jnp.clip(values, _MIN_NORM, _MAX_NORM)
