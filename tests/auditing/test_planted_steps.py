"""The audit finds mistakes in how a step clips, averages and adds noise.

In every test the sound program passes at the same settings.
"""

import dataclasses
import math
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from episodic_dp import learners
from episodic_dp import models
from episodic_dp import plan
from episodic_dp.auditing import canaries
from episodic_dp.private import checks
from episodic_dp.private import clipping
from episodic_dp.private import keys
from episodic_dp.private import noise
from episodic_dp.private import quantile
from episodic_dp.private import sample_level
from episodic_dp.private import step as step_lib
from tests import plans
from tests.auditing import planted

pytestmark = pytest.mark.usefixtures("quickly_compiled")
PARTICIPANTS, RATE, Z, STEPS = 4, 0.9, 4.0, 4
EXPECTED = PARTICIPANTS * RATE
RUNS, MARGIN = 1000, 0.3


@pytest.fixture(scope="module")
def audit():
  """A participant that pulls with the clip norm or more; others do nothing."""
  gradients = np.zeros((PARTICIPANTS, 128))
  gradients[0, 0] = 1e3
  return planted.of_participants(
      gradients, plan.Poisson(RATE), steps=STEPS, noise_multiplier=Z
  )


@pytest.fixture(scope="module")
def sound(audit):
  """The claim, which the unplanted program keeps."""
  claim = audit.claim()
  measured = audit.measure(planted.shift_score(1.0, RATE, Z), RUNS)
  assert measured < claim
  # What pulls is there: by its rate, give or take 6 standard errors.
  pulled, still = (
      audit.sums(side, RUNS, seed=0)[..., 0].mean()
      for side in (audit.with_record, audit.without_record)
  )
  assert abs(pulled - still - RATE) < 6 * Z * math.sqrt(2 / (RUNS * STEPS))
  return claim


# Dividing by the wrong count --------------------------------------------------


@pytest.mark.slow
def test_the_real_count_in_place_of_the_expected_one(
    audit, sound, monkeypatch
):
  """The size of the noise reveals that all were sampled."""
  counts, summarise, add_noise = [], step_lib.summarise, noise.add_noise

  def counting(diagnostics, mask):
    counts.append(jnp.maximum(mask.sum(), 1).astype(jnp.float32))
    return summarise(diagnostics, mask)

  def add_and_divide(key, total, stddev, **options):
    noised = add_noise(key, total, stddev, **options)
    return jax.tree.map(lambda a: a * EXPECTED / counts[-1], noised)

  monkeypatch.setattr(step_lib, "summarise", counting)
  monkeypatch.setattr(noise, "add_noise", add_and_divide)

  def smallest(sums):
    return -np.square(sums).sum(2).min(1)

  assert audit.measure(smallest, RUNS) > sound + MARGIN


@pytest.mark.slow
def test_noise_of_the_mean_added_to_the_sum(audit, sound, monkeypatch):
  """z C / count where z C belongs."""
  stddev = quantile.stddev
  monkeypatch.setattr(
      quantile, "stddev", lambda *of_step: stddev(*of_step) / EXPECTED
  )
  score = planted.shift_score(1.0, RATE, Z / EXPECTED)
  assert audit.measure(score, RUNS) > sound + MARGIN


# Clipping ---------------------------------------------------------------------


@pytest.mark.slow
def test_clipping_after_averaging(audit, sound, monkeypatch):
  """One long gradient takes the whole of the mean's clip norm."""
  clip, add_noise = clipping.clip, noise.add_noise

  def add_to_clipped(key, total, stddev, **options):
    mean = jax.tree.map(lambda a: a / EXPECTED, total)
    clipped = clip(mean, 1.0).gradient
    total = jax.tree.map(lambda a: a * EXPECTED, clipped)
    return add_noise(key, total, stddev, **options)

  monkeypatch.setattr(
      clipping, "clip", lambda gradient, norm, by: clip(gradient, math.inf)
  )
  monkeypatch.setattr(noise, "add_noise", add_to_clipped)
  score = planted.shift_score(EXPECTED, RATE, Z)
  assert audit.measure(score, RUNS) > sound + MARGIN


