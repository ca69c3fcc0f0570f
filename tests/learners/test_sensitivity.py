"""Sums and noise of a step, whichever learner is trained.

One task moves the sum by no more than the sensitivity, and noise falls on the
parts of a network that are trained, alone.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from episodic_dp import learners
from episodic_dp import models
from episodic_dp import plan
from episodic_dp import private
from episodic_dp.models import networks
from episodic_dp.models import parts
from episodic_dp.private import step as step_lib
from tests import fake_dataset
from tests import fake_network
from tests import task_sums
from tests.task_sums import flat

WAY, SHOT, QUERY, TASKS, CLIP_NORM = 3, 1, 1, 4, 1e-3
EPISODE = plan.Episode(way=WAY, shot=SHOT, query=QUERY)
MECHANISM = plan.Mechanism(
    clip_unit="participant", noise_multiplier=1.0, clip_norm=CLIP_NORM
)


def apply(params, images):
  """One layer that mixes the examples of a task, which is allowed."""
  outputs = images.reshape(len(images), -1) @ params["head"]
  return outputs - 0.5 * outputs.mean(0)


MODEL = models.Model(
    lambda key: {"head": jax.random.normal(key, (4, WAY))}, apply
)


def by_moments(params, images, given, own):
  """The same layer with the moments of other images, divided by them too."""
  outputs = images.reshape(len(images), -1) @ params["head"]
  return networks.norm_by_moments(
      outputs, jnp.ones(WAY), jnp.zeros(WAY), *given, own
  )


# It predicts by the moments of the support set, and is trained without them.
SUPPORT = MODEL._replace(
    moments=lambda params, images, weights: networks.moments(
        images.reshape(len(images), -1) @ params["head"], weights
    ),
    by_moments=by_moments,
)
TRAINED = sorted(
    name for name, (*_, releases) in learners.LEARNERS.items() if releases
)


def summed(name, model=MODEL, rotate=False):
  """(images of all tasks, mask) -> the un-noised sum, in float64."""
  kind = learners.LEARNERS[name][0]
  fields = {field.name for field in dataclasses.fields(kind)}
  options = {"way": WAY, "inner_steps": 1, "rotate_support": rotate}
  learner = kind(model, **{k: v for k, v in options.items() if k in fields})
  params = learner.init(jax.random.key(0))
  rows = jnp.arange(TASKS * WAY * (SHOT + QUERY)).reshape(TASKS, WAY, -1)

  @jax.jit
  def run(images, mask):
    tasks = step_lib.StepTasks(images.reshape(-1, 2, 2, 1), rows, mask)
    return task_sums.sum_tasks(
        learner, MECHANISM, params, tasks, jax.random.key(1), episode=EPISODE
    )[0]

  return lambda images, mask: flat(run(images, mask))


@pytest.mark.parametrize("name, model, rotate", [
    *((name, MODEL, False) for name in TRAINED),
    *((name, SUPPORT, False) for name in ("maml", "anil", "meta_sgd")),
    # Its public examples take no part in training.
    ("protonet", SUPPORT._replace(public=np.ones((9, 2, 2, 1))), False),
    ("protonet", MODEL, True),
    ("ridge", MODEL, True),
    ("protonet", networks.features(None, True, (4,)), False),
    ("maml", networks.features(WAY, False, (4,)), False),
])
@pytest.mark.few(5)
def test_one_task_moves_the_sum_by_no_more_than_the_sensitivity(
    name, model, rotate
):
  run, rng = summed(name, model, rotate), np.random.default_rng(0)
  shape = (WAY, SHOT + QUERY, 4)
  one, two = (
      private.sensitivity(CLIP_NORM, n)
      for n in ("add-or-remove", "replace-one")
  )
  everyone, removed, replaced = np.ones(TASKS, bool), [], []
  for _ in range(20):
    scale = rng.choice([1e-3, 1.0, 30.0, 1e12], TASKS)
    images = rng.standard_normal((TASKS, *shape)) * scale[:, None, None, None]
    before, i = run(np.float32(images), everyone), rng.integers(TASKS)
    mask = np.arange(TASKS) != i
    removed.append(np.linalg.norm(run(np.float32(images), mask) - before))
    # By another task, its own opposite or one that is not finite.
    for other in (rng.standard_normal(shape), -images[i], np.nan):
      images[i] = other
      after = run(np.float32(images), everyone)
      replaced.append(np.linalg.norm(after - before))
  assert 0.99 * one < max(removed) <= one * (1 + 1e-5)
  assert one < max(replaced) <= two * (1 + 1e-5)


# Parts of a network that are trained ------------------------------------------

DATA = fake_dataset.FakeDataset(
    images=np.random.default_rng(0)
    .standard_normal((6 * WAY * 2, 2, 2, 1))
    .astype(np.float32),
    hierarchy=plan.Hierarchy.regular(
        (6, WAY, 2), levels=("participant", "class", "image")
    ),
)
LEARNERS = {
    "maml": lambda m: learners.MAML(m, inner_steps=1, inner_rate=0.5),
    "maml_plus_plus": lambda m: learners.MAML(
        m, inner_steps=2, learned_rates=True, per_step_norm=True
    ),
    "anil": lambda m: learners.ANIL(m, inner_steps=1),
    "meta_sgd": lambda m: learners.MetaSGD(m),
    "reptile": lambda m: learners.Reptile(m, inner_steps=1),
    "protonet": lambda m: learners.ProtoNet(m, way=WAY),
    "ridge": lambda m: learners.RidgeHead(m, way=WAY),
    "supervised": learners.Supervised,
}


LOW_RANK = ("reptile", "protonet", "ridge")


# All others take the same way through the step as the ridge head.
@pytest.mark.parametrize("name", ["ridge", *(
    pytest.param(name, marks=pytest.mark.slow)
    for name in LEARNERS if name != "ridge"
)])
def test_what_is_frozen_is_neither_clipped_nor_noised(name):
  trained = "low_rank" if name in LOW_RANK else "scale_shift"
  model = fake_network.layered(head=name not in ("protonet", "ridge"))
  start = jax.tree.map(
      np.asarray, parts.by_name(model.init(jax.random.key(3)))
  )
  model = models.start_from(model, start, trained=trained, rank=1)
  learner = LEARNERS[name](model)
  data, described, clip_unit = DATA, plan.SamplingPlan(
      (plan.FixedSize(2), plan.FixedSize(WAY), plan.FixedSize(2)),
      episode=EPISODE,
  ), "participant"
  if name == "supervised":
    data = fake_dataset.FakeDataset(
        images=DATA.images,
        hierarchy=plan.Hierarchy.regular((36,), levels=("image",)),
        labels=np.arange(36) % WAY,
    )
    described, clip_unit = plan.SamplingPlan((plan.FixedSize(4),)), "image"
  mechanism = plan.Mechanism(clip_unit=clip_unit, noise_multiplier=3.0)
  optimizer = optax.sgd(1.0)
  key = private.secret_key(bytes(8))  # The norm of noise is a random number.
  state = private.init(key, learner, optimizer, mechanism)
  before = flat(state.params)
  step = private.make_meta_step(
      learner, optimizer, data, plan.Release(data.hierarchy, described,
                                             mechanism)
  )
  state, metrics = step(state)
  # Noise falls on every number that is trained.
  assert (before != flat(state.params)).all()
  # Its norm is that of the released numbers and one more clipped sum.
  units = {"supervised": 4}.get(name, 2)
  expected = 3.0 / units * np.sqrt(before.size)
  assert 0.5 * expected < float(metrics["update_norm"]) < 1.5 * expected + 1
  network_params = state.params
  if name in ("maml_plus_plus", "meta_sgd", "ridge"):
    network_params = network_params["model"]
  if name == "maml_plus_plus":  # Norms of the last step.
    network_params["norm"] = {
        k: v[-1] for k, v in network_params["norm"].items()
    }
  whole = parts.by_name(model.whole(network_params))
  frozen = {"scale_shift": {"hidden/kernel"},
            "low_rank": {"norm/scale", "norm/bias"}}[trained]
  for array in frozen:
    np.testing.assert_array_equal(whole[array], start[array])
  assert (np.asarray(whole["norm/scale"]) != start["norm/scale"]).any() == (
      trained == "scale_shift"
  )
