"""The whole step: what it equals, what it draws, what it lets out."""

import dataclasses
import math

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
from episodic_dp.private import keys
from episodic_dp.private import state as state_lib
from episodic_dp.private import step as step_lib
from tests import fake_dataset
from tests import fake_learner
from tests import frequencies
from tests import plans
from tests import task_sums
from tests.refusals import assert_refused
from tests.task_sums import flat

SGD = optax.sgd(1.0)


def plain_training(run, optimizer, state, steps):
  """Non-private MAML by hand: the mean gradient of the same tasks."""
  params, opt_state = state.params, state.opt_state
  expected = plan.tasks_per_step(run.dataset.hierarchy, run.plan)
  of_task = jax.jit(jax.grad(run.learner.loss))
  for step in range(steps):
    tasks = task_sums.drawn(state.key, run.dataset, run.plan, step)
    gradients = [of_task(params, task) for task in tasks.values()]
    gradient = jax.tree.map(lambda *g: sum(g) / expected, *gradients)
    updates, opt_state = optimizer.update(gradient, opt_state, params)
    params = optax.apply_updates(params, updates)
  return params


@pytest.mark.parametrize("stage", [0.5, 3])
@pytest.mark.few(1)
def test_without_clipping_and_noise_it_is_plain_training(make_run, stage):
  run = make_run(6, stage, clip_norm=math.inf, noise_multiplier=0.0)
  optimizer = optax.adam(1e-2)
  state = run.init(optimizer)
  expected = plain_training(run, optimizer, run.init(optimizer), 2)
  step = run.step(optimizer, microbatch_size=2)
  for _ in range(2):
    state, _ = step(state)
  np.testing.assert_allclose(flat(state.params), flat(expected), atol=2e-6)


def test_noise_has_the_announced_spread(make_run):
  """z C per coordinate of the sum, over the public number of tasks."""
  participants, rate, z, clip_norm, steps = 8, 0.3, 1.7, 0.5, 3
  run = make_run(
      participants, rate, noise_multiplier=z, clip_norm=clip_norm
  )._replace(learner=fake_learner.Still(1500))
  state, step = run.init(SGD), run.step(SGD, microbatch_size=3)
  before, draws = flat(state.params), []
  for _ in range(steps):
    state, _ = step(state)
    after = flat(state.params)
    draws.append((before - after) * (participants * rate) / (z * clip_norm))
    before = after
  frequencies.check_normal(draws)
  frequencies.check_unrelated(*draws)  # Fresh at every step.


def test_same_key_and_step_give_the_same_bits(quick_run):
  run = quick_run(8, 0.5, rotate=True)
  step = run.step(SGD)
  first, _ = step(run.init(SGD))
  first = jax.tree.map(np.asarray, first._replace(key=None))
  again, _ = run.step(SGD)(run.init(SGD))
  np.testing.assert_array_equal(flat(first.params), flat(again.params))
  other, _ = step(run.init(SGD, seed=8, params=run.init(SGD).params))
  assert not np.array_equal(flat(first.params), flat(other.params))
  # A resumed run: the state is all that a step depends on.
  second, _ = step(again)
  resumed = run.init(SGD, params=first.params)._replace(
      step=jnp.asarray(1, jnp.int32)
  )
  resumed, _ = step(resumed)
  np.testing.assert_array_equal(flat(second.params), flat(resumed.params))


def test_an_empty_draw_releases_noise(quick_run):
  run = quick_run(3, 1e-9)
  start = flat(run.init(SGD).params)
  for z, moves in ((1.0, True), (0.0, False)):
    noisy = run._replace(
        mechanism=dataclasses.replace(run.mechanism, noise_multiplier=z)
    )
    state, metrics = noisy.step(SGD, diagnostics=True)(run.init(SGD))
    assert metrics["private/tasks"] == 0
    assert all(np.isfinite(value) for value in metrics.values())
    assert (not np.array_equal(flat(state.params), start)) == moves
    assert state.step == 1


def test_poisson_counts_do_not_recompile(quick_run):
  run = quick_run(8, 0.4)
  step = run.step(SGD, diagnostics=True, microbatch_size=2)
  state = run.init(SGD)
  state, _ = step(state)
  counts = set()
  for _ in range(20):
    state, metrics = step(state)
    counts.add(int(np.asarray(metrics["private/tasks"])))
  assert len(counts) > 3
  assert step._update._cache_size() == 1


@pytest.mark.slow
def test_clip_norm_and_noise_are_arguments_of_one_program(make_run):
  texts, moved = set(), []
  for norm, multiplier in ((1e9, 1e-12), (0.25, 1.0), (1e-3, 1e-9)):
    run = make_run(
        6,
        3,
        clip_norm=norm,
        noise_multiplier=multiplier,
        clip_by="layer",
    )
    step, state = run.step(SGD, mesh=None), run.init(SGD)
    before = flat(state.params)
    texts.add(step._update.lower(state, *step._data).as_text())
    state, _ = step(state)
    moved.append(np.linalg.norm(flat(state.params) - before))
  assert len(texts) == 1
  assert 0 < moved[2] <= 1e-3 < min(moved[:2])


