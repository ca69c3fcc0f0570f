"""The proposals: never past the epsilon, by public numbers, best by a score."""

import itertools
import re
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from episodic_dp import accounting
from episodic_dp import data
from episodic_dp import errors
from episodic_dp import plan as plan_lib
from episodic_dp import training
from episodic_dp.analysis import costs
from episodic_dp.analysis import propose
from episodic_dp.config.presets import glyphs
from tests import plans
from tests.refusals import assert_refused

EPSILON = 1.0
CONFIG = glyphs.glyphs()
QUIETER = {"mechanism.clip_norm": 0.25}


def rows_of(config, *signals):
  options = [({}, signals[0]), *((QUIETER, found) for found in signals[1:])]
  return propose.make_rows(
      config, options, epsilon=EPSILON, level="participant"
  )


@pytest.fixture(scope="module")
def rows():
  return rows_of(CONFIG, (0.001, 0.5, 2000), (0.02, 1.0, 2000))


def test_no_row_passes_the_epsilon_by_the_accountants_own_check(rows):
  assert len(rows) >= 5
  for row in rows:
    config = CONFIG.replace(row["changes"])
    found = accounting.guarantee(
        config.release, steps=config.steps, delta=1e-5, level="participant",
    ).epsilon
    assert 0.98 * EPSILON < found <= EPSILON
    assert found == row["epsilon"]
    noise = config.release.mechanism.noise_multiplier
    assert noise == row["noise_multiplier"]
    assert row["steps"] * row["tasks"] == pytest.approx(60 * 240, rel=0.01)


def test_the_first_row_is_the_config_and_others_have_the_best_option(rows):
  own, *others = (CONFIG.replace(row["changes"]) for row in rows)
  noise = {"mechanism.noise_multiplier": rows[0]["noise_multiplier"]}
  assert own.as_json() == CONFIG.replace(noise).as_json()
  assert {config.mechanism.clip_norm for config in others} == {0.25}


@pytest.mark.parametrize(
    "scores, chosen",
    [
        ([9, 8, 10], 0), ([3, 9, 10], 1), ([3, 4, 10], 2), ([0, 0.1, 0.9], 0)
    ],
)
def test_the_config_is_kept_unless_another_is_clearly_better(scores, chosen):
  rows = [{"effective_steps": score} for score in scores]
  assert propose.choose(rows) is rows[chosen]


def test_a_private_quantile_takes_its_part_of_the_noise(rows):
  quantile = CONFIG.replace({
      "mechanism.clipping": "private_quantile", "mechanism.clip_quantile": 0.5,
      "mechanism.clip_rate": 0.2, "mechanism.count_noise": 10.0,
  })
  other = rows_of(quantile, (0.001, 0.5, 2000))[0]
  assert other["noise_multiplier"] == rows[0]["noise_multiplier"]
  assert 0.8 < other["shares"][0] / rows[0]["shares"][0] < 1


@pytest.mark.parametrize(
    "change, error, part",
    [
        ({"mechanism.clip_by": "layer"}, errors.PlanError, "clip_by=global"),
        ({"mechanism.clipping": "percentile_window",
          "mechanism.clip_percentile": 90.0, "mechanism.clip_window": 320},
         errors.UnsoundPlanError, "raw"),
    ],
)
def test_plans_that_cannot_be_compared_are_refused(change, error, part):
  config = CONFIG.replace(change)
  assert_refused(error, re.escape(part), propose.check, config)


def test_the_shares_against_simulated_noised_means():
  rng = np.random.default_rng(0)
  d, tasks, z, filled = 50, 20, 1.5, 0.7
  signal = np.zeros(d)
  signal[0] = 1.0
  values = signal + rng.normal(size=(4000, d)) * 0.3
  values *= rng.uniform(0.1, 1, (4000, 1)) / np.linalg.norm(
      values, axis=1, keepdims=True
  )
  (mean,), (size,) = propose.signals(
      values.sum(0)[None], np.square(values).sum()[None], 4000
  )
  drawn = values[rng.integers(0, 4000, size=(6000, tasks))]
  drawn = drawn * (rng.random((6000, tasks, 1)) < filled)
  means = drawn.mean(1) + z / tasks * rng.normal(size=(6000, d))
  whole = np.square(means).sum(1).mean()
  common = np.square(means.mean(0)).sum()
  found = propose.shares(
      (mean, size, d), tasks=tasks, noise_multiplier=z, filled=filled
  )
  noise = d * (z / tasks) ** 2
  np.testing.assert_allclose(
      found, np.array([common, whole - common - noise, noise]) / whole,
      rtol=0.05,
  )


