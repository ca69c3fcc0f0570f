"""Fine-tuning against a plain loop."""

import jax
import numpy as np
import optax
import pytest

from episodic_dp import learners

RATE = 0.3


def plain_adapt(tiny, params, support, steps, names):
  for _ in range(steps):
    gradient = tiny.slope(params, support)
    params = params | {k: params[k] - RATE * gradient[k] for k in names}
  return params


@pytest.mark.parametrize("body", [True, False])
@pytest.mark.parametrize("fresh", [True, False])
def test_adaptation_is_the_plain_loop(tiny, body, fresh):
  learner = learners.FineTuning(
      tiny.model(),
      inner_steps=4,
      optimizer=optax.sgd(RATE),
      body=body,
      fresh_head=fresh,
  )
  support, _ = tiny.episode()
  params = tiny.in_float64(learner.init(jax.random.key(0)))
  start = dict(params)
  if fresh:
    # Of a network of seven classes; its head is replaced.
    params["head"] = np.ones((3, 7))
    start["head"] = np.zeros((3, 3))
  with jax.enable_x64(True):
    adapted = jax.jit(learner.adapt)(params, support)
    adapted = tiny.in_float64(adapted)
  names = ("body", "head") if body else ("head",)
  expected = plain_adapt(tiny, start, support, 4, names)
  for k in expected:
    np.testing.assert_allclose(adapted[k], expected[k], rtol=1e-6, atol=1e-9)