def test_only_asked_for_metrics_leave_the_step(quick_run):
  run = quick_run()
  quiet, metrics = run.step(SGD)(run.init(SGD))
  assert set(metrics) == {"step", "update_norm"}
  state = run.init(SGD)
  before = flat(state.params)
  state, metrics = run.step(SGD, diagnostics=True)(state)
  public = {name for name in metrics if not name.startswith("private/")}
  assert public == {"step", "update_norm"}
  assert {name.removeprefix("private/") for name in set(metrics) - public} == {
      "loss", "clipped", "norm", "tasks", "non_finite",
  }
  after = flat(state.params)
  np.testing.assert_allclose(after, flat(quiet.params), rtol=1e-5, atol=1e-6)
  moved = np.linalg.norm(after - before)
  np.testing.assert_allclose(metrics["update_norm"], moved, rtol=1e-4)
  assert metrics["step"] == state.step == 1


def test_a_state_shows_no_key_and_no_norm_of_a_task(quick_run):
  run = quick_run(
      clipping="percentile_window", clip_percentile=50.0, clip_window=4
  )
  state = run.init(optax.sgd(0.1), seed=123456789)
  words = np.asarray(jax.random.key_data(state.key)).tolist()
  for text in (repr(state), str(state), f"{state}"):
    assert "step=0" in text and "float32[16, 3]" in text
    assert not any(str(word) in text for word in words if word)
    assert "Window" not in text and "norms" not in text


def test_keys_take_all_bits_of_their_bytes_and_differ_when_drawn():
  key = private.secret_key(bytes(range(8)))
  assert jax.random.key_data(key).tolist() == [0x00010203, 0x04050607]
  assert jax.random.key_impl(key) == "threefry2x32"
  drawn = [jax.random.key_data(private.secret_key()) for _ in range(20)]
  assert len(np.unique(drawn, axis=0)) == 20
  assert_refused(ValueError, "data=3 bytes.* 8 ", private.secret_key, b"abc")


@pytest.mark.parametrize("decay", [0.0, 0.5, 0.8, 0.99])
def test_the_average_is_the_plain_mean_first_and_exponential_later(decay):
  optimizer = state_lib.averaged(optax.sgd(0.1, momentum=0.5), decay)
  alone = optax.sgd(0.1, momentum=0.5)
  params = other = jnp.ones(3)
  state, inner = optimizer.init(params), alone.init(params)
  rng, expected = np.random.default_rng(0), 0.0
  for t in range(12):
    gradient = jnp.asarray(rng.normal(size=3), jnp.float32)
    updates, state = optimizer.update(gradient, state, params)
    same, inner = alone.update(gradient, inner, other)
    params, other = params + updates, other + same
    np.testing.assert_array_equal(params, other)
    kept = min(decay, t / (t + 1))
    expected = kept * expected + (1 - kept) * params
    np.testing.assert_allclose(state.average, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "sizes,tasks",
    [
        # Of two participants one lacks a class: the step uses the other.
        ([[3, 3], [3, 3, 3]], 1),
        # One image too few in the only participant.
        ([[3, 1, 3]], 0),
    ],
)
@pytest.mark.few(1)  # The other compiles again.
def test_a_task_that_cannot_be_filled_contributes_zero(quick_run, sizes, tasks):
  run = quick_run(participants=3, stage=plan.All(), noise_multiplier=0.0)
  hierarchy = plans.nested(run.dataset.hierarchy.levels, sizes)
  run = run._replace(
      dataset=fake_dataset.FakeDataset(
          images=run.dataset.images[: hierarchy.num_leaves],
          hierarchy=hierarchy,
      ),
      plan=dataclasses.replace(run.plan, allow_short_units=True),
  )
  step, state = run.step(SGD, diagnostics=True), run.init(SGD)
  for _ in range(2):
    state, metrics = step(state)
    assert metrics["private/tasks"] == tasks
    assert (metrics["update_norm"] > 0) == (tasks > 0)


# The chunked sum against a loop ----------------------------------------------

TASKS = 5
EPISODE = plan.Episode(way=3, shot=1, query=1)
KEY = jax.random.key(3)


