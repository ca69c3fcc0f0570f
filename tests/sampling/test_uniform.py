"""uniform_below against Python's big integers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from episodic_dp.sampling import draws

RANGES = (1, 2, 3, 5, 7, 1150, 65535, 65536, 65537, 10**8, 2**31 - 1)


def _exact(words, n):
  value = 0
  for word in words:
    value = value << 32 | int(word)
  return value * n >> 128


@pytest.mark.parametrize("n", RANGES)
def test_equals_big_integers(n):
  rng = np.random.default_rng(n)
  bits = rng.integers(0, 2**32, (200, 4), np.uint32)
  # Words of all zeros and all ones carry in every possible way.
  bits[100:] = np.where(rng.random((100, 4)) < 0.5, 0, 2**32 - 1)
  bits[0], bits[1] = 0, 2**32 - 1
  got = jax.jit(draws.uniform_below)(jnp.asarray(bits), n)
  assert got.dtype == jnp.int32
  np.testing.assert_array_equal(got, [_exact(b, n) for b in bits])
  assert got[0] == 0 and got[1] == n - 1


def test_smallest_number_that_reaches_a_value():
  """Exact rounding: the preimage of v starts at ceil(v 2^128 / n)."""
  for n in (3, 1150, 2**31 - 1):
    for value in (1, n // 2 + 1, n - 1):
      start = -(-(value << 128) // n)
      words = [
          [(u >> shift) & 0xFFFFFFFF for shift in (96, 64, 32, 0)]
          for u in (start - 1, start)
      ]
      got = draws.uniform_below(jnp.asarray(words, jnp.uint32), n)
      assert got.tolist() == [value - 1, value]


def test_ranges_broadcast_and_vary():
  bits = np.random.default_rng(0).integers(0, 2**32, (4, 5, 4), np.uint32)
  n = np.asarray([1, 2, 3, 10**6, 2**31 - 1], np.int32)
  got = draws.uniform_below(jnp.asarray(bits), jnp.asarray(n))
  want = [[_exact(b, int(k)) for b, k in zip(row, n)] for row in bits]
  np.testing.assert_array_equal(got, want)
