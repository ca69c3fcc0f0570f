"""Examples as clip units: DP-MAML with noisy inner steps, and DP-SGD.

Against plain loops; and the ways in which one example reaches an update.
"""

import math
import re

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from episodic_dp import errors
from episodic_dp import learners
from episodic_dp import models
from episodic_dp import plan
from episodic_dp import private
from episodic_dp import sampling
from episodic_dp.plan import validation
from episodic_dp.private import keys
from episodic_dp.private import noise
from episodic_dp.private import quantile
from episodic_dp.private import sample_level
from episodic_dp.sampling import episodes
from tests import fake_dataset
from tests import frequencies
from tests import plans
from tests import task_sums
from tests.task_sums import flat

WAY, SIDE, SHOT, QUERY, STEPS, RATE = 3, 4, 2, 2, 3, 0.5
SGD = optax.sgd(1.0)
KEY = jax.random.key(5)
LEVELS = ("participant", "class", "image")


def mechanism(**changes):
  return plan.Mechanism(**dict(
      dict(
          clip_unit="image",
          noise_multiplier=2.0,
          clip_norm=0.7,
          order="first",
          inner_steps=STEPS,
          inner_clip_norm=0.3,
          inner_noise_multiplier=0.5,
      ),
      **changes,
  ))


def apply(params, images):
  x = images.reshape(images.shape[0], -1)
  return x @ params["kernel"] + params["bias"][None]


MODEL = models.Model(
    lambda key: {
        "kernel": 0.1 * jax.random.normal(key, (SIDE * SIDE, WAY)),
        "bias": jnp.zeros(WAY),
    },
    apply,
)


def learner(**options):
  return learners.MAML(
      MODEL, inner_steps=STEPS, inner_rate=RATE, order="first", **options
  )


def random_task(seed=0):
  rng = np.random.default_rng(seed)

  def part(shot):
    shape = (WAY * shot, SIDE, SIDE, 1)
    return episodes.Examples(
        jnp.asarray(rng.standard_normal(shape), jnp.float32),
        jnp.repeat(jnp.arange(WAY), shot),
    )

  return sampling.EpisodeBatch(part(SHOT), part(QUERY))


PARAMS = MODEL.init(jax.random.key(1))
TASK = random_task()


def compiled(m):
  return jax.jit(
      lambda task, key: sample_level.query_sum(
          learner(), m, PARAMS, task, key, quantile.init(m, PARAMS)
      )
  )


# A plain loop in float64 ------------------------------------------------------


def slope_of(params, image, label):
  """Gradient of the softmax cross entropy of a linear model, by hand."""
  x = np.asarray(image, np.float64).ravel()
  logits = x @ params["kernel"] + params["bias"]
  p = np.exp(logits - logits.max())
  p /= p.sum()
  p[int(label)] -= 1
  return {"bias": p, "kernel": np.outer(x, p)}


def clipped(slope, bound):
  norm = np.linalg.norm(flat(slope))
  return {k: v * min(1, bound / norm) for k, v in slope.items()}


def clipped_sum(params, examples, bound):
  slopes = [clipped(slope_of(params, *example), bound)
            for example in zip(examples.images, examples.labels)]
  return {k: sum(slope[k] for slope in slopes) for k in params}


def plain_loop(task, key, m):
  """Algorithm 2, first order: the sum of clipped query gradients."""
  params = {k: np.asarray(v, np.float64) for k, v in PARAMS.items()}
  for step in range(m.inner_steps):
    total = clipped_sum(params, task.support, m.inner_clip_norm)
    drawn = noise.add_noise(
        jax.random.fold_in(key, step),
        jax.tree.map(jnp.zeros_like, PARAMS),
        m.inner_noise_multiplier * m.inner_clip_norm,
    )
    for k in params:
      noised = total[k] + np.asarray(drawn[k], np.float64)
      params[k] = params[k] - RATE * noised / len(task.support.labels)
  return clipped_sum(params, task.query, m.clip_norm)


def test_a_task_equals_a_plain_loop():
  _, released = compiled(mechanism())(TASK, KEY)
  expected = plain_loop(TASK, KEY, mechanism())
  assert set(released.gradient) == set(expected)
  for name, value in expected.items():
    # Clipping in float32 stays below the bound, by up to 1e-4 of it.
    np.testing.assert_allclose(
        released.gradient[name], value, rtol=1e-4, atol=2e-5
    )
  assert released.norm.shape == (WAY * QUERY,) and released.finite.all()
  assert released.clipped.any()


