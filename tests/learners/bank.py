"""The bank: learners, networks and plans, all of whose combinations are tested.

A learner or a network that is registered is in it.
"""

import dataclasses

from flax import linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from episodic_dp import learners
from episodic_dp import models
from episodic_dp import options
from episodic_dp import plan
from episodic_dp.learners import naming
from episodic_dp.models import networks

WAY, CLIP_NORM = 3, 1e-3
LEARNERS = {
    name: options.LearnerOptions(name=name, inner_steps=2, metric_scale=0.1)
    for name in options.LEARNERS
} | {
    "maml++": options.LearnerOptions(
        inner_steps=2, per_step_norm=True, learned_rates=True, order="first"
    ),
    "protonet in turns": options.LearnerOptions(
        name="protonet", rotate_support=True
    ),
    "ridge in turns": options.LearnerOptions(name="ridge", rotate_support=True),
}
FINE_TUNING = "fine_tuning"  # It predicts, and is not trained.
# Shapes of an example; the first three networks mix those of a task.
NETWORKS = {
    "linear": (2, 2, 1),
    "own": (5, 1, 1),
    "conv4": (16, 16, 1),
    "conv1d": (16, 3),
    "resnet12": (16, 16, 2),
    "mlp": (2, 2, 1),
    "features": (4,),
}
CONVOLUTIONS = ("conv4", "conv1d", "resnet12")
# What is clipped, and the form of a task; an example alone has none.
_EPISODE = plan.Episode(way=WAY, shot=1, query=1)
PLANS = {
    "tasks": ("participant", "global", _EPISODE),
    "layers of tasks": ("participant", "layer", _EPISODE),
    "examples": ("image", "global", None),
}


def mechanism(name):
  """The mechanism of a plan of the bank."""
  clip_unit, clip_by, _ = PLANS[name]
  return plan.Mechanism(
      clip_unit=clip_unit, clip_by=clip_by, clip_norm=CLIP_NORM,
      noise_multiplier=1.0,
  )


class _Own(nn.Module):
  """Subtracts the mean of all examples of a call, and tells nobody."""

  outputs: int

  @nn.compact
  def __call__(self, x):
    x = x.reshape(len(x), -1)
    x = nn.tanh(nn.Dense(6)(x - x.mean(0, keepdims=True)))
    x = x / (0.1 + x.std(0, keepdims=True))
    return nn.Dense(self.outputs, name="head")(x)


def _linear(outputs):
  """A layer that mixes the examples of a task, and predicts by moments."""

  def layer(params, images):
    return images.reshape(len(images), -1) @ params["head"]

  def apply(params, images):
    x = layer(params, images)
    return x - 0.5 * x.mean(0, keepdims=True)

  def by_moments(params, images, given, own):
    return networks.norm_by_moments(
        layer(params, images), jnp.ones(outputs), jnp.zeros(outputs), *given,
        own,
    )

  return models.Model(
      lambda key: {"head": jax.random.normal(key, (4, outputs))},
      apply,
      moments=lambda params, images, weights: networks.moments(
          layer(params, images), weights
      ),
      by_moments=by_moments,
  )


def network(name, outputs):
  """A network of the bank; outputs is None for features."""
  shape = NETWORKS[name]
  if name == "linear":
    return _linear(outputs or WAY)
  if name == "own":
    return models.from_flax(_Own(outputs or WAY), shape)
  narrow = options.Network(
      name=name, width=4, widths=(6,), cosine=name == "resnet12"
  )
  return networks.by_name(narrow, outputs, shape)


def make(learner, name, public=False):
  """A learner on a network, which may normalise by public examples."""
  closed = "turns" in learner or learner in options.named(options.CLOSED_FORM)
  model = network(name, None if closed else WAY)
  if public:
    rng = np.random.default_rng(0)
    images = rng.random((20, *NETWORKS[name]), np.float32)
    model = model._replace(public=images)
  if learner == FINE_TUNING:
    return learners.FineTuning(
        model, inner_steps=2, optimizer=optax.adam(0.01)
    )
  return naming.make_learner(LEARNERS[learner], model, way=WAY)


def fits(learner, plan_name):
  """Whether the plan's examples are in tasks as the learner's are."""
  chosen = LEARNERS[learner]
  tasks = chosen.adaptation != options.SUPERVISED
  return tasks == (PLANS[plan_name][2] is not None)


def cases(product, quick):
  """All combinations for `pytest`; those not named quick are slow."""
  assert quick <= set(product), quick - set(product)
  return [
      case if case in quick else pytest.param(*case, marks=pytest.mark.slow)
      for case in product
  ]


@dataclasses.dataclass(frozen=True)
class Sign(learners.Learner):
  """A learner of the tests: one step along the signs of the gradient."""

  model: models.Model
  inner_rate: float = 0.1

  paper = "these tests"
  adapted = "all weights, by one step along signs"

  def adapt(self, params, support, *, inner_gradient=jax.grad):
    gradient = inner_gradient(lambda p, e, i: self.adapted_loss(p, e))
    return jax.tree.map(
        lambda p, g: p - self.inner_rate * jnp.sign(g),
        params,
        gradient(params, support, 0),
    )
