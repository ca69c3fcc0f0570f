"""ANIL against a plain loop over the head."""

import jax
import numpy as np
import pytest

from episodic_dp import learners


def plain_loss(tiny, params, episode, steps, rate):
  """The body stays; the head takes its own gradient steps."""
  adapted = dict(params)
  for _ in range(steps):
    gradient = tiny.slope(adapted, episode.support)
    adapted = adapted | {"head": adapted["head"] - rate * gradient["head"]}
  logits = tiny.outputs(adapted, episode.query.images)
  return tiny.cross_entropy(logits, episode.query.labels)


def test_loss_and_gradient_are_those_of_the_plain_loop(tiny):
  learner = learners.ANIL(tiny.model(), inner_steps=3, inner_rate=0.4)
  episode = tiny.episode()
  tiny.assert_gradient(
      lambda p: learner.loss(p, episode),
      lambda p: plain_loss(tiny, p, episode, 3, 0.4),
      learner.init(jax.random.key(0)),
  )


def test_the_body_does_not_adapt_and_is_not_given_to_the_inner_gradient(tiny):
  learner = learners.ANIL(tiny.model(), inner_steps=2, inner_rate=0.4)
  params = learner.init(jax.random.key(0))
  support = tiny.episode(dtype=np.float32).support
  sizes = []

  def inner_gradient(loss):
    def gradient(head, examples, step):
      sizes.append(sum(leaf.size for leaf in jax.tree.leaves(head)))
      return jax.grad(loss)(head, examples, step)

    return gradient

  adapted = learner.adapt(params, support, inner_gradient=inner_gradient)
  np.testing.assert_array_equal(adapted["body"], params["body"])
  assert np.abs(adapted["head"] - params["head"]).max() > 1e-3
  assert sizes == [params["head"].size] * 2


def test_a_head_is_found_in_haiku_names_and_missed_by_name(tiny):
  params = {"net/body": np.ones(2), "net/head": np.ones(3), "ahead": 1.0}
  learner = learners.ANIL(tiny.model())
  assert learner._moves(params) == {
      "net/body": False, "net/head": True, "ahead": False
  }
  with pytest.raises(ValueError, match=r"head 'top'.*\['body', 'head'\]"):
    learners.ANIL(tiny.model(), head="top").init(jax.random.key(0))
