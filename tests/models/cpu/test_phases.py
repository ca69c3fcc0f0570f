"""The pool over four arrays against the pool over one."""

import jax
import jax.numpy as jnp
import numpy as np

from episodic_dp.models import pooling
from episodic_dp.models.cpu import phases as phases_lib
from tests.models import derivatives


def by_phases(x):
  phases = tuple(x[:, p::2, q::2] for p in range(2) for q in range(2))
  return phases_lib.choose(phases, phases_lib.first_largest(phases))


def test_phases_give_the_same_pool_and_the_same_derivatives():
  # Whole numbers: many entries of a window are equal.
  x = np.random.default_rng(0).integers(0, 3, (2, 4, 6, 3)).astype(np.float32)

  def run(pool):
    return jax.tree.leaves(derivatives.two_orders(pool, [jnp.asarray(x)]))

  for a, b in zip(run(by_phases), run(pooling.max_pool)):
    np.testing.assert_allclose(a, b, atol=1e-6)
