"""A small private run: random images, a linear network, three-way tasks."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from episodic_dp import learners
from episodic_dp import models
from episodic_dp import plan
from episodic_dp import private
from tests import fake_dataset
from tests import fake_learner

WAY, SIDE = 3, 4


class Run(NamedTuple):
  """The parts of a private run, as keyword arguments of the step."""

  learner: Any
  dataset: Any
  plan: plan.SamplingPlan
  mechanism: plan.Mechanism

  def step(self, optimizer, **compute):
    return private.make_meta_step(
        self.learner,
        optimizer,
        self.dataset,
        plan.Release(self.dataset.hierarchy, self.plan, self.mechanism),
        compute=private.Compute(**compute),
    )

  def init(self, optimizer, seed=7, params=None):
    return private.init(
        jax.random.key(seed),
        self.learner,
        optimizer,
        self.mechanism,
        params=params,
    )


def linear_model() -> models.Model:
  def init(key):
    return {
        "kernel": jax.random.normal(key, (SIDE * SIDE, WAY)),
        "bias": jnp.zeros(WAY),
    }

  def apply(params, images):
    x = images.reshape(images.shape[0], -1)
    return x @ params["kernel"] + params["bias"]

  return models.Model(init, apply, mixes_examples=False)


class Linear(fake_learner.FakeLearner):
  """A learner that compiles quickly: no inner steps."""

  def init(self, key):
    weights = jax.random.uniform(key, (SIDE * SIDE, WAY))
    return {"w": weights, "b": jnp.zeros(WAY)}

  def predict(self, params, support, query_images):
    del support
    flat = query_images.reshape(query_images.shape[0], -1)
    return flat @ params["w"] + params["b"]

  def loss(self, params, episode):
    logits = self.predict(params, None, episode.query.images)
    return optax.softmax_cross_entropy_with_integer_labels(
        logits, episode.query.labels
    ).mean()


@pytest.fixture
def make_run():
  """make_run(participants, stage, **mechanism) -> Run."""

  def make(participants=8, stage=None, *, rotate=False, **mechanism):
    levels = ("participant", "class", "image")
    hierarchy = plan.Hierarchy.regular(
        (participants, WAY, 3), levels=levels, copies=True
    )
    rng = np.random.default_rng(0)
    images = rng.integers(
        0, 256, (hierarchy.num_leaves, SIDE, SIDE, 1), np.uint8
    )
    dataset = fake_dataset.FakeDataset(
        images=images, hierarchy=hierarchy, rotate=rotate
    )
    sampling_plan = plan.SamplingPlan(
        (stage or plan.FixedSize(5), plan.FixedSize(WAY), plan.FixedSize(2)),
        episode=plan.Episode(way=WAY, shot=1, query=1),
    )
    settings = {"clip_unit": "participant", "noise_multiplier": 1.0}
    return Run(
        learners.MAML(linear_model(), inner_steps=2, inner_rate=0.5),
        dataset,
        sampling_plan,
        plan.Mechanism(**{**settings, **mechanism}),
    )

  return make


@pytest.fixture
def quick_run(make_run):
  """`make_run` with a learner that compiles quickly."""

  def make(*arguments, **options):
    return make_run(*arguments, **options)._replace(learner=Linear())

  return make
