"""A small private run: random images, a linear network, three-way tasks."""

from typing import Any, NamedTuple

import jax
import numpy as np
import pytest

from episodic_dp import learners
from episodic_dp import models
from episodic_dp import plan
from episodic_dp import private
from tests import fake_dataset
from tests import fake_learner
from tests import plans

WAY, SIDE = 3, 4
LEVELS = ("participant", "class", "image")


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


@pytest.fixture
def make_run():
  """make_run(participants, stage, **mechanism) -> Run; see `plans.sampling`."""

  def make(participants=8, stage=None, *, rotate=False, **mechanism):
    hierarchy = plans.tree(LEVELS, participants, WAY, 3, copies=True)
    dataset = fake_dataset.FakeDataset(
        images=np.random.default_rng(0).integers(
            0, 256, (hierarchy.num_leaves, SIDE, SIDE, 1), np.uint8
        ),
        hierarchy=hierarchy,
        rotate=rotate,
    )
    sampling_plan = plans.sampling(
        stage or 5, WAY, 2, way=WAY, shot=1, query=1)
    settings = {"clip_unit": "participant", "noise_multiplier": 1.0}
    return Run(
        learners.MAML(
            models.mlp(WAY, (), (SIDE, SIDE, 1)), inner_steps=2, inner_rate=0.5
        ),
        dataset,
        sampling_plan,
        plan.Mechanism(**{**settings, **mechanism}),
    )

  return make


@pytest.fixture
def quick_run(make_run):
  """`make_run` with a learner that compiles quickly: no inner steps."""

  def make(*arguments, **options):
    run, learner = make_run(*arguments, **options), fake_learner.FakeLearner()
    learner.model = run.learner.model
    return run._replace(learner=learner)

  return make