# What one example can do ------------------------------------------------------


def test_support_examples_act_through_the_noised_sums_alone(monkeypatch):
  """Where constants take the place of these, nothing is left of them."""

  def fixed(m, key):
    return lambda loss: lambda params, examples, step: jax.tree.map(
        lambda p: jnp.full_like(p, 0.01) * (1 + jnp.float32(step)), params
    )

  monkeypatch.setattr(sample_level, "inner_gradient", fixed)
  release = compiled(mechanism())
  outputs = [
      release(TASK._replace(support=random_task(s).support), KEY)[1].gradient
      for s in (0, 7)
  ]
  jax.tree.map(np.testing.assert_array_equal, *outputs)
  assert np.abs(outputs[0]["kernel"]).max() > 0.01


def test_noised_gradients_are_constants_whatever_the_loss_closes_over():

  def adapted(scale):
    gradient = sample_level.inner_gradient(mechanism(), KEY)(
        lambda p, examples, step: jnp.sum(examples * p[None]) * scale * step
    )
    return gradient(scale * jnp.ones(2), jnp.ones((3, 2)), 1).sum()

  assert jax.jit(jax.grad(adapted))(0.1) == 0


# Noise ------------------------------------------------------------------------


def test_inner_noise_has_the_announced_spread_and_is_fresh():
  m = mechanism(inner_noise_multiplier=1.7, inner_clip_norm=0.5)
  params = {"a": jnp.zeros(3000), "b": jnp.zeros((1500, 2))}
  examples = jnp.zeros((4, 1))

  def loss(params, examples, step):
    return 0.0 * (params["a"].sum() + params["b"].sum())

  @jax.jit
  def draw(slot, step):
    key = jax.random.fold_in(KEY, slot)
    slope = sample_level.inner_gradient(m, key)(loss)(params, examples, step)
    return jnp.concatenate([v.ravel() for v in slope.values()])

  draws = [draw(i, step) * 4 / (1.7 * 0.5) for i in (0, 1) for step in (0, 1)]
  frequencies.check_normal(draws)
  frequencies.check_unrelated(*draws)
  np.testing.assert_array_equal(draw(0, 0), draw(0, 0))


# The whole step ---------------------------------------------------------------


DATA = fake_dataset.FakeDataset(
    images=np.random.default_rng(0).standard_normal(
        (8 * WAY * 6, SIDE, SIDE, 1), np.float32
    ),
    hierarchy=plans.tree(LEVELS, 8, WAY, 6),
)
PLAN = plans.sampling(0.5, WAY, 4, way=WAY, shot=SHOT, query=QUERY)


def make_step(m, by, data=DATA, p=PLAN):
  return private.make_meta_step(
      by, SGD, data, plan.Release(data.hierarchy, p, m),
      compute=private.Compute(microbatch_size=3, diagnostics=True),
  )


@pytest.mark.slow
def test_a_step_equals_the_loop_over_its_tasks():
  """With the step's own keys; divided by the expected number of queries."""
  m = mechanism()
  state = private.init(
      jax.random.key(7), learner(), SGD, m, params=PARAMS
  )
  tasks = task_sums.drawn(state.key, DATA, PLAN, 0)
  inner = keys.step_key(state.key, keys.INNER_NOISE, 0)
  total = noise.add_noise(
      keys.step_key(state.key, keys.NOISE, 0),
      jax.tree.map(jnp.zeros_like, PARAMS),
      m.noise_multiplier * m.clip_norm,
  )
  total = {k: np.asarray(v, np.float64) for k, v in total.items()}
  for slot, task in tasks.items():
    part = plain_loop(task, jax.random.fold_in(inner, slot), m)
    total = {k: total[k] + part[k] for k in total}
  after, metrics = make_step(m, learner())(state)
  assert metrics["private/tasks"] == len(tasks) > 1
  for name in total:
    np.testing.assert_allclose(
        after.params[name],
        np.asarray(PARAMS[name]) - total[name] / (8 * 0.5 * WAY * QUERY),
        rtol=1e-4, atol=2e-5,
    )


# Refusals ---------------------------------------------------------------------


def refused(text, *, by, m=None):
  """Require that no step is made; return True if the reason matches."""
  with pytest.raises(plan.UnsoundPlanError) as e:
    make_step(m or mechanism(), by)
  return re.search(text, str(e.value)) is not None


