"""MAML, ANIL, Meta-SGD and the switches of MAML++ against plain loops."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from episodic_dp import learners
from episodic_dp.learners import maml
from tests.learners import tiny

STEPS, RATE = 3, 0.4
KEY = jax.random.key(0)


@pytest.mark.slow
def test_all_switches_begin_as_plain_maml_with_norms_that_stay():
  """And what they add to the parameters is what is announced."""
  learner = learners.MAML(
      tiny.normalising_model(),
      inner_steps=STEPS,
      learned_rates=True,
      per_step_norm=True,
  )
  params = learner.init(KEY)
  assert jax.tree.map(np.shape, params) == {
      "model": {
          "body": (4, 3),
          "head": (3, 3),
          "norm": {"scale": (STEPS, 3), "bias": (STEPS, 3)},
      },
      "rates": {
          "body": (STEPS,),
          "head": (STEPS,),
          "norm": {"scale": None, "bias": None},
      },
  }
  support = tiny.episode(dtype=np.float32).support
  adapted = learner.adapt(params, support)
  plain = learners.MAML(tiny.model(), inner_steps=STEPS)
  expected = plain.adapt(plain.init(KEY), support)
  for k in expected:
    np.testing.assert_allclose(adapted[k], expected[k], rtol=1e-5)
  np.testing.assert_array_equal(adapted["norm"]["scale"], np.ones(3))


def test_annealed_weights_are_those_of_the_authors():
  """Their code's rule, for five inner steps and ten epochs of 50 steps."""
  schedule = maml.annealed(5, 500)
  for epoch in range(12):
    early = max(0.2 - 0.02 * epoch, 0.006) if epoch < 10 else 0.0
    last = min(0.2 + 0.08 * epoch, 0.976) if epoch < 10 else 1.0
    for step in (50 * epoch, 50 * epoch + 49):
      weights = schedule(jnp.int32(step))
      np.testing.assert_allclose(weights, [early] * 4 + [last], atol=1e-6)


def test_a_schedule_is_resolved_by_the_outer_step():
  episode = tiny.episode(dtype=np.float32)
  learner = learners.MAML(
      tiny.model(), inner_steps=2, loss_weights=maml.annealed(2, 10)
  )
  params = learner.init(KEY)
  loss = jax.jit(lambda step: learner.at_step(step).loss(params, episode))
  for step, weights in ((0, (0.5, 0.5)), (10, None)):
    fixed = learners.MAML(tiny.model(), inner_steps=2, loss_weights=weights)
    expected = fixed.loss(params, episode)
    np.testing.assert_allclose(loss(step), expected, rtol=1e-6)


# Of two parameters -----------------------------------------------------------


def test_the_first_order_gradient_is_that_at_the_adapted():
  episode, gradients = tiny.episode(dtype="f"), {}
  for order in ("first", "second"):
    learner = learners.MAML(tiny.model(), inner_steps=2, order=order)
    params = learner.init(KEY)
    gradients[order] = jax.grad(learner.loss)(params, episode)
  adapted = learner.adapt(params, episode.support)
  at_adapted = jax.grad(learner.adapted_loss)(adapted, episode.query)
  for k, expected in at_adapted.items():
    np.testing.assert_allclose(gradients["first"][k], expected, atol=1e-5)
  difference = np.abs(gradients["first"]["body"] - gradients["second"]["body"])
  assert difference.max() > 1e-3


@pytest.mark.parametrize(
    "kind,moving",
    [(learners.MAML, ("body", "head")), (learners.ANIL, ("head",))],
)
def test_the_inner_gradient_can_be_replaced_and_knows_its_step(
    kind, moving
):
  learner = kind(tiny.model(), inner_steps=3, inner_rate=RATE)
  params = learner.init(KEY)

  def powers(loss):
    return lambda p, examples, step: jax.tree.map(
        lambda a: 10.0 ** jnp.float32(step) * jnp.ones_like(a), p
    )

  adapted = learner.adapt(
      params, tiny.episode(dtype="f").support, inner_gradient=powers
  )
  for k, array in params.items():
    np.testing.assert_allclose(
        adapted[k], array - 111 * RATE * (k in moving), rtol=1e-5
    )


def test_a_head_is_found_in_haiku_names_and_missed_by_name():
  params = {"net/body": np.ones(2), "net/head": np.ones(3), "ahead": 1.0}
  learner = learners.ANIL(tiny.model())
  assert learner._moves(params) == {
      "net/body": False, "net/head": True, "ahead": False
  }
  with pytest.raises(ValueError, match=r"head='top'.*\['body', 'head'\]"):
    learners.ANIL(tiny.model(), head="top").loss(
        tiny.model().init(KEY), tiny.episode()
    )
