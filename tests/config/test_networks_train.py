"""Every network that a config can name learns, privately, on built-in data."""

import numpy as np
import optax
import pytest

from episodic_dp import data
from episodic_dp import learners
from episodic_dp import models
from episodic_dp import plan
from episodic_dp import private
from episodic_dp import training
from episodic_dp.config import build
from episodic_dp.config import RunConfig
from episodic_dp.config.presets import glyphs
from episodic_dp.training import spec as spec_lib

pytestmark = pytest.mark.slow  # Each compiles a step and an evaluation.
STEPS = 12


def config_of(name):
  config = glyphs.get_config("participants=60,rate=0.3,size=16,width=4")
  config.data.options.validation_participants = 20
  config.data.options.test_participants = 5
  config.model.name, config.model.widths = name, (32,)
  config.model.outputs = 16 if name == "mlp" else None
  config.learner.name = "protonet"
  config.evaluation.validation_tasks = 40
  config.mechanism.noise_multiplier = 0.05
  config.steps = STEPS
  return RunConfig.parse(config)


def scores(step, state, evaluator, tasks):
  """Accuracy before the first step, and after the last."""
  found = [evaluator.score([state.params], tasks).mean]
  for _ in range(STEPS):
    state, _ = step(state)
  return [*found, evaluator.score([state.params], tasks).mean]


@pytest.fixture(scope="module")
def splits():
  return build.load_data(config_of("mlp"), data_dir=None)


@pytest.mark.parametrize("name", ["conv6", "resnet12", "mlp"])
def test_learns_glyphs(name, splits):
  spec = build.build(config_of(name), splits=splits).spec
  before, after = scores(
      spec_lib.make_step(spec),
      spec_lib.initial_state(spec, private.secret_key(bytes(8))),
      spec.evaluator,
      spec.validation,
  )
  assert after > before + 0.1, (before, after)


def frequencies(seed):
  """Noisy series whose classes are frequencies, five for each participant."""
  rng = np.random.default_rng(seed)
  shape = (60, 5, 3)
  turns = np.broadcast_to(rng.uniform(1, 8, (*shape[:2], 1, 1)), (*shape, 1))
  angles = 2 * np.pi * (
      turns * np.linspace(0, 1, 32) + rng.random((*shape, 1))
  )
  series = np.stack([np.sin(angles), np.cos(angles)], -1)
  series += 0.5 * rng.standard_normal(series.shape)
  return data.ArrayDataset(
      name="frequencies",
      images=series.reshape(-1, 32, 2).astype(np.float32),
      hierarchy=plan.Hierarchy.regular(
          shape, levels=("participant", "frequency", "series")
      ),
  )


def test_learns_series():
  train = frequencies(0)
  learner = learners.ProtoNet(
      models.conv1d(None, 32, "group", train.image_shape), way=5
  )
  optimizer = optax.adam(0.03)
  release = plan.Release(
      train.hierarchy,
      plan.SamplingPlan(
          (plan.Poisson(0.3), plan.FixedSize(5), plan.FixedSize(3)),
          episode=plan.Episode(way=5, shot=1, query=2),
      ),
      plan.Mechanism(clip_unit="participant", noise_multiplier=0.05),
  )
  before, after = scores(
      private.make_meta_step(learner, optimizer, train, release),
      private.init(
          private.secret_key(bytes(8)), learner, optimizer, release.mechanism
      ),
      training.Evaluator(learner),
      training.draw(frequencies(1), way=5, shot=1, query=2, count=40, seed=0),
  )
  assert after > before + 0.1, (before, after)
