"""MAML, ANIL and Meta-SGD against plain loops."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from episodic_dp import learners

RATE = 0.3


def plain_loss(tiny, params, episode, steps, rates):
  """Gradient steps one by one in NumPy, then the query loss."""
  for _ in range(steps):
    gradient = tiny.slope(params, episode.support)
    params = {k: params[k] - rates[k] * gradient[k] for k in params}
  logits = tiny.outputs(params, episode.query.images)
  return tiny.cross_entropy(logits, episode.query.labels)


@pytest.mark.parametrize("unroll", [True, False])
@pytest.mark.parametrize(
    "kind,rates",
    [
        (learners.MAML, {"body": RATE, "head": RATE}),
        (learners.ANIL, {"body": 0.0, "head": RATE}),
    ],
)
def test_loss_and_gradient_are_those_of_the_plain_loop(
    tiny, kind, rates, unroll
):
  learner = kind(tiny.model(), inner_steps=3, inner_rate=RATE, unroll=unroll)
  episode, params = tiny.episode(), learner.init(jax.random.key(0))
  tiny.assert_gradient(
      lambda p: learner.loss(p, episode),
      lambda p: plain_loss(tiny, p, episode, 3, rates),
      params,
  )
  text = str(jax.make_jaxpr(learner.loss)(params, tiny.episode(dtype="f")))
  assert ("scan" in text) != unroll


def test_meta_sgd_is_the_plain_loop_with_a_rate_for_every_number(tiny):
  """With respect to the rates too."""
  learner = learners.MetaSGD(tiny.model(), inner_steps=2)
  params, rng = learner.init(jax.random.key(0)), np.random.default_rng(0)
  assert all((r == 0.1).all() for r in params["rates"].values())
  params["rates"] = jax.tree.map(
      lambda r: rng.uniform(-0.1, 0.5, r.shape), params["rates"]
  )
  episode = tiny.episode()
  tiny.assert_gradient(
      lambda p: learner.loss(p, episode),
      lambda p: plain_loss(tiny, p["model"], episode, 2, p["rates"]),
      params,
  )


@pytest.mark.parametrize("unroll", [True, False])
def test_the_first_order_gradient_is_that_at_the_adapted(tiny, unroll):
  episode, gradients = tiny.episode(dtype="f"), {}
  for order in ("first", "second"):
    learner = learners.MAML(
        tiny.model(), inner_steps=2, order=order, unroll=unroll
    )
    params = learner.init(jax.random.key(0))
    gradients[order] = jax.grad(learner.loss)(params, episode)
  adapted = learner.adapt(params, episode.support)
  at_adapted = jax.grad(learner.adapted_loss)(adapted, episode.query)
  for k, expected in at_adapted.items():
    np.testing.assert_allclose(gradients["first"][k], expected, atol=1e-5)
  difference = np.abs(gradients["first"]["body"] - gradients["second"]["body"])
  assert difference.max() > 1e-3


@pytest.mark.parametrize("unroll", [True, False])
def test_the_inner_gradient_can_be_replaced_and_knows_its_step(tiny, unroll):
  support = tiny.episode(dtype="f").support
  for kind, moving in (
      (learners.MAML, ("body", "head")), (learners.ANIL, ("head",))
  ):
    learner = kind(
        tiny.model(), inner_steps=3, inner_rate=RATE, unroll=unroll
    )
    params = learner.init(jax.random.key(0))

    def powers(loss):
      assert callable(loss)
      return lambda p, examples, step: jax.tree.map(
          lambda a: 10.0**step * jnp.ones_like(a), p
      )

    adapted = learner.adapt(params, support, inner_gradient=powers)
    for k, array in params.items():
      moved = 111 * RATE if k in moving else 0.0
      np.testing.assert_allclose(adapted[k], array - moved, rtol=1e-5)


def test_a_head_is_found_in_haiku_names_and_missed_by_name(tiny):
  params = {"net/body": np.ones(2), "net/head": np.ones(3), "ahead": 1.0}
  learner = learners.ANIL(tiny.model())
  assert learner._moves(params) == {
      "net/body": False, "net/head": True, "ahead": False
  }
  with pytest.raises(ValueError, match=r"head 'top'.*\['body', 'head'\]"):
    learners.ANIL(tiny.model(), head="top").init(jax.random.key(0))
