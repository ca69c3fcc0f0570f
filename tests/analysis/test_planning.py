"""What is proposed for a budget: never past the epsilon, best by its score."""

import dataclasses
import json
import re
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from episodic_dp import accounting
from episodic_dp import plan as plan_lib
from episodic_dp.analysis import alignment
from episodic_dp.analysis import plan_report
from episodic_dp.analysis import planning
from episodic_dp.analysis import public_proxy
from episodic_dp.config import RunConfig
from episodic_dp.config.presets import glyphs
from episodic_dp.training import evaluation

EPSILON, BUDGET = 1.0, 20_000


def measured_of(squared, parameters=2000):
  """Public tasks whose gradients agree so well, with norms of 1 to 2."""
  found = alignment.Alignment(
      squared=squared, error=0.001, norms=np.linspace(1, 2, 101),
      parameters=parameters,
  )  # fmt: skip
  return public_proxy.Measured(
      proxy="glyphs", tasks=256, start=found, warm=found, warm_steps=10,
      seconds_per_task=0.003,
  )  # fmt: skip


def problem_of(measured, **changes):
  values = dict(
      config=RunConfig.parse(glyphs.get_config()), epsilon=EPSILON, delta=1e-5,
      level="participant", clip_norm=1.0, gradient=measured.clipped(1.0),
  )  # fmt: skip
  return planning.Problem(**values | changes)


@pytest.fixture(scope="module")
def proposal():
  measured = measured_of(0.02)
  return plan_report.solve(problem_of(measured), measured, tasks=BUDGET)


def test_no_row_passes_the_epsilon_by_the_accountants_own_check(proposal):
  assert len(proposal.rows) >= 4
  for row in proposal.rows:
    found = accounting.guarantee(
        row.config.release, steps=row.config.steps, delta=1e-5,
        level="participant",
    ).epsilon  # fmt: skip
    assert 0.98 * EPSILON < found <= EPSILON
    assert found == row.epsilon
    assert row.config.release.mechanism.noise_multiplier == row.noise_multiplier
    assert 0.9 * BUDGET < row.steps * row.tasks <= BUDGET * 1.001


def test_larger_steps_need_more_noise_and_are_clearer(proposal):
  for name in ("tasks", "noise_multiplier", "share", "signal_to_noise"):
    values = [getattr(row, name) for row in proposal.rows]
    assert values == sorted(values)


def test_the_choice_is_the_best_and_lies_inside(proposal):
  scores = [row.score for row in proposal.rows]
  assert proposal.choice.score == max(scores)
  assert 0 < scores.index(max(scores)) < len(scores) - 1
  # At the best the noise is about as large as the signal, or twice as large
  # where it grows with the tasks of a step.
  assert 0.3 < proposal.choice.signal_to_noise < 2


def test_the_flags_are_the_row(proposal):
  row = proposal.choice
  rate = row.tasks / 8000
  assert row.flags == [
      f"--config.plan.stages=\"('Poisson({rate:g})', 'FixedSize(5)',"
      " 'FixedSize(3)')\"",
      f"--config.steps={row.steps}",
      f"--config.mechanism.noise_multiplier={row.noise_multiplier}",
      "--config.mechanism.clip_norm=1.0",
  ]


def test_the_report_marks_one_row_and_says_what_was_read(proposal):
  text = proposal.table()
  assert text.count("chosen") == 1
  assert f"Chosen: {proposal.choice.tasks:g} tasks a step" in text
  assert "private data were not used" in text and "least epsilon" not in text
  found = json.loads(json.dumps(proposal.as_dict(), allow_nan=False))
  (chosen,) = (row for row in found["rows"] if row["chosen"])
  assert chosen["flags"] == found["flags"] == proposal.choice.flags
  assert chosen["minutes"] == pytest.approx(
      proposal.choice.steps * proposal.choice.tasks * 0.003 / 60
  )


def test_minutes_are_tasks_by_the_clock():
  measured = measured_of(0.02)
  found = plan_report.solve(problem_of(measured), measured, minutes=0.5)
  assert 9_000 < found.choice.steps * found.choice.tasks <= 10_000


def test_too_little_signal_is_said_with_an_epsilon_that_has_enough():
  measured = measured_of(0.0005)
  problem = problem_of(measured)
  row = problem.row(1000, 20)
  assert row.score < planning.LEAST_SCORE
  least = problem.least_epsilon([row], planning.LEAST_SCORE)
  assert least > EPSILON
  enough = dataclasses.replace(problem, epsilon=least).row(1000, 20)
  assert enough.score == pytest.approx(planning.LEAST_SCORE, rel=0.03)
  text = plan_report.Proposal(
      problem=problem, measured=measured, rows=[row], choice=row,
      least_epsilon=least,
  ).table()  # fmt: skip
  assert "the least epsilon with which one of these rows has so many is" in text
  # Five steps of two are more than two steps can be worth.
  assert problem.least_epsilon([dataclasses.replace(row, steps=2)], 5.0) is None


