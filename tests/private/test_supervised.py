"""DP-SGD: a plan without an episode, every example a clip unit."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from episodic_dp import learners
from episodic_dp import models
from episodic_dp import plan
from episodic_dp import private
from episodic_dp import sampling
from episodic_dp.private import keys
from episodic_dp.private import noise
from tests import fake_dataset

ROWS, CLASSES, SIDE = 14, 3, 2
SGD = optax.sgd(0.5)
LEARNER = learners.Supervised(models.mlp(CLASSES, (4,), (SIDE, SIDE, 1)))


def _dataset(hierarchy=None, **changes):
  rng = np.random.default_rng(0)
  fields = dict(
      images=rng.integers(0, 256, (ROWS, SIDE, SIDE, 1), np.uint8),
      hierarchy=hierarchy or plan.Hierarchy.regular((ROWS,), levels=("image",)),
      labels=rng.integers(0, CLASSES, ROWS),
  )
  return fake_dataset.FakeDataset(**(fields | changes))


def _plain_step(state, dataset, stages, clip_norm):
  """One step of Algorithm 1 of Abadi et al. without noise, by a loop."""
  described = plan.SamplingPlan(stages)
  key = jax.random.fold_in(state.key, keys.SAMPLING)
  indices, mask = sampling.sample(key, dataset.hierarchy, described, 0)
  rows = np.asarray(indices)[np.asarray(mask)]
  assert 0 < len(rows) < ROWS

  @jax.jit
  def gradient(params, image, label):
    def loss(params):
      logits = LEARNER.model.apply(params, image[None] / 255.0)
      return -jax.nn.log_softmax(logits)[0, label]

    return jax.grad(loss)(params)

  total = jax.tree.map(np.zeros_like, state.params)
  for row in rows:
    image = jnp.asarray(dataset.images[row], jnp.float32)
    g = gradient(state.params, image, dataset.labels[row])
    norm = math.sqrt(sum(float((a**2).sum()) for a in jax.tree.leaves(g)))
    factor = min(1.0, clip_norm / norm)
    total = jax.tree.map(lambda t, a, f=factor: t + f * np.asarray(a), total, g)
  expected = plan.examples_per_step(dataset.hierarchy, described)
  return jax.tree.map(
      lambda p, g: np.asarray(p) - 0.5 * g / expected, state.params, total
  )


def _flat(tree):
  return np.concatenate([np.ravel(a) for a in jax.tree.leaves(tree)])


def _step(dataset, stages, **mechanism):
  mechanism = plan.Mechanism(clip_unit="image", **mechanism)
  state = private.init(jax.random.key(3), LEARNER, SGD, mechanism)
  step = private.make_meta_step(
    LEARNER,
    SGD,
    dataset,
    plan.Release(dataset.hierarchy, plan.SamplingPlan(stages), mechanism),
    compute=private.Compute(diagnostics=True, microbatch_size=4),
  )
  return state, step


RAGGED = plan.Hierarchy.from_sizes([3, 7, 4], levels=("class", "image"))


def test_a_unit_without_an_example_gives_nothing_but_noise():
  """Of three classes one is empty; a step draws one of them."""
  hierarchy = plan.Hierarchy.from_labels(
      {"class": np.arange(ROWS) // 7}, leaf="image", units=[0, 1, 2]
  )
  dataset = _dataset(hierarchy)
  stages = (plan.FixedSize(1), plan.All())
  state, step = _step(dataset, stages, clip_norm=0.3, noise_multiplier=1.5)
  empty = 0
  for number in range(9):
    before, key = _flat(state.params), keys.step_key(
        state.key, keys.NOISE, number
    )
    drawn = noise.add_noise(
        key, jax.tree.map(jnp.zeros_like, state.params), 1.5 * 0.3
    )
    state, metrics = step(state)
    # The expected examples, 14 / 3, divide the sum whatever was drawn.
    only_noise = before - 0.5 * _flat(drawn) / (ROWS / 3)
    moved = np.abs(_flat(state.params) - only_noise).max()
    count = int(metrics["private/tasks"])
    assert count in (0, 7) and (moved < 1e-6) == (count == 0)
    empty += not count
  assert 0 < empty < 9


@pytest.mark.slow
@pytest.mark.parametrize(
    "hierarchy,stages,clip_norm,z",
    [
        (None, (plan.Poisson(0.5),), 0.3, 1.5),
        (None, (plan.Poisson(0.5),), math.inf, 0.0),
        # Gaps between the examples that are drawn.
        (RAGGED, (plan.All(), plan.Poisson(0.5)), 0.3, 0.0),
    ],
    ids=["private", "plain", "classes"],
)
def test_it_is_dp_sgd_and_without_clipping_sgd(hierarchy, stages, clip_norm, z):
  dataset = _dataset(hierarchy)
  state, step = _step(dataset, stages, clip_norm=clip_norm, noise_multiplier=z)
  expected = _plain_step(state, dataset, stages, clip_norm)
  if z:
    # Once, on the sum, which is divided by the expected 7 examples.
    key = keys.step_key(state.key, keys.NOISE, 0)
    drawn = noise.add_noise(
        key, jax.tree.map(jnp.zeros_like, expected), z * clip_norm
    )
    expected = jax.tree.map(
        lambda p, n: p - 0.5 * n / (ROWS * 0.5), expected, drawn
    )
  start = _flat(state.params)
  state, metrics = step(state)
  np.testing.assert_allclose(_flat(state.params), _flat(expected), atol=2e-6)
  assert np.abs(_flat(state.params) - start).max() > 1e-2
  assert (float(metrics["private/clipped"]) > 0) == (clip_norm < 1)
  assert 0 <= metrics["private/accuracy"] <= 1
  assert 0 < metrics["private/tasks"] < ROWS


@pytest.mark.parametrize(
    "changes,text",
    [
        ({"labels": None}, "labels are needed"),
        ({"labels": np.zeros(ROWS)}, "labels are needed"),
        ({"labels": np.arange(ROWS)}, "labels are 0 to 13: build it with 14"),
        ({"labels": np.arange(ROWS) % 2 - 1}, "labels are -1 to 0"),
        ({"rotate": True}, "rotate=True turns the classes of a task"),
    ],
)
def test_data_that_cannot_be_learned_so_are_refused(changes, text):
  with pytest.raises(plan.PlanError, match=text):
    _step(_dataset(**changes), (plan.Poisson(0.5),), noise_multiplier=1.0)


def test_who_adapts_or_clips_otherwise_is_refused():
  described = plan.SamplingPlan((plan.All(), plan.Poisson(0.5)))

  def make(learner, unit):
    private.make_meta_step(
      learner,
      SGD,
      _dataset(RAGGED),
      plan.Release(
        _dataset(RAGGED).hierarchy,
        described,
        plan.Mechanism(clip_unit=unit, noise_multiplier=1.0),
      ),
    )

  with pytest.raises(plan.PlanError, match="MAML adapts to support sets"):
    make(learners.MAML(LEARNER.model), "image")
  with pytest.raises(plan.PlanError, match="no episode.*clip_unit='image'"):
    make(LEARNER, "class")


def test_networks_that_mix_examples_are_refused():
  """The gradient of one example would be another's too."""

  def apply(params, images):
    x = images.reshape(images.shape[0], -1)
    return (x - 1e-6 * x.mean(0)) @ params

  init = jax.jit(lambda key: jax.random.normal(key, (SIDE * SIDE, CLASSES)))
  # Its claim is not read.
  mixing = models.Model(init, apply, mixes_examples=False)
  dataset = _dataset()
  release = plan.Release(
      dataset.hierarchy,
      plan.SamplingPlan((plan.Poisson(0.5),)),
      plan.Mechanism(clip_unit="image", noise_multiplier=1.0),
  )
  with pytest.raises(plan.UnsoundPlanError, match="mixes examples.*'group'"):
    private.make_meta_step(
        learners.Supervised(mixing), SGD, dataset, release
    )
