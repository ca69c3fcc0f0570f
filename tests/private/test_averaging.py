"""The average of the iterates: a mean first, exponential later on."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from episodic_dp.private import averaging


def run(decay, steps=12):
  """The iterates of a noisy descent, and the average after each."""
  optimizer = averaging.averaged(optax.sgd(0.1, momentum=0.5), decay)
  params = {"a": jnp.ones(3), "b": jnp.zeros((2, 2))}
  state = optimizer.init(params)
  rng = np.random.default_rng(0)
  iterates, averages = [], []
  for _ in range(steps):
    gradient = jax.tree.map(
        lambda p: jnp.asarray(rng.normal(size=p.shape), p.dtype), params
    )
    updates, state = optimizer.update(gradient, state, params)
    params = optax.apply_updates(params, updates)
    iterates.append(jax.device_get(params))
    averages.append(jax.device_get(state.average))
  return iterates, averages


@pytest.mark.parametrize("decay", [0.0, 0.5, 0.8, 0.99])
def test_it_is_the_plain_mean_first_and_exponential_later(decay):
  iterates, averages = run(decay)
  expected = None
  for t, (iterate, average) in enumerate(zip(iterates, averages)):
    kept = min(decay, t / (t + 1))
    expected = iterate if t == 0 else jax.tree.map(
        lambda e, p, kept=kept: kept * e + (1 - kept) * p, expected, iterate
    )
    jax.tree.map(
        lambda e, a: np.testing.assert_allclose(e, a, rtol=1e-5, atol=1e-6),
        expected, average,
    )
  few = max(1, min(len(iterates), round(1 / (1 - decay))))
  mean = np.mean([i["a"] for i in iterates[:few]], axis=0)
  np.testing.assert_allclose(averages[few - 1]["a"], mean, rtol=1e-5, atol=1e-6)


def test_the_iterates_are_those_of_the_optimizer_alone():
  (with_it, _), (without, averages) = run(0.9), run(0.0)
  for a, b in zip(with_it, without):
    jax.tree.map(np.testing.assert_array_equal, a, b)
  # Without memory the average is the iterate itself.
  jax.tree.map(
      lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6),
      averages[-1], without[-1],
  )


@pytest.mark.parametrize("decay", [-0.1, 1.0])
def test_another_decay_is_refused(decay):
  with pytest.raises(ValueError, match="at least 0 and below 1"):
    averaging.averaged(optax.sgd(0.1), decay)
