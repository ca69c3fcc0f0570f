"""Many runs at once: the same as one run after the other, and all they gave."""

import functools

import jax
import numpy as np
import optax
import pytest

from episodic_dp import plan
from episodic_dp import private
from episodic_dp.auditing import attack
from episodic_dp.auditing import canaries
from tests import plans


@functools.lru_cache
def parts(**mechanism):
  """(step, initial) of a small run of 3-dimensional examples."""
  hierarchy = plans.tree("image", 6)
  images = np.random.default_rng(0).standard_normal((6, 3))
  dataset = canaries.canary_dataset(images, hierarchy)
  sampled = plans.sampling(0.5)
  m = plan.Mechanism(
      **{"clip_unit": "image", "noise_multiplier": 1.0, **mechanism}
  )
  release = plan.Release(hierarchy, sampled, m)
  learner = canaries.linear_learner(release, 3)
  optimizer = attack.with_mean(optax.sgd(1.0))
  step = private.make_meta_step(learner, optimizer, dataset, release)

  def initial(key):
    return private.init(key, learner, optimizer, m)

  return step, initial


@pytest.mark.optimized  # A step inside another program, as users compile it.
@pytest.mark.slow
def test_every_run_is_what_its_key_gives_alone():
  step, initial = parts()
  keys = jax.random.split(jax.random.key(3), 1000)
  released = attack.releases(step, initial, steps=3)(keys)
  assert released.means.shape == (1000, 3, 3)
  assert released.clip_norms.shape == (1000, 4, 1)
  for i in (0, 999):
    state = initial(keys[i])
    for t in range(3):
      before = np.asarray(state.params)
      state, _ = step(state)
      # With SGD of rate 1 the parameters move by what was released.
      np.testing.assert_allclose(
          released.means[i, t], before - state.params, atol=1e-5
      )
  # Independent, and noised as announced: noise of standard deviation 1 in 3
  # coordinates, and vectors of norm 1 at most; 3 are expected.
  sums = 3 * released.means
  assert (sums.std(0) > 0.95).all() and (sums.std(0) < 1.6).all()
  between = np.corrcoef(sums[:, 0, 0], sums[:, 1, 0])[0, 1]
  assert abs(between) < 0.15 and len(np.unique(sums[:, 0, 0])) == 1000


@pytest.mark.slow
def test_clip_norms_tell_the_noised_counts():
  step, initial = parts(**plans.QUANTILE)
  keys = jax.random.split(jax.random.key(1), 4)
  released = attack.releases(step, initial, steps=2)(keys)
  assert released.clip_norms.shape == (4, 3, 1)
  assert (released.clip_norms[:, 0] == 1).all()
  state, metrics = step(step(initial(keys[2]))[0])
  assert float(metrics["clip_norm"]) == pytest.approx(
      float(released.clip_norms[2, 1, 0]), rel=1e-5
  )
  assert float(state.clip[0]) == pytest.approx(
      float(released.clip_norms[2, 2, 0]), rel=1e-5
  )
