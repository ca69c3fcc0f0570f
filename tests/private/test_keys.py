"""Secret keys: all 64 bits, repeatable from bytes, never twice the same."""

import jax
import numpy as np
import pytest

from episodic_dp import private


def test_bytes_become_the_key():
  key = private.secret_key(bytes(range(8)))
  np.testing.assert_array_equal(
      jax.random.key_data(key), np.asarray([0x00010203, 0x04050607], np.uint32)
  )
  assert jax.random.key_impl(key) == "threefry2x32"


def test_drawn_keys_differ():
  drawn = {
      tuple(np.asarray(jax.random.key_data(private.secret_key())).tolist())
      for _ in range(20)
  }
  assert len(drawn) == 20


def test_wrong_length_is_named():
  with pytest.raises(ValueError, match="8 bytes, and data has 3"):
    private.secret_key(b"abc")
