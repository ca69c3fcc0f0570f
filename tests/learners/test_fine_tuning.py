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


def test_adam_learns_the_support_set(tiny):
  learner = learners.FineTuning(
      tiny.model(width=8), inner_steps=200, optimizer=optax.adam(0.1)
  )
  params = learner.init(jax.random.key(0))
  support = tiny.episode(dtype=np.float32).support
  logits = jax.jit(learner.predict)(params, support, support.images)
  assert learners.accuracy(logits, support.labels) == 1


def test_wrong_settings_are_named(tiny):
  with pytest.raises(ValueError, match="inner_steps 0"):
    learners.FineTuning(tiny.model(), inner_steps=0)
  learner = learners.FineTuning(tiny.model(), head="top")
  with pytest.raises(ValueError, match="head 'top'"):
    learner.adapt(learner.init(jax.random.key(0)), tiny.episode().support)
