"""DP-SGD: a plan without an episode, every example a clip unit."""

import math

import dp_accounting
from dp_accounting import pld
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from episodic_dp import accounting
from episodic_dp import data
from episodic_dp import learners
from episodic_dp import models
from episodic_dp import plan
from episodic_dp import private
from episodic_dp import sampling
from episodic_dp import training
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


def test_its_guarantee_is_that_of_the_subsampled_gaussian():
  hierarchy = plan.Hierarchy.regular((50_000,), levels=("image",))
  described = plan.SamplingPlan((plan.Poisson(0.01),))
  mechanism = plan.Mechanism(clip_unit="image", noise_multiplier=1.1)
  found = accounting.guarantee(
    plan.Release(hierarchy, described, mechanism),
    steps=500,
    delta=1e-5,
    level="image",
  )
  accountant = pld.PLDAccountant()
  accountant.compose(
      dp_accounting.PoissonSampledDpEvent(
          0.01, dp_accounting.GaussianDpEvent(1.1)
      ),
      500,
  )
  assert found.epsilon == pytest.approx(accountant.get_epsilon(1e-5), rel=2e-3)
  assert found.neighbours == "add or remove one image"


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


@pytest.mark.slow
def test_images_on_the_host_give_the_same_bits():
  """In blocks of one chunk, each with the labels of its own images."""
  found = []
  for resident in (True, False):
    mechanism = plan.Mechanism(
        clip_unit="image", clip_norm=0.3, noise_multiplier=0.5
    )
    state = private.init(jax.random.key(3), LEARNER, SGD, mechanism)
    step = private.make_meta_step(
      LEARNER,
      SGD,
      _dataset(resident=resident),
      plan.Release(
        _dataset(resident=resident).hierarchy,
        plan.SamplingPlan((plan.Poisson(0.5),)),
        mechanism,
      ),
      compute=private.Compute(
        diagnostics=True, microbatch_size=2, block_bytes=1
      ),
    )
    for _ in range(4):
      state, metrics = step(state)
      found.append(jax.device_get((state.params, metrics)))
  for expected, streamed in zip(found[:4], found[4:]):
    jax.tree.map(np.testing.assert_array_equal, streamed, expected)
  assert max(metrics["private/tasks"] for _, metrics in found) > 2


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


@pytest.mark.slow  # It trains; `tests/cli` has such a run among its quick ones.
def test_a_network_of_many_classes_is_fine_tuned_on_tasks_of_few():
  """The body that was trained, and a head of its own for every task."""
  rng = np.random.default_rng(1)
  centres = rng.random((10, 4)).astype(np.float32)
  images = np.clip(
      255 * (centres[:, None] + 0.08 * rng.standard_normal((10, 12, 4))), 0, 255
  ).astype(np.uint8).reshape(-1, SIDE, SIDE, 1)

  def part(classes, name):
    rows = np.concatenate([np.arange(12 * c, 12 * c + 12) for c in classes])
    return data.ArrayDataset(
        name=name,
        images=images[rows],
        labels=np.arange(len(rows)) // 12,
        hierarchy=plan.Hierarchy.regular(
            (len(classes), 12), levels=("class", "image")
        ),
    )

  train, test = part(range(6), "train"), part(range(6, 10), "test")
  supervised = learners.Supervised(models.mlp(6, (16,), (SIDE, SIDE, 1)))
  optimizer = optax.adam(0.02)
  mechanism = plan.Mechanism(
      clip_unit="image", noise_multiplier=0.5, clip_norm=1.0
  )
  state = private.init(jax.random.key(0), supervised, optimizer, mechanism)
  start = jax.tree.map(np.array, state.params)  # The step donates its state.
  step = private.make_meta_step(
    supervised,
    optimizer,
    train,
    plan.Release(
      train.hierarchy,
      plan.SamplingPlan((plan.All(), plan.Poisson(0.5))),
      mechanism,
    ),
  )
  for _ in range(40):
    state, _ = step(state)
  tuned = learners.FineTuning(
      models.mlp(3, (16,), (SIDE, SIDE, 1)), inner_steps=10,
      optimizer=optax.sgd(0.5), body=False,
  )
  evaluator = training.Evaluator(tuned)
  tasks = training.draw(test, way=3, shot=2, query=4, count=40, seed=0)
  found = [evaluator.score([p], tasks).mean for p in (start, state.params)]
  assert found[1] > 0.6 > tasks.chance
  assert found[1] > found[0]