@pytest.mark.optimized
@pytest.mark.parametrize("chunk", [8, 2])
@pytest.mark.few(1)
def test_loop_and_chunks_of_every_size_agree(chunk):
  learner = learners.MAML(
      models.Model(
          lambda key: jax.random.normal(key, (256, 3)),
          lambda params, x: x.reshape(len(x), -1) @ params,
      ),
      inner_steps=2,
      inner_rate=0.01,
  )
  params = learner.init(jax.random.key(0))
  images = np.random.default_rng(0).integers(0, 256, (40, 16, 16, 1), np.uint8)
  rows = np.random.default_rng(1).integers(0, 40, (TASKS + 2, 3, 2))
  tasks = step_lib.StepTasks(
      jnp.asarray(images),
      jnp.asarray(rows, jnp.int32),
      jnp.arange(TASKS + 2) < TASKS,
  )
  own = keys.step_key(KEY, keys.AUGMENTATION, 0)

  @jax.jit
  def one(slot):
    images = tasks.images[tasks.rows[slot]]
    task = sampling.make_episode(jax.random.fold_in(own, slot), images, EPISODE)
    return jax.value_and_grad(learner.loss)(params, task)

  losses, norms, expected = [], [], 0.0
  for slot in range(TASKS):
    loss, gradient = one(slot)
    gradient = flat(gradient)
    losses.append(float(loss))
    norms.append(np.linalg.norm(gradient))
    expected += gradient * min(1, 0.5 / norms[-1])
  described = plan.Mechanism(
      clip_unit="task", noise_multiplier=0.0, clip_norm=0.5
  )
  total, facts = jax.jit(
      lambda params, tasks: task_sums.sum_tasks(
          learner, described, params, tasks, KEY,
          episode=EPISODE, microbatch_size=chunk, diagnostics=True,
      )
  )(params, tasks)
  error = np.linalg.norm(flat(total) - expected)
  assert error < 1e-4 * np.linalg.norm(expected)
  np.testing.assert_allclose(facts["private/loss"], np.mean(losses), 1e-4)
  np.testing.assert_allclose(facts["private/norm"], np.mean(norms), 1e-4)
  assert facts["private/tasks"] == TASKS
  assert facts["private/non_finite"] == 0
  np.testing.assert_allclose(
      facts["private/clipped"], np.mean(np.asarray(norms) > 0.5), rtol=1e-6
  )


# Unsound or contradictory settings are refused before anything compiles -------


@pytest.mark.parametrize(
    "changes,text",
    [
        ({"order": "first"}, "order='first' and learner.order='second'"),
        ({"inner_steps": 4}, "inner_steps=4 and learner.inner_steps=2"),
    ],
)
def test_a_learner_that_the_mechanism_does_not_describe(
    make_run, changes, text
):
  assert_refused(plan.PlanError, text, make_run(**changes).step, SGD)


@pytest.mark.parametrize(
    "images,rows,text",
    [
        (30, lambda leaf: leaf, "row 71 of 30 images"),
        (72, lambda leaf: jnp.where(leaf == 41, -1, leaf % 7), "row -1 of"),
    ],
)
def test_rows_outside_the_images_are_named(make_run, images, rows, text):
  run = make_run()
  run.dataset.images, run.dataset.rows = run.dataset.images[:images], rows
  assert_refused(errors.DataError, text, run.step, SGD)


@pytest.mark.parametrize(
    "rows", [lambda leaf: leaf // 2, lambda leaf: leaf % 71]
)
def test_records_that_recur_must_be_called_copies(make_run, rows):
  run = make_run()
  run.dataset.rows = rows
  assert callable(run.step(SGD))  # The hierarchy says that there are copies.
  run.dataset.hierarchy = dataclasses.replace(
      run.dataset.hierarchy, copies=False
  )
  assert_refused(plan.UnsoundPlanError, "are one row", run.step, SGD)
  run.dataset.rows = lambda leaf: leaf
  assert callable(run.step(SGD))


def test_records_recur_no_more_often_than_stated(make_run):
  run = make_run()  # Eight participants of nine leaves.

  def stating(most, rows):
    run.dataset.rows = rows
    run.dataset.hierarchy = dataclasses.replace(
        run.dataset.hierarchy, most_copies=(1, 0, most)
    )
    return run.step

  def shared(leaf):
    return leaf % 18  # Each by every second participant.

  assert callable(stating(4, shared)(SGD))
  for most, rows, text in (
      (3, shared, "row 0 of the images is 4 leaves of 4 such units"),
      (2, lambda leaf: leaf // 2, "row 0 .* is 2 leaves of 1 such units"),
  ):
    step = stating(most, rows)
    assert_refused(plan.UnsoundPlanError, text, step, SGD)
  assert callable(stating(0, shared)(SGD))  # Images have no guarantee.


def test_a_model_of_another_way_is_named(make_run):
  learner = learners.MAML(models.mlp(7, (), (4, 4, 1)))
  with pytest.raises(plan.PlanError, match=r"\(3, 7\).*way=3"):
    make_run()._replace(learner=learner).step(SGD)


@pytest.mark.parametrize(
    "key", [0, jnp.zeros(2, jnp.uint32), np.zeros(2, np.uint32)]
)
def test_keys_must_be_typed(make_run, key):
  run = make_run()
  with pytest.raises(ValueError, match="typed key"):
    private.init(key, run.learner, SGD, run.mechanism)
