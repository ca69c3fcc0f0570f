"""Every learner trains a part of a network, and noise falls on that alone."""

import jax
import numpy as np
import optax
import pytest

from episodic_dp import learners
from episodic_dp import models
from episodic_dp import plan
from episodic_dp import private
from episodic_dp.models import parts
from tests import fake_dataset

WAY = 3
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


def network(head):
  """A layer, a norm and, where it is asked for, a head."""

  def init(key):
    a, b = jax.random.split(key)
    params = {
        "hidden": {"kernel": jax.random.normal(a, (4, 6))},
        "norm": {"scale": np.ones(6, np.float32), "bias": np.zeros(6, "f")},
    }
    if head:
      params["head"] = {"kernel": jax.random.normal(b, (6, WAY))}
    return params

  def apply(params, x):
    x = x.reshape(x.shape[0], -1) @ params["hidden"]["kernel"]
    x = x * params["norm"]["scale"] + params["norm"]["bias"]
    return x @ params["head"]["kernel"] if head else x

  return models.Model(init, apply, mixes_examples=False)


LOW_RANK = ("reptile", "protonet", "ridge")


# All others take the same way through the step as the ridge head.
@pytest.mark.parametrize("name", ["ridge", *(
    pytest.param(name, marks=pytest.mark.slow)
    for name in LEARNERS if name != "ridge"
)])
def test_what_is_frozen_is_neither_clipped_nor_noised(name):
  trained = "low_rank" if name in LOW_RANK else "scale_shift"
  model = network(head=name not in ("protonet", "ridge"))
  start = jax.tree.map(
      np.asarray, parts.by_name(model.init(jax.random.key(3)))
  )
  model = models.start_from(model, start, trained=trained, rank=1)
  learner = LEARNERS[name](model)
  data, described, clip_unit = DATA, plan.SamplingPlan(
      (plan.FixedSize(2), plan.FixedSize(WAY), plan.FixedSize(2)),
      episode=plan.Episode(way=WAY, shot=1, query=1),
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
  state = private.init(private.secret_key(), learner, optimizer, mechanism)
  before = jax.tree.map(np.array, state.params)
  step = private.make_meta_step(
      learner, optimizer, data, plan.Release(data.hierarchy, described,
                                             mechanism)
  )
  state, metrics = step(state)
  after = jax.tree.map(np.array, state.params)
  sizes = [leaf.size for leaf in jax.tree.leaves(after)]
  for a, b in zip(jax.tree.leaves(before), jax.tree.leaves(after)):
    assert (a != b).all()  # Noise falls on every number that is trained.
  # Its norm is that of so many numbers, and of one clipped sum beside.
  units = {"supervised": 4}.get(name, 2)
  expected = 3.0 / units * np.sqrt(sum(sizes))
  assert 0.5 * expected < float(metrics["update_norm"]) < 1.5 * expected + 1
  network_params = after
  if name in ("maml_plus_plus", "meta_sgd", "ridge"):
    network_params = after["model"]
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
