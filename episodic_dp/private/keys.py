"""The secret key of a run, and the keys that every step derives from it."""

import secrets
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from episodic_dp import backends
from episodic_dp.errors import RunError

KEY_BYTES = 8  # threefry takes 64 bits.
IMPLEMENTATION = "threefry2x32"

# Folded into the run's key for each purpose, before the step's number. Changing
# one changes every run.
SAMPLING, AUGMENTATION, NOISE, PARAMETERS, INNER_NOISE, COUNT, LAYERS = range(7)


def secret_key(data: bytes | None = None) -> jax.Array:
  """Make a typed threefry key, shape [], for `private.init`.

  All its 64 bits are random. An integer seed would have 32, few enough to try
  them all.

  Args:
    data: 8 bytes to make the same key again; None takes new ones from the
      operating system, so that the run cannot be repeated.

  Returns:
    The key; keep it secret, and use it for one run only.

  Raises:
    RunError: `data` has another length.
  """
  if data is None:
    data = secrets.token_bytes(KEY_BYTES)
  if len(data) != KEY_BYTES:
    raise RunError(
        f"data={len(data)} bytes: expected {KEY_BYTES} for a key"
    )
  backends.ask_for_cores()
  words = np.frombuffer(data, dtype=">u4").astype(np.uint32)
  return jax.random.wrap_key_data(jnp.asarray(words), impl=IMPLEMENTATION)


def check_key(key: Any) -> None:
  """Raise RunError unless the key is one typed key of threefry.

  Numbers from other generators may differ between machines, and are not known
  to be unpredictable.
  """
  if not (
      isinstance(key, jax.Array)
      and jnp.issubdtype(key.dtype, jax.dtypes.prng_key)
      and key.ndim == 0
      and str(jax.random.key_impl(key)) == IMPLEMENTATION
  ):
    raise RunError(
        f"key {type(key).__name__} of shape {np.shape(key)}: expected one typed"
        f" key of {IMPLEMENTATION}; use private.secret_key()"
    )


def step_key(key: jax.Array, purpose: int, step: jax.Array) -> jax.Array:
  """Derive the key of one purpose in one step.

  Args:
    key: the run's secret key.
    purpose: one of the constants above; the sampler folds in the step itself.
    step: int32 scalar.
  """
  return jax.random.fold_in(jax.random.fold_in(key, purpose), step)
