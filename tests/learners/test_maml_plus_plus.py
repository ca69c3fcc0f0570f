"""The switches of MAML++ against plain loops, one by one and together."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from episodic_dp import learners
from episodic_dp import models
from episodic_dp.learners import maml

STEPS, RATE = 3, 0.4


def normalising_model(tiny):
  """The tiny model with an affine layer, as after a normalisation."""
  plain = tiny.model()

  def init(key):
    params = plain.init(key)
    return params | {"norm": {"scale": jnp.ones(3), "bias": jnp.zeros(3)}}

  def apply(params, images):
    x = plain.apply(params, images)
    return x * params["norm"]["scale"] + params["norm"]["bias"]

  return models.Model(init, apply, mixes_examples=False)


def slope(tiny, params, norm, examples):
  """Of the weights before the affine layer: a plain one of scaled heads."""
  scale, bias = norm
  x = examples.images.reshape(len(examples.images), -1)
  hidden = np.tanh(x @ params["body"])
  logits = hidden @ params["head"] * scale + bias
  error = np.exp(logits - logits.max(1, keepdims=True))
  error /= error.sum(1, keepdims=True)
  error[np.arange(len(x)), examples.labels] -= 1
  error *= scale / len(x)
  return {
      "body": x.T @ ((error @ params["head"].T) * (1 - hidden**2)),
      "head": hidden.T @ error,
  }


def plain_loss(tiny, params, episode, rates, norms, weights):
  """MAML++ by hand.

  Args:
    tiny: the fixture.
    params: body and head.
    episode: a task.
    rates: {"body": [steps], "head": [steps]}.
    norms: ([steps, 3], [steps, 3]): scale and bias of every inner step.
    weights: [steps], of the query losses.
  """
  total = 0.0
  for i, weight in enumerate(weights):
    norm = norms[0][i], norms[1][i]
    gradient = slope(tiny, params, norm, episode.support)
    params = {k: params[k] - rates[k][i] * gradient[k] for k in gradient}
    logits = tiny.outputs(params, episode.query.images) * norm[0] + norm[1]
    total += weight * tiny.cross_entropy(logits, episode.query.labels)
  return total


def spread(params):
  """Moves every array a little, so that no step is like another."""
  rng = np.random.default_rng(0)
  return jax.tree.map(
      lambda p: np.asarray(p) + 0.1 * rng.standard_normal(p.shape), params
  )


SWITCHES = [
    {"learned_rates": True},
    {"per_step_norm": True},
    {"loss_weights": (0.2, 0.3, 0.5)},
    {
        "learned_rates": True,
        "per_step_norm": True,
        "loss_weights": (0.5, 0.1, 0.4),
    },
]


@pytest.mark.parametrize(
    "switches,unroll",
    [(s, False) for s in SWITCHES] + [(SWITCHES[-1], True)],
    ids=lambda v: "+".join(v) if isinstance(v, dict) else f"unroll={v}",
)
def test_every_switch_is_the_plain_loop(tiny, switches, unroll):
  per_step = "per_step_norm" in switches
  learner = learners.MAML(
      normalising_model(tiny) if per_step else tiny.model(),
      inner_steps=STEPS,
      inner_rate=RATE,
      unroll=unroll,
      **switches,
  )
  params = spread(learner.init(jax.random.key(0)))
  episode = tiny.episode()

  def reference(params):
    rates = {k: [RATE] * STEPS for k in ("body", "head")}
    if "learned_rates" in switches:
      rates, params = params["rates"], params["model"]
    norms = np.ones((STEPS, 3)), np.zeros((STEPS, 3))
    if per_step:
      norms = params["norm"]["scale"], params["norm"]["bias"]
    weights = switches.get("loss_weights", (0.0, 0.0, 1.0))
    return plain_loss(tiny, params, episode, rates, norms, weights)

  tiny.assert_gradient(lambda p: learner.loss(p, episode), reference, params)


def test_all_switches_begin_as_plain_maml_with_norms_that_stay(tiny):
  """And what they add to the parameters is what is announced."""
  learner = learners.MAML(
      normalising_model(tiny),
      inner_steps=STEPS,
      learned_rates=True,
      per_step_norm=True,
  )
  params = learner.init(jax.random.key(0))
  shapes = jax.tree.map(np.shape, params)
  assert shapes == {
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
  expected = plain.adapt(plain.init(jax.random.key(0)), support)
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
  with pytest.raises(ValueError, match="outer_steps=0"):
    maml.annealed(5, 0)


def test_a_schedule_is_resolved_by_the_outer_step(tiny):
  episode = tiny.episode(dtype=np.float32)
  learner = learners.MAML(
      tiny.model(), inner_steps=2, loss_weights=maml.annealed(2, 10)
  )
  params = learner.init(jax.random.key(0))
  with pytest.raises(ValueError, match="learner.at_step"):
    learner.loss(params, episode)
  loss = jax.jit(lambda step: learner.at_step(step).loss(params, episode))
  fixed = learners.MAML(tiny.model(), inner_steps=2, loss_weights=(0.5, 0.5))
  np.testing.assert_allclose(loss(0), fixed.loss(params, episode), rtol=1e-6)
  assert fixed.at_step(0) is fixed
  last = learners.MAML(tiny.model(), inner_steps=2)
  np.testing.assert_allclose(loss(10), last.loss(params, episode), rtol=1e-6)
