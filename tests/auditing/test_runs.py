"""Many runs at once: the same as one run after the other, and all they gave."""

import functools
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from episodic_dp import learners
from episodic_dp import models
from episodic_dp import plan
from episodic_dp import private
from episodic_dp.auditing import runs

LEVELS = ("participant", "class", "image")


@functools.lru_cache
def parts(optimizer=None, **mechanism):
  """(step, initial) of a small run with an optimizer that is observed."""
  hierarchy = plan.Hierarchy.regular((6, 2, 3), levels=LEVELS)
  images = np.random.default_rng(0).integers(0, 256, (36, 2, 2, 1), np.uint8)
  dataset = SimpleNamespace(
      images=images, hierarchy=hierarchy, rows=lambda r: r, rotate=False
  )
  sampled = plan.SamplingPlan(
      (plan.Poisson(0.5), plan.FixedSize(2), plan.FixedSize(2)),
      episode=plan.Episode(way=2, shot=1, query=1),
  )
  m = plan.Mechanism(
      **{"clip_unit": "participant", "noise_multiplier": 1.0, **mechanism}
  )
  learner = learners.ProtoNet(models.mlp(3, (), (2, 2, 1)), way=2)
  optimizer = optimizer or runs.observed(optax.sgd(1.0))
  step = private.make_meta_step(learner, optimizer, dataset, sampled, m)

  def initial(key):
    return private.init(key, learner, optimizer, m)

  return step, initial


def test_every_run_is_what_its_key_gives_alone():
  step, initial = parts()
  keys = runs.keys_of(3, 5)
  released = runs.releases(step, initial, keys, steps=3, runs_at_once=2)
  assert released.means.shape == (5, 3, 15)
  assert released.clip_norms.shape == (5, 4, 0)
  for i in (0, 4):
    state = initial(keys[i])
    for t in range(3):
      before = np.concatenate(
          [np.ravel(x) for x in jax.tree.leaves(state.params)]
      )
      state, _ = step(state)
      after = np.concatenate(
          [np.ravel(x) for x in jax.tree.leaves(state.params)]
      )
      # With SGD of rate 1 the parameters move by what was released.
      np.testing.assert_allclose(
          released.means[i, t], before - after, atol=1e-5
      )


def test_runs_are_independent_and_noised_as_announced():
  step, initial = parts()
  released = runs.releases(step, initial, runs.keys_of(0, 400), steps=2)
  means = released.means * 3  # The expected number of tasks.
  # Noise of standard deviation 1 in 15 coordinates, and tasks of norm 1.
  spread = means.std(0)
  assert (spread > 0.9).all() and (spread < 1.6).all()
  pairs = np.corrcoef(means[:, 0, 0], means[:, 1, 0])[0, 1]
  assert abs(pairs) < 0.2 and len(np.unique(means[:, 0, 0])) == 400


def test_clip_norms_tell_the_noised_counts():
  step, initial = parts(
      clipping="private_quantile", clip_quantile=0.5, clip_rate=0.2,
      count_noise=5.0,
  )
  keys = runs.keys_of(1, 4)
  released = runs.releases(step, initial, keys, steps=2)
  assert released.clip_norms.shape == (4, 3, 1)
  assert (released.clip_norms[:, 0] == 1).all()
  state, metrics = step(step(initial(keys[2]))[0])
  assert float(metrics["clip_norm"]) == pytest.approx(
      float(released.clip_norms[2, 1, 0]), rel=1e-5
  )
  assert float(state.clip.bounds[0]) == pytest.approx(
      float(released.clip_norms[2, 2, 0]), rel=1e-5
  )


def test_progress_counts_every_run_once():
  step, initial = parts()
  done = []
  runs.releases(
      step, initial, runs.keys_of(2, 7), steps=1, runs_at_once=3,
      progress=done.append,
  )
  assert done == [3, 3, 1]


def test_mistakes_are_named():
  step, initial = parts()
  for keys, steps in ((runs.keys_of(0, 2), 0), (jax.random.key(0), 1)):
    with pytest.raises(ValueError, match="give keys") as caught:
      runs.releases(step, initial, keys, steps=steps)
    assert "at least one of each" in str(caught.value)
  step, initial = parts(optax.sgd(1.0))
  with pytest.raises(ValueError, match="auditing.observed") as caught:
    runs.releases(step, initial, runs.keys_of(0, 2), steps=1)
  assert "optimizer's state" in str(caught.value)
  assert jnp.ndim(initial(jax.random.key(0)).step) == 0