def test_the_clipped_gradients_of_a_learner_that_is_known():
  """A task's gradient is 3 times a common direction and one of its images."""
  n, side, s = 256, 10, 0.6
  rng = np.random.default_rng(1)
  images = rng.normal(size=(2 * n, side, side, 1)).astype(np.float32)
  images[0] = np.nan
  common = np.full(side * side, 1 / side, np.float32)

  def meta_gradient(params, episode):
    own = episode.support.images.ravel() + episode.query.images.ravel()
    own = jnp.sqrt(1 - s**2) * own / jnp.linalg.norm(own)
    return 0.0, {"w": 3.0 * (s * common + own) + 0 * params["w"]}

  learner = types.SimpleNamespace(
      meta_gradient=meta_gradient, model=types.SimpleNamespace(random=None)
  )
  tasks = training.evaluation.Tasks(
      images=images,
      rows=np.arange(2 * n).reshape(n, 1, 2),
      keys=jax.random.split(jax.random.key(0), n),
      episode=plan_lib.Episode(way=1, shot=1, query=1),
      targets=0,
  )
  sums_of = propose.clipped_sums(learner, [1.0, 30.0])
  found = sums_of(tasks, {"w": jnp.zeros(side * side)})
  means, sizes = propose.signals(*found, n - 1)  # One gradient adds nothing.
  np.testing.assert_allclose(means, [s**2, (s / 10) ** 2], rtol=0.08)
  np.testing.assert_allclose(sizes, [1, 0.01], rtol=0.08)


def test_tasks_that_lack_examples_are_counted_as_by_enumeration():
  sizes = [[5, 5, 5, 1], [2, 5, 1], [5, 5], [4]]
  config = CONFIG.replace({
      "hierarchy": plans.nested("participant glyph drawing", sizes),
      "plan.stages": ("Poisson(0.5)", "FixedSize(2)", "FixedSize(3)"),
      "plan.allow_short_units": True,
      "plan.episode.way": 2,
  })
  able = [
      np.mean([min(two) >= 3 for two in itertools.combinations(held, 2)] or [0])
      for held in sizes
  ]
  assert config.release.filled == pytest.approx(np.mean(able))
  alone = config.replace({
      "plan.episode": None, "learner.name": "supervised",
      "mechanism.clip_unit": "drawing",
  })
  assert CONFIG.release.filled == 1 == alone.release.filled
  lacking = 100 * (1 - config.release.filled)
  config = config.resolved()
  assert f"{lacking:.3g} % of the sampled tasks" in costs.table(
      config, costs.account(config)
  )
  classes = config.replace({
      "hierarchy": plans.nested("glyph drawing", [5, 2, 4, 1]),
      "plan.stages": ("FixedSize(2)", "FixedSize(3)"),
      "plan.episode.form": "disjoint",
      "mechanism.clip_unit": "episode",
  })
  assert classes.release.filled == pytest.approx(1 / 6)


def test_public_units_that_fill_no_training_task_are_told():
  public = data.load(
      "glyphs", glyphs=3, participants=1, validation_participants=2
  ).validation
  with pytest.raises(errors.PlanError, match="use episodic-dp calibrate"):
    propose.measure(CONFIG, public)


@pytest.mark.parametrize("drawings, query", [(9, 8), (8, 4), (4, None)])
def test_more_queries_are_taken_where_public_tasks_have_the_images(
    drawings, query
):
  config = CONFIG.replace(
      {"hierarchy.sizes": (8000, 8, 20), "data.options": {}}
  )
  public = plan_lib.Hierarchy.regular(
      (200, 8, drawings), levels=("participant", "glyph", "drawing")
  )
  changes = propose.more_queries(config, public)
  assert changes.get("plan.episode.query") == query


@pytest.mark.parametrize(
    "shares, filled, word",
    [
        ((0.6, 0.3, 0.1), 1.0, "steps: 60"),
        ((0.2, 0.5, 0.3), 1.0, "people in a step: their choice is 50"),
        ((0.1, 0.1, 0.8), 0.9, "people and epsilon: noise is 80"),
        ((0.1, 0.1, 0.8), 0.7, "images: 30"),
    ],
)
def test_what_limits_is_named_with_its_share(shares, filled, word):
  assert propose.limit({"shares": shares, "filled": filled}).startswith(word)
