"""DP-SGD, where every example is a clip unit, and layers that draw."""

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
from episodic_dp.plan import validation
from episodic_dp.private import keys
from episodic_dp.private import noise
from tests import fake_dataset
from tests.task_sums import flat

ROWS, CLASSES, SIDE = 14, 3, 2
HALF = optax.sgd(0.5)
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
  expected = validation.examples_per_step(dataset.hierarchy, described)
  return jax.tree.map(
      lambda p, g: np.asarray(p) - 0.5 * g / expected, state.params, total
  )


def _step(dataset, stages, **mechanism):
  mechanism = plan.Mechanism(clip_unit="image", **mechanism)
  state = private.init(jax.random.key(3), LEARNER, HALF, mechanism)
  step = private.make_meta_step(
    LEARNER,
    HALF,
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
    before, key = flat(state.params), keys.step_key(
        state.key, keys.NOISE, number
    )
    drawn = noise.add_noise(
        key, jax.tree.map(jnp.zeros_like, state.params), 1.5 * 0.3
    )
    state, metrics = step(state)
    # The expected examples, 14 / 3, divide the sum whatever was drawn.
    only_noise = before - 0.5 * flat(drawn) / (ROWS / 3)
    moved = np.abs(flat(state.params) - only_noise).max()
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
  start = flat(state.params)
  state, metrics = step(state)
  np.testing.assert_allclose(flat(state.params), flat(expected), atol=2e-6)
  assert np.abs(flat(state.params) - start).max() > 1e-2
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
      HALF,
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


TASKS, WAY = 6, 2
SGD = optax.sgd(1.0)
DATA = fake_dataset.FakeDataset(
    images=np.random.default_rng(0)
    .standard_normal((TASKS * WAY * 2, 1, 1, 4))
    .astype(np.float32),
    hierarchy=plan.Hierarchy.regular(
        (TASKS, WAY, 2), levels=("participant", "class", "image")
    ),
)
PLAN = plan.SamplingPlan(
    (plan.FixedSize(TASKS), plan.FixedSize(WAY), plan.FixedSize(2)),
    episode=plan.Episode(way=WAY, shot=1, query=1),
)


def dropped(params, images, key):
  x = images.reshape(images.shape[0], -1)
  return (x * jax.random.bernoulli(key, 0.5, (4,))) @ params["head"]


def network(random=dropped):
  """A linear network, which drops inputs while it is trained."""
  return models.Model(
      lambda key: {"head": jax.random.normal(key, (4, WAY))},
      lambda params, images: images.reshape(-1, 4) @ params["head"],
      mixes_examples=False,
      random=random,
  )


def taken(learner, *, data=DATA, described=PLAN, steps=1, key=1, **mechanism):
  """The releases of some steps, without noise or clipping."""
  chosen = dict(clip_unit="participant", clip_norm=1e6, noise_multiplier=0.0)
  release = plan.Release(
      data.hierarchy, described, plan.Mechanism(**(chosen | mechanism))
  )
  state = private.init(
      private.secret_key(bytes([key] * 8)), learner, SGD, release.mechanism
  )
  step = private.make_meta_step(learner, SGD, data, release)
  params = [jax.tree.map(np.array, state.params)]
  for _ in range(steps):
    state, _ = step(state)
    params.append(jax.tree.map(np.array, state.params))
  return [
      jax.tree.map(lambda a, b: a - b, *pair)
      for pair in zip(params, params[1:])
  ]


class Telling(learners.Supervised):
  """Its update is what its network draws, whatever the data."""

  adapts = True

  def meta_gradient(self, params, episode):
    """What is drawn for the query set, and for two passes over the support."""
    del episode
    found = [
        learner.model.apply(params, jnp.ones((1, 4)))[0, 0]
        for learner in (self, self.in_pass(0), self.in_pass(1))
    ]
    return jnp.zeros(()), {"head": jnp.zeros((4, WAY)).at[:3, 0].set(
        jnp.stack(found)
    )}


def test_draws_follow_from_the_key_the_step_the_task_and_the_pass():
  def random(params, images, key):
    del params
    return jnp.tile(jax.random.uniform(key), (len(images), WAY))

  found = taken(Telling(network(random)), steps=2)
  fold = jax.random.fold_in
  for step, update in enumerate(found):
    drawn = []
    for slot in range(TASKS):
      own = fold(
          keys.step_key(
              private.secret_key(bytes([1] * 8)), keys.LAYERS, step
          ),
          slot,
      )
      passes = [own, fold(own, 1), fold(own, 2)]
      drawn.append([jax.random.uniform(fold(key, 0)) for key in passes])
    assert len(np.unique(drawn)) == 3 * TASKS
    np.testing.assert_allclose(
        update["head"][:3, 0], np.mean(drawn, axis=0), rtol=1e-5
    )


def apply_mixed(params, images):
  x = images.reshape(-1, 4)
  return (x - 1e-6 * x.mean(0)) @ params["head"]


@pytest.mark.parametrize(
    "mixing",
    [
        # Its claim is not read, and it mixes only while it is trained.
        network(lambda params, images, key:
                dropped(params, images, key) + images.mean()),
        network(None)._replace(apply=apply_mixed),
    ],
)
def test_what_mixes_is_refused_for_examples(mixing):
  examples = fake_dataset.FakeDataset(
      images=DATA.images[:TASKS],
      hierarchy=plan.Hierarchy.regular((TASKS,), levels=("image",)),
      labels=np.arange(TASKS) % WAY,
  )
  with pytest.raises(plan.UnsoundPlanError, match="mixes examples"):
    taken(
        learners.Supervised(mixing),
        data=examples,
        described=plan.SamplingPlan((plan.FixedSize(TASKS),)),
        clip_unit="image",
    )


def test_noisy_inner_steps_refuse_random_layers():
  with pytest.raises(plan.UnsoundPlanError, match="random layers .*dropout"):
    taken(
        learners.MAML(network(), inner_steps=1, order="first"),
        clip_unit="image",
        order="first",
        inner_steps=1,
        inner_clip_norm=1.0,
        inner_noise_multiplier=1.0,
        clip_norm=1.0,
        noise_multiplier=1.0,
    )


def test_a_task_drawn_several_times_is_clipped_once():
  # Each draw's gradient is longer than the clip norm, and two cancel out.
  def random(params, images, key):
    del params
    sign = jnp.sign(jax.random.uniform(key) - 0.5)
    return jnp.tile(100 * sign, (len(images), WAY))

  several = network(random)._replace(draws=4)
  (found,) = taken(Telling(several), clip_norm=1.0)
  step = keys.step_key(private.secret_key(bytes([1] * 8)), keys.LAYERS, 0)
  fold = jax.random.fold_in

  def drawn(key):
    return 100 * np.sign(jax.random.uniform(fold(key, 0)) - 0.5)

  updates = []
  for slot in range(TASKS):
    own = [
        [drawn(k), drawn(fold(k, 1)), drawn(fold(k, 2))]
        for k in jax.random.split(fold(step, slot), 4)
    ]
    mean = np.mean(own, axis=0)
    updates.append(mean * min(1, 1 / max(np.linalg.norm(mean), 1e-9)))
  np.testing.assert_allclose(
      found["head"][:3, 0], np.mean(updates, axis=0), rtol=1e-4, atol=1e-6
  )
