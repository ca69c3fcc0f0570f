"""Sample-level DP-MAML: against a plain loop, and what one example can do."""

import math
import re

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy import stats

from episodic_dp import learners
from episodic_dp import models
from episodic_dp import plan
from episodic_dp import private
from episodic_dp import sampling
from episodic_dp.private import keys
from episodic_dp.private import noise
from episodic_dp.private import quantile
from episodic_dp.private import sample_level
from episodic_dp.sampling import episodes
from tests import fake_dataset

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


def linear_model():
  def init(key):
    kernel = 0.1 * jax.random.normal(key, (SIDE * SIDE, WAY))
    return {"kernel": kernel, "bias": jnp.zeros(WAY)}

  def apply(params, images):
    x = images.reshape(images.shape[0], -1)
    return x @ params["kernel"] + params["bias"]

  return models.Model(init, apply)


MODEL = linear_model()


def learner(unroll=False, **changes):
  return learners.MAML(
      MODEL,
      **{
          **dict(inner_steps=STEPS, inner_rate=RATE, order="first"),
          **changes,
      },
      unroll=unroll,
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


def compiled(m, unroll=False):
  return jax.jit(
      lambda task, key: sample_level.query_sum(
          learner(unroll), m, PARAMS, task, key, quantile.init(m, PARAMS)
      )
  )


RELEASE = compiled(mechanism())


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
  norm = math.sqrt(sum(np.sum(np.square(v)) for v in slope.values()))
  return {k: v * min(1, bound / norm) for k, v in slope.items()}


def plain_loop(task, key, m):
  """Algorithm 2, first order: (sum of clipped query gradients, inner sums)."""
  params = {k: np.asarray(v, np.float64) for k, v in PARAMS.items()}
  sums = []
  for step in range(m.inner_steps):
    total = {k: np.zeros_like(v) for k, v in params.items()}
    for image, label in zip(*task.support):
      for k, v in clipped(
          slope_of(params, image, label), m.inner_clip_norm
      ).items():
        total[k] += v
    sums.append(total)
    drawn = noise.add_noise(
        jax.random.fold_in(key, step),
        jax.tree.map(jnp.zeros_like, PARAMS),
        m.inner_noise_multiplier * m.inner_clip_norm,
    )
    for k in params:
      noised = total[k] + np.asarray(drawn[k], np.float64)
      params[k] = params[k] - RATE * noised / len(task.support.labels)
  result = {k: np.zeros_like(v) for k, v in params.items()}
  for image, label in zip(*task.query):
    for k, v in clipped(slope_of(params, image, label), m.clip_norm).items():
      result[k] += v
  return result, sums


@pytest.mark.parametrize("unroll", [True, False])
def test_a_task_equals_a_plain_loop(unroll):
  release = compiled(mechanism(), unroll=True) if unroll else RELEASE
  _, released = release(TASK, KEY)
  expected, _ = plain_loop(TASK, KEY, mechanism())
  assert set(released.gradient) == set(expected)
  for name, value in expected.items():
    # Clipping in float32 stays below the bound, by up to 1e-4 of it.
    np.testing.assert_allclose(
        released.gradient[name], value, rtol=1e-4, atol=2e-5
    )
  assert released.norm.shape == (WAY * QUERY,) and released.finite.all()
  assert released.clipped.any()


# What one example can do ------------------------------------------------------


def norm(a, b):
  return math.sqrt(
      sum(
          np.sum(np.square(np.asarray(a[k], np.float64) - np.asarray(b[k])))
          for k in a
      )
  )


def test_support_examples_act_through_the_noised_sums_alone(monkeypatch):
  """Where constants take the place of these, nothing is left of them."""

  def fixed(m, key):
    del m, key
    return lambda loss: lambda params, examples, step: jax.tree.map(
        lambda p: 0.01 * (1 + step) * jnp.ones_like(p), params
    )

  monkeypatch.setattr(sample_level, "inner_gradient", fixed)
  release = compiled(mechanism())
  outputs = [
      release(TASK._replace(support=random_task(s).support), KEY)[1].gradient
      for s in (0, 7)
  ]
  assert norm(*outputs) == 0
  assert np.abs(outputs[0]["kernel"]).max() > 0.01


def test_noised_gradients_are_constants_whatever_the_loss_closes_over():

  def adapted(scale):
    gradient = sample_level.inner_gradient(mechanism(), KEY)(
        lambda p, examples, step: jnp.sum(examples * p) * scale * step
    )
    return gradient(scale * jnp.ones(2), jnp.ones((3, 2)), 1).sum()

  assert jax.jit(jax.grad(adapted))(0.1) == 0


# Noise ------------------------------------------------------------------------


def test_inner_noise_has_the_announced_spread_and_is_fresh():
  m = mechanism(inner_noise_multiplier=1.7, inner_clip_norm=0.5)
  params = {"a": jnp.zeros(3000), "b": jnp.zeros((1500, 2))}
  examples = jnp.zeros((4, 1))

  def loss(params, examples, step):
    del examples, step
    return 0.0 * (params["a"].sum() + params["b"].sum())

  @jax.jit
  def draw(slot, step):
    key = jax.random.fold_in(KEY, slot)
    slope = sample_level.inner_gradient(m, key)(loss)(params, examples, step)
    return jnp.concatenate([v.ravel() for v in slope.values()])

  draws = [
      np.asarray(draw(slot, step), np.float64) * 4 / (1.7 * 0.5)
      for slot, step in ((0, 0), (0, 1), (1, 0), (1, 1))
  ]
  values = np.concatenate(draws)
  low, high = stats.chi2.interval(1 - 1e-6, values.size)
  assert low < np.sum(values**2) < high
  assert stats.kstest(values, "norm").pvalue > 1e-6
  correlation = np.corrcoef(draws) - np.eye(4)
  assert np.abs(correlation).max() < 5 / math.sqrt(draws[0].size)
  np.testing.assert_array_equal(draw(0, 0), draw(0, 0))


# The whole step ---------------------------------------------------------------


def make_run(participants=8, rate=0.5):
  hierarchy = plan.Hierarchy.regular((participants, WAY, 6), levels=LEVELS)
  images = np.random.default_rng(0).standard_normal(
      (hierarchy.num_leaves, SIDE, SIDE, 1), np.float32
  )
  stages = (plan.Poisson(rate), plan.FixedSize(WAY), plan.FixedSize(4))
  episode = plan.Episode(way=WAY, shot=SHOT, query=QUERY)
  return (
      fake_dataset.FakeDataset(images=images, hierarchy=hierarchy),
      plan.SamplingPlan(stages, episode=episode),
  )


DATA, PLAN = make_run()


def make_step(**compute):
  return private.make_meta_step(
      learner(), SGD, DATA, plan.Release(DATA.hierarchy, PLAN, mechanism()),
      compute=private.Compute(**compute),
  )


def init(seed=7):
  return private.init(
      jax.random.key(seed), learner(), SGD, mechanism(), params=PARAMS
  )


STEP = make_step(microbatch_size=3, diagnostics=True)


def test_a_step_equals_the_loop_over_its_tasks():
  """With the step's own keys; divided by the expected number of queries."""
  state, m = init(), mechanism()
  rows, mask = sampling.task_indices(
      *sampling.sample(
          jax.random.fold_in(state.key, keys.SAMPLING), DATA.hierarchy,
          PLAN, 0,
      ),
      DATA.hierarchy,
      PLAN,
  )

  def step_key(purpose):
    return keys.step_key(state.key, purpose, 0)

  total = noise.add_noise(
      step_key(keys.NOISE), jax.tree.map(jnp.zeros_like, PARAMS),
      m.noise_multiplier * m.clip_norm,
  )
  total = {k: np.asarray(v, np.float64) for k, v in total.items()}
  for slot in np.flatnonzero(np.asarray(mask)):
    task = sampling.make_episode(
        jax.random.fold_in(step_key(keys.AUGMENTATION), slot),
        jnp.asarray(DATA.images)[rows[slot]],
        PLAN.episode,
    )
    part, _ = plain_loop(
        task, jax.random.fold_in(step_key(keys.INNER_NOISE), slot), m
    )
    total = {k: total[k] + part[k] for k in total}
  after, metrics = STEP(state)
  count = 8 * 0.5 * WAY * QUERY
  assert metrics["private/tasks"] == mask.sum() > 1
  for name in total:
    np.testing.assert_allclose(
        after.params[name], np.asarray(PARAMS[name]) - total[name] / count,
        rtol=1e-4, atol=2e-5,
    )


# Refusals ---------------------------------------------------------------------


def refused(text, kind=plan.UnsoundPlanError, *, m=None, by=None, data=DATA,
            p=PLAN):
  """Whether no step is made, and the sentence that says why matches."""
  with pytest.raises(kind) as e:
    private.make_meta_step(
      by or learner(),
      SGD,
      data,
      plan.Release(data.hierarchy, p, m or mechanism()),
    )
  return re.search(text, str(e.value)) is not None


def test_networks_that_mix_examples_are_refused():
  mixed = MODEL._replace(
      apply=lambda params, images: MODEL.apply(params, images - images.mean(0)),
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

  assert refused(r"Twice.adapt asks.*\[0, 0, 0\].*inner_steps=3",
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
    private.make_meta_step(
      Loop(MODEL, inner_steps=5, order="first"),
      SGD,
      DATA,
      plan.Release(DATA.hierarchy, PLAN, mechanism(inner_steps=5)),
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
    assert refused("Leaky.adapt reads the support set by another way",
                   m=mechanism(inner_steps=1), by=leaking(how)), how
  assert callable(
    private.make_meta_step(
      leaking("sizes alone"),
      SGD,
      DATA,
      plan.Release(DATA.hierarchy, PLAN, mechanism(inner_steps=1)),
    )
  )

  class Changing(learners.MAML):

    def at_step(self, step):
      return learners.MAML(MODEL, inner_steps=3, order="second")

  assert refused(
      "Changing.at_step", by=Changing(MODEL, inner_steps=3, order="first")
  )