@pytest.mark.slow  # Hundreds of questions to the accountant.
def test_fewer_tasks_are_taken_where_more_buy_nothing():
  # Of 60 participants no step is clear: noise grows as fast as steps add up.
  config = RunConfig.parse(glyphs.get_config("participants=60,rate=0.1"))
  measured = measured_of(0.01)
  rows, best = problem_of(measured, config=config).choose(1200)
  assert best.steps * best.tasks <= 600 and best in rows
  most = max(rows, key=lambda row: row.steps * row.tasks)
  assert most.score < best.score / 0.85


def test_a_private_quantile_takes_its_part_of_the_noise():
  source = glyphs.get_config()
  source.mechanism.update(
      dict(clipping="private_quantile", clip_quantile=0.5, clip_rate=0.2,
           count_noise=10.0)
  )  # fmt: skip
  measured = measured_of(0.02)
  plain = problem_of(measured).row(200, 100)
  adaptive = problem_of(measured, config=RunConfig.parse(source)).row(200, 100)
  assert adaptive.noise_multiplier == plain.noise_multiplier
  assert 0.9 * plain.share < adaptive.share < plain.share


@pytest.mark.parametrize(
    "change, error, part",
    [
        ({"mechanism.clip_by": "layer"}, plan_lib.PlanError, "clip_by=global"),
        ({"plan.stages": ("All()", "FixedSize(5)", "FixedSize(3)")},
         plan_lib.PlanError, "All() has no number of tasks"),
        ({"mechanism.clipping": "percentile_window",
          "mechanism.clip_percentile": 90.0, "mechanism.clip_window": 320},
         plan_lib.UnsoundPlanError, "raw"),
    ],
)  # fmt: skip
def test_what_cannot_be_compared_is_refused(change, error, part):
  config = RunConfig.parse(glyphs.get_config()).with_changes(change)
  with pytest.raises(error, match=re.escape(part)):
    planning.check(config)
    problem_of(measured_of(0.02), config=config).rows(BUDGET)


def test_the_share_of_signal_is_what_noised_means_have():
  rng = np.random.default_rng(0)
  d, tasks, z, clip_norm = 50, 20, 1.5, 2.0
  signal = np.zeros(d)
  signal[0] = 1.0
  # Directions and lengths that have nothing to do with one another.
  units = signal + rng.normal(size=(4000, d)) * 0.3
  units /= np.linalg.norm(units, axis=1, keepdims=True)
  norms = rng.uniform(0.5, 4.0, size=4000)
  total = units.sum(0)
  found = alignment.of_sums(total[None], np.asarray([4000]), norms)
  clipped = units * np.minimum(norms, clip_norm)[:, None] / clip_norm
  drawn = rng.integers(0, 4000, size=(6000, tasks))
  means = clipped[drawn].mean(1) + z / tasks * rng.normal(size=(6000, d))
  share = np.square(means.mean(0)).sum() / np.square(means).sum(1).mean()
  claimed = found.clipped(clip_norm).share(tasks, z)
  assert claimed == pytest.approx(share, rel=0.05)


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
  learner.at_step = lambda step: learner
  gradients = alignment.Gradients(
      learner,
      evaluation.Tasks(
          images=images,
          rows=np.arange(2 * n).reshape(n, 1, 2),
          keys=jax.random.split(jax.random.key(0), n),
          episode=plan_lib.Episode(way=1, shot=1, query=1),
          targets=0,
      ),
  )
  params = {"w": jnp.zeros(side * side)}
  found = gradients.alignment(params, n, at_once=64)
  assert found.parameters == side * side and len(found.norms) == n
  assert found.squared == pytest.approx(s**2, abs=0.02)
  assert found.error < 0.02
  sums, norms = gradients(params, 0, 64)
  np.testing.assert_allclose(
      sums[:, 1].sum(0) / 64, 3 * (s * common), atol=0.15
  )
  assert norms.shape == (64,)


def test_tasks_without_a_gradient_are_left_out():
  sums = np.asarray([[2.0, 0.0], [1.0, 0.0]])
  found = alignment.of_sums(
      sums, np.asarray([2, 1]), np.asarray([1.0, 0.0, 2.0, 3.0])
  )
  assert found.squared == 1.0 and list(found.norms) == [1.0, 2.0, 3.0]


def test_the_clip_norm_is_below_nine_norms_of_ten():
  first, second = measured_of(0.02).start, measured_of(0.02, 10).start
  assert planning.clip_norm(first, second) == 1.1
  nothing = dataclasses.replace(first, squared=0.0)
  with pytest.raises(plan_lib.PlanError, match="nothing in common"):
    planning.clip_norm(first, nothing)