def test_networks_that_mix_examples_are_refused():
  mixed = MODEL._replace(
      apply=lambda params, images: MODEL.apply(
          params, images - images.mean(0, keepdims=True)
      ),
      mixes_examples=False,  # A claim is not believed.
  )
  assert refused("mixes examples.*norm='group'", by=learners.MAML(
      mixed, inner_steps=STEPS, order="first"
  ))


def test_learners_that_ask_otherwise_are_refused():

  class Twice(learners.MAML):

    def adapt(self, params, support, *, inner_gradient=jax.grad):
      gradient = inner_gradient(lambda p, e, i: self.adapted_loss(p, e))
      for _ in range(3):
        gradient(params, support, 0)
      return params

  assert refused(r"Twice.adapt requests.*\[0, 0, 0\].*inner_steps=3",
          by=Twice(MODEL, inner_steps=3, order="first"))

  class Loop(learners.MAML):
    """Asks in a loop, five times or as often as the data say."""

    def adapt(self, params, support, *, inner_gradient=jax.grad):
      gradient = inner_gradient(lambda p, e, i: self.adapted_loss(p, e))
      often = support.labels.sum() if self.inner_steps == 1 else 5
      return jax.lax.fori_loop(
          0, often, lambda i, p: gradient(p, support, i), params
      )

  assert callable(
      make_step(
          mechanism(inner_steps=5), Loop(MODEL, inner_steps=5, order="first")
      )
  )
  assert refused(r"\[0, 1, 2, 3, 4\].*inner_steps=3",
                 by=Loop(MODEL, inner_steps=3, order="first"))
  assert refused("unknown number.*inner_steps=1", m=mechanism(inner_steps=1),
                 by=Loop(MODEL, inner_steps=1, order="first"))

  class Own(learners.MAML):

    def meta_gradient(self, params, episode):
      return self.loss(params, episode), params

  assert refused(
      "Own cannot be trained", by=Own(MODEL, inner_steps=3, order="first")
  )
  assert refused("loss_weights", by=learner(loss_weights=(0.0, 0.5, 0.5)))
  random = MODEL._replace(random=lambda params, images, key: images)
  assert refused("random layers .*dropout", by=learners.MAML(
      random, inner_steps=STEPS, order="first"
  ))


def test_learners_that_read_support_examples_otherwise_are_refused():

  def leaking(how):
    def adapt(self, params, support, *, inner_gradient=jax.grad):
      bright, examples = support.images.mean(), support
      if how == "mixed":
        examples = support._replace(images=support.images - bright)
      slope = inner_gradient(
          lambda p, e, i: self.adapted_loss(p, e)
          * (bright if how == "loss" else len(support.labels))
      )(params, examples, 0)
      start = bright if how == "start" else 1.0
      return jax.tree.map(lambda p, g: start * p - g, params, slope)

    kind = type("Leaky", (learners.MAML,), {"adapt": adapt})
    return kind(MODEL, inner_steps=1, order="first")

  for how in ("mixed", "loss", "start"):
    assert refused("Leaky.adapt reads the support set in another way",
                   m=mechanism(inner_steps=1), by=leaking(how)), how
  assert callable(make_step(mechanism(inner_steps=1), leaking("sizes alone")))

  class Changing(learners.MAML):

    def at_step(self, step):
      return learners.MAML(MODEL, inner_steps=3, order="second")

  assert refused(
      "Changing.at_step", by=Changing(MODEL, inner_steps=3, order="first")
  )


# DP-SGD -----------------------------------------------------------------------

ROWS, CLASSES = 14, WAY
LEARNER = learners.Supervised(MODEL)


def _dataset(hierarchy=None, **changes):
  rng = np.random.default_rng(0)
  fields = dict(
      images=rng.integers(0, 256, (ROWS, SIDE, SIDE, 1), np.uint8),
      hierarchy=hierarchy or plans.tree("image", ROWS),
      labels=rng.integers(0, CLASSES, ROWS),
  )
  return fake_dataset.FakeDataset(**(fields | changes))


