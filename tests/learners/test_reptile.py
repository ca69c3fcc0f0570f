"""Reptile's direction against a plain loop, alone and in the private step."""

import jax
import numpy as np
import pytest

from episodic_dp import learners


def both(tiny, episode):
  return tiny.Examples(
      *(np.concatenate(pair) for pair in zip(episode.support, episode.query))
  )


def plain_direction(tiny, params, episode, steps, rate):
  start, examples = params, both(tiny, episode)
  for _ in range(steps):
    gradient = tiny.slope(params, examples)
    params = {k: params[k] - rate * gradient[k] for k in params}
  return {k: (start[k] - params[k]) / rate for k in params}


@pytest.mark.parametrize("steps", [1, 4])
def test_the_direction_is_the_way_back_from_the_end_of_the_plain_loop(
    tiny, steps
):
  learner = learners.Reptile(tiny.model(), inner_steps=steps, inner_rate=0.3)
  episode = tiny.episode()
  params = tiny.in_float64(learner.init(jax.random.key(0)))
  with jax.enable_x64(True):
    loss, direction = jax.jit(learner.meta_gradient)(params, episode)
    at_support = learner.loss(params, episode)
  expected = plain_direction(tiny, params, episode, steps, 0.3)
  for k in expected:
    np.testing.assert_allclose(direction[k], expected[k], rtol=1e-9)
  # The loss beside it is that of a test task, which adapts to its support set.
  np.testing.assert_allclose(loss, at_support, rtol=1e-12)
  if steps == 1:
    gradient = tiny.slope(params, both(tiny, episode))
    np.testing.assert_allclose(direction["head"], gradient["head"], rtol=1e-9)
