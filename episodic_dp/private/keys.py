"""Keys that nobody can guess."""

import secrets

import jax
import numpy as np

KEY_BYTES = 8  # threefry takes 64 bits


def secret_key(data: bytes | None = None) -> jax.Array:
  """A typed threefry key, shape [], for `private.init`.

  `jax.random.key(seed)` keeps 32 bits of a Python integer, few enough to try
  them all; this takes 64.

  Args:
    data: 8 bytes to make the same key again; None draws them from the operating
      system, so that the run cannot be repeated.

  Raises:
    ValueError: data of another length.
  """
  if data is None:
    data = secrets.token_bytes(KEY_BYTES)
  if len(data) != KEY_BYTES:
    raise ValueError(f"a key has {KEY_BYTES} bytes, and data has {len(data)}")
  words = np.frombuffer(data, dtype=">u4").astype(np.uint32)
  return jax.random.wrap_key_data(jax.numpy.asarray(words), impl="threefry2x32")