@pytest.mark.slow
def test_a_percentile_of_raw_norms_with_the_claim_of_a_fixed_norm(
    audit, sound
):
  """The clip norm, and with it the noise, stays while the long one is seen."""
  window = dataclasses.replace(
      audit.mechanism, clipping="percentile_window",
      clip_percentile=100.0, clip_window=8,
  )
  planted_run = audit._replace(mechanism=window)
  assert planted_run.claim() == math.inf  # As the library says itself.
  fixed = audit._replace(mechanism=window.with_fixed_norm)
  assert fixed.claim() == sound

  def loudest_at_last(sums):
    return np.square(sums[:, -1]).sum(-1)

  assert planted_run.measure(loudest_at_last, RUNS) > sound + MARGIN


# Keys -------------------------------------------------------------------------


@pytest.mark.slow
def test_one_noise_for_all_steps(audit, sound, monkeypatch):
  """It is gone from the difference of two steps."""
  of_step = keys.step_key

  def without_step(key, purpose, step):
    if purpose == keys.NOISE:
      return jax.random.fold_in(key, purpose)
    return of_step(key, purpose, step)

  monkeypatch.setattr(keys, "step_key", without_step)

  def differ(sums):
    return np.ptp(sums[..., 0], axis=1)

  assert audit.measure(differ, RUNS) > sound + MARGIN


# Sample-level training --------------------------------------------------------

SHOT, QUERY, INNER_RATE = 2, 8, 0.5


def bent(params, images):
  """Return a w^2 / 2 + c w of each image (a, c) at a weight w."""
  w = params["w"]
  curve, slope = images[:, 0, 0, 0], images[:, 0, 0, 1]
  return (curve * w**2 / 2 + slope * w)[:, None]


def bent_learner(order):
  model = models.Model(
      lambda key: {"w": jnp.zeros(())}, bent, mixes_examples=False
  )
  return learners.MAML(
      model, inner_steps=1, inner_rate=INNER_RATE, order=order,
      task_loss=lambda outputs, labels: outputs.mean(),
  )


def of_images(count, with_curve):
  images = np.tile(np.float32([0, 1]), (count, 1))
  if with_curve:
    # In the support set it turns the gradient of every query around.
    images[0, 0] = 2 * SHOT / INNER_RATE
  hierarchy = plans.tree("task image", 1, count)
  return canaries.canary_dataset(images, hierarchy)


@pytest.mark.slow  # Four programs with gradients of gradients.
def test_a_second_order_gradient_of_sample_level_training(monkeypatch):
  """It reads the support set again; the checks that refuse it are taken out."""
  drawn = SHOT + QUERY
  sound = planted.Audit(
      of_images(drawn + 1, True),
      of_images(drawn, False),
      bent_learner("first"),
      plans.sampling(plan.All(), drawn, way=1, shot=SHOT, query=QUERY),
      plan.Mechanism(
          clip_unit="image", order="first", inner_steps=1, inner_clip_norm=2.0,
          noise_multiplier=4.0, inner_noise_multiplier=4.0,
      ),
      "image",
      4,
  )
  claim = sound.claim()
  assert sound.measure(lambda sums: -sums[..., 0].sum(1), RUNS) < claim
  second = sound._replace(learner=bent_learner("second"))
  with pytest.raises(plan.PlanError) as error:
    second.step(second.with_record)
  assert "learner.order='second'" in str(error.value)
  monkeypatch.setattr(checks, "check", lambda *settings: None)
  monkeypatch.setattr(
      sample_level, "lax", SimpleNamespace(stop_gradient=lambda tree: tree)
  )
  measured = second.measure(lambda sums: -sums[..., 0].min(1), RUNS)
  assert measured > claim + MARGIN
