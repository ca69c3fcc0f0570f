"""The proposals for a budget: never past the epsilon, best by their score."""

import dataclasses
import re
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from episodic_dp import accounting
from episodic_dp import errors
from episodic_dp import plan as plan_lib
from episodic_dp import training
from episodic_dp.analysis import propose
from episodic_dp.config import RunConfig
from episodic_dp.config.presets import glyphs

EPSILON, BUDGET = 1.0, 20_000


def measured_of(squared, parameters=2000):
  """Public tasks whose gradients agree this well, with norms of 1 to 2."""
  return 2 * (propose.Alignment(
      squared=squared, norms=np.linspace(1, 2, 101), parameters=parameters
  ),)


def rows_of(config, budget=BUDGET):
  return propose.make_rows(
      config, measured_of(0.02), budget=budget, clip_norm=1.0, epsilon=EPSILON,
      level="participant",
  )


CONFIG = RunConfig.parse(glyphs.get_config())


@pytest.fixture(scope="module")
def rows():
  return rows_of(CONFIG)


def test_no_row_passes_the_epsilon_by_the_accountants_own_check(rows):
  assert len(rows) >= 3
  for row in rows:
    config = CONFIG.with_changes(row["changes"])
    found = accounting.guarantee(
        config.release, steps=config.steps, delta=1e-5, level="participant",
    ).epsilon
    assert 0.98 * EPSILON < found <= EPSILON
    assert found == row["epsilon"]
    noise = config.release.mechanism.noise_multiplier
    assert noise == row["noise_multiplier"]
    assert 0.9 * BUDGET < row["steps"] * row["tasks"] <= BUDGET * 1.001


def test_the_best_row_is_chosen_and_its_flags_are_given(rows):
  found = propose.choose(rows)
  scores = [row["effective_steps"] for row in rows]
  best = scores.index(max(scores))
  assert 0 < best < len(rows) - 1
  assert [row["chosen"] for row in found["rows"]].index(True) == best
  row = rows[best]
  assert found["flags"] == [
      f"--config.plan.stages=\"('Poisson({row['tasks'] / 8000:g})',"
      " 'FixedSize(5)', 'FixedSize(3)')\"",
      f"--config.steps={row['steps']}",
      f"--config.mechanism.noise_multiplier={row['noise_multiplier']}",
      "--config.mechanism.clip_norm=1.0",
  ]


def test_a_private_quantile_takes_its_part_of_the_noise(rows):
  source = glyphs.get_config()
  source.mechanism.update(dict(
      clipping="private_quantile", clip_quantile=0.5, clip_rate=0.2,
      count_noise=10.0,
  ))
  plain = {row["tasks"]: row for row in rows}
  adaptive = {row["tasks"]: row for row in rows_of(RunConfig.parse(source))}
  both = plain.keys() & adaptive.keys()
  assert both
  for tasks in both:
    one, other = plain[tasks], adaptive[tasks]
    assert other["noise_multiplier"] == one["noise_multiplier"]
    assert 0.8 < other["signal_share"] / one["signal_share"] < 1


@pytest.mark.parametrize(
    "change, error, part",
    [
        ({"mechanism.clip_by": "layer"}, errors.PlanError, "clip_by=global"),
        ({"plan.stages": ("All()", "FixedSize(5)", "FixedSize(3)")},
         errors.PlanError, "first stage All()"),
        ({"mechanism.clipping": "percentile_window",
          "mechanism.clip_percentile": 90.0, "mechanism.clip_window": 320},
         errors.UnsoundPlanError, "raw"),
    ],
)
def test_plans_that_cannot_be_compared_are_refused(change, error, part):
  config = RunConfig.parse(glyphs.get_config()).with_changes(change)
  with pytest.raises(error, match=re.escape(part)):
    propose.check(config)
    rows_of(config)


def test_the_share_of_signal_against_simulated_noised_means():
  rng = np.random.default_rng(0)
  d, tasks, z, clip_norm = 50, 20, 1.5, 2.0
  signal = np.zeros(d)
  signal[0] = 1.0
  # Directions and lengths are independent.
  units = signal + rng.normal(size=(4000, d)) * 0.3
  units /= np.linalg.norm(units, axis=1, keepdims=True)
  norms = rng.uniform(0.5, 4.0, size=4000)
  found = propose.align(units.sum(0), norms)
  clipped = units * np.minimum(norms, clip_norm)[:, None] / clip_norm
  drawn = rng.integers(0, 4000, size=(6000, tasks))
  means = clipped[drawn].mean(1) + z / tasks * rng.normal(size=(6000, d))
  share = np.square(means.mean(0)).sum() / np.square(means).sum(1).mean()
  assert propose.signal_share(
      [found], clip_norm=clip_norm, tasks=tasks, noise_multiplier=z
  ) == pytest.approx(share, rel=0.05)


@pytest.mark.parametrize("s", [0.0, 0.3, 0.9])
def test_the_alignment_of_a_learner_that_is_known(s):
  """Its gradient is a common direction, and one of the task's own images."""
  n, side = 256, 10
  rng = np.random.default_rng(1)
  images = rng.normal(size=(2 * n, side, side, 1)).astype(np.float32)
  common = np.full(side * side, 1 / side, np.float32)

  def meta_gradient(params, episode):
    own = episode.support.images.ravel()
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
  params = {"w": jnp.zeros(side * side)}
  sums, norms = propose.task_gradients(learner)(tasks, params)
  found = propose.align(sums[0], norms)
  assert found.parameters == side * side and len(found.norms) == n
  assert found.squared == pytest.approx(s**2, abs=0.02)
  np.testing.assert_allclose(sums[1] / n, 3 * (s * common), atol=0.15)


def test_the_clip_norm_is_below_nine_norms_of_ten():
  first, second = measured_of(0.02)
  assert propose.clip_norm(first, second) == 1.1
  nothing = dataclasses.replace(first, squared=0.0)
  with pytest.raises(errors.PlanError, match="do not agree"):
    propose.clip_norm(first, nothing)