def _plain_step(state, dataset, stages, clip_norm):
  """One step of Algorithm 1 of Abadi et al. without noise, by a loop."""
  described = plans.sampling(*stages)
  key = jax.random.fold_in(state.key, keys.SAMPLING)
  indices, mask = sampling.sample(key, dataset.hierarchy, described, 0)
  rows = np.asarray(indices)[np.asarray(mask)]
  assert 0 < len(rows) < ROWS
  params = {k: np.asarray(v, np.float64) for k, v in state.params.items()}
  examples = episodes.Examples(
      dataset.images[rows] / 255.0, dataset.labels[rows]
  )
  total = clipped_sum(params, examples, clip_norm)
  expected = validation.examples_per_step(dataset.hierarchy, described)
  return flat(params) - flat(total) / expected


def _step(dataset, stages, **mechanism):
  m = plan.Mechanism(clip_unit="image", **mechanism)
  state = private.init(jax.random.key(3), LEARNER, SGD, m)
  return state, make_step(m, LEARNER, dataset, plans.sampling(*stages))


def _noise(state, number, spread):
  """The noise of a step, by hand."""
  key = keys.step_key(state.key, keys.NOISE, number)
  zeros = jax.tree.map(jnp.zeros_like, state.params)
  return flat(noise.add_noise(key, zeros, spread))


RAGGED = plans.nested("class image", [3, 7, 4])


def test_a_unit_without_an_example_gives_nothing_but_noise():
  """One of three classes is empty; a step samples one class."""
  hierarchy = plan.Hierarchy.from_labels(
      {"class": np.arange(ROWS) // 7}, leaf="image", units=[0, 1, 2]
  )
  dataset = _dataset(hierarchy)
  stages = (1, plan.All())
  state, step = _step(dataset, stages, clip_norm=0.3, noise_multiplier=1.5)
  empty = 0
  for number in range(9):
    # The expected examples, 14 / 3, divide the sum whatever was drawn.
    drawn = _noise(state, number, 1.5 * 0.3) / (ROWS / 3)
    only_noise = flat(state.params) - drawn
    state, metrics = step(state)
    moved = np.abs(flat(state.params) - only_noise).max()
    count = int(metrics["private/tasks"])
    assert count in (0, 7) and (moved < 1e-6) == (count == 0)
    empty += not count
  assert 0 < empty < 9


@pytest.mark.slow
@pytest.mark.parametrize(
    "hierarchy,stages,clip_norm,z",
    [
        (None, (0.5,), 0.3, 1.5),
        (None, (0.5,), math.inf, 0.0),
        # Gaps between the examples that are drawn.
        (RAGGED, (plan.All(), 0.5), 0.3, 0.0),
    ],
    ids=["private", "plain", "classes"],
)
def test_it_is_dp_sgd_and_without_clipping_sgd(hierarchy, stages, clip_norm, z):
  dataset = _dataset(hierarchy)
  state, step = _step(dataset, stages, clip_norm=clip_norm, noise_multiplier=z)
  expected = _plain_step(state, dataset, stages, clip_norm)
  if z:
    # Once, on the sum, which is divided by the expected 7 examples.
    expected = expected - _noise(state, 0, z * clip_norm) / (ROWS * 0.5)
  start = flat(state.params)
  state, metrics = step(state)
  np.testing.assert_allclose(flat(state.params), expected, atol=2e-6)
  assert np.abs(flat(state.params) - start).max() > 1e-2
  assert (float(metrics["private/clipped"]) > 0) == (clip_norm < 1)
  assert 0 < metrics["private/tasks"] < ROWS


@pytest.mark.parametrize(
    "changes,text",
    [
        ({"labels": None}, "needs labels"),
        ({"labels": np.arange(ROWS)}, "labels are 0 to 13: build it with 14"),
        ({"labels": np.arange(ROWS) % 2 - 1}, "labels are -1 to 0"),
    ],
)
def test_data_that_cannot_be_learned_so_are_refused(changes, text):
  kind = plan.PlanError
  if changes["labels"] is None:
    kind = errors.DataError
  with pytest.raises(kind, match=text):
    _step(_dataset(**changes), (0.5,), noise_multiplier=1.0)


def test_who_adapts_or_clips_otherwise_is_refused():
  described = plans.sampling(plan.All(), 0.5)
  for learner, unit, text in (
      (learners.MAML(LEARNER.model), "image", "MAML adapts to support sets"),
      (LEARNER, "class", "no episode.*clip_unit='image'"),
  ):
    with pytest.raises(plan.PlanError, match=text):
      make_step(
          plan.Mechanism(clip_unit=unit, noise_multiplier=1.0),
          learner, _dataset(RAGGED), described,
      )
