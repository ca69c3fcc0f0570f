"""The state hides its key; the iterates' average; keys from bytes."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from episodic_dp import private
from episodic_dp.private import state as state_lib


def test_a_state_shows_no_key_and_no_norm_of_a_task(quick_run):
  run = quick_run(
      clipping="percentile_window", clip_percentile=50.0, clip_window=4
  )
  state = run.init(optax.sgd(0.1), seed=123456789)
  words = np.asarray(jax.random.key_data(state.key)).tolist()
  for text in (repr(state), str(state), f"{state}"):
    assert "step=0" in text and "float32[16, 3]" in text
    assert not any(str(word) in text for word in words if word)
    assert "Window" not in text and "norms" not in text


def test_keys_take_all_bits_of_their_bytes_and_differ_when_drawn():
  key = private.secret_key(bytes(range(8)))
  assert jax.random.key_data(key).tolist() == [0x00010203, 0x04050607]
  assert jax.random.key_impl(key) == "threefry2x32"
  drawn = [jax.random.key_data(private.secret_key()) for _ in range(20)]
  assert len(np.unique(drawn, axis=0)) == 20
  with pytest.raises(ValueError, match="8 bytes, and data has 3"):
    private.secret_key(b"abc")


@pytest.mark.parametrize("decay", [0.0, 0.5, 0.8, 0.99])
def test_the_average_is_the_plain_mean_first_and_exponential_later(decay):
  optimizer = state_lib.averaged(optax.sgd(0.1, momentum=0.5), decay)
  alone = optax.sgd(0.1, momentum=0.5)
  params = other = jnp.ones(3)
  state, inner = optimizer.init(params), alone.init(params)
  rng, expected = np.random.default_rng(0), 0.0
  for t in range(12):
    gradient = jnp.asarray(rng.normal(size=3), jnp.float32)
    updates, state = optimizer.update(gradient, state, params)
    same, inner = alone.update(gradient, inner, other)
    params, other = params + updates, other + same
    np.testing.assert_array_equal(params, other)
    kept = min(decay, t / (t + 1))
    expected = kept * expected + (1 - kept) * params
    np.testing.assert_allclose(state.average, expected, rtol=1e-5, atol=1e-6)
  for wrong in (-0.1, 1.0):
    with pytest.raises(ValueError, match=f"decay={wrong}"):
      state_lib.averaged(alone, wrong)
