"""The whole step: what it equals, what it draws, what it lets out."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy import stats

from episodic_dp import plan
from episodic_dp import private
from episodic_dp import sampling
from episodic_dp.private import keys
from episodic_dp.private import state as state_lib
from tests import fake_dataset
from tests import fake_learner
from tests.task_sums import flat

SGD = optax.sgd(1.0)
_SLOW = pytest.mark.slow  # Another case is among the quick tests.


def plain_training(run, optimizer, state, steps):
  """Non-private MAML by hand: the mean gradient of the same tasks."""
  params, opt_state = state.params, state.opt_state
  expected = plan.tasks_per_step(run.dataset.hierarchy, run.plan)
  for step in range(steps):
    rows, mask = sampling.task_indices(
        *sampling.sample(
            jax.random.fold_in(state.key, keys.SAMPLING),
            run.dataset.hierarchy,
            run.plan,
            step,
        ),
        run.dataset.hierarchy,
        run.plan,
    )
    mask = np.asarray(mask)
    key = keys.step_key(state.key, keys.AUGMENTATION, step)

    def total(params, rows=rows, mask=mask, key=key):
      losses = [
          run.learner.loss(
              params,
              sampling.make_episode(
                  jax.random.fold_in(key, i),
                  jnp.asarray(run.dataset.images)[rows[i]],
                  run.plan.episode,
              ),
          )
          for i in range(len(mask))
          if mask[i]
      ]
      return sum(losses) / expected

    gradient = jax.jit(jax.grad(total))(params)
    updates, opt_state = optimizer.update(gradient, opt_state, params)
    params = optax.apply_updates(params, updates)
  return params


@pytest.mark.parametrize(
    "stage",
    [pytest.param(plan.FixedSize(3), marks=_SLOW), plan.Poisson(0.5)],
)
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
      participants,
      plan.Poisson(rate),
      noise_multiplier=z,
      clip_norm=clip_norm,
  )._replace(learner=fake_learner.Still(1500))
  state, step = run.init(SGD), run.step(SGD, microbatch_size=3)
  before, draws = flat(state.params), []
  for _ in range(steps):
    state, _ = step(state)
    after = flat(state.params)
    draws.append((before - after) * (participants * rate) / (z * clip_norm))
    before = after
  values = np.concatenate(draws)
  low, high = stats.chi2.interval(1 - 1e-6, values.size)
  assert low < np.sum(values**2) < high
  assert stats.kstest(values, "norm").pvalue > 1e-6
  # Fresh at every step.
  correlation = np.corrcoef(draws[0], draws[1])[0, 1]
  assert abs(correlation) < 5 / math.sqrt(draws[0].size)


def test_same_key_and_step_give_the_same_bits(quick_run):
  run = quick_run(8, plan.Poisson(0.5), rotate=True)
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
  run = quick_run(3, plan.Poisson(1e-9))
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
  run = quick_run(8, plan.Poisson(0.4))
  step = run.step(SGD, diagnostics=True, microbatch_size=2)
  state = run.init(SGD)
  state, _ = step(state)
  compiled = []

  def record(event, duration, **kwargs):
    del duration, kwargs
    if "backend_compile" in event:
      compiled.append(event)

  jax.monitoring.register_event_duration_secs_listener(record)
  try:
    counts = set()
    for _ in range(20):
      state, metrics = step(state)
      counts.add(int(np.asarray(metrics["private/tasks"])))
    assert len(counts) > 3
    assert not compiled
    jax.jit(lambda x: x + len(counts))(1.0)
    assert compiled  # The listener does hear compilations.
  finally:
    jax.monitoring.unregister_event_duration_listener(record)


def test_clip_norm_and_noise_are_arguments_of_one_program(make_run):
  texts, moved = set(), []
  for norm, multiplier in ((1e9, 1e-12), (0.25, 1.0), (1e-3, 1e-9)):
    run = make_run(
        6,
        plan.FixedSize(3),
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
      "loss", "accuracy", "clipped", "norm", "tasks", "non_finite",
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
  with pytest.raises(ValueError, match="8 bytes, and data has 3"):
    private.secret_key(b"abc")


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
  for wrong in (-0.1, 1.0):
    with pytest.raises(ValueError, match=f"decay={wrong}"):
      state_lib.averaged(alone, wrong)


@pytest.mark.parametrize(
    "sizes,tasks",
    [
        # One class less, beside another participant: the step is that one's.
        ([[3, 3], [3, 3, 3]], 1),
        # One image too few in the only participant. (Slow: it compiles again.)
        pytest.param([[3, 1, 3]], 0, marks=pytest.mark.slow),
    ],
)
def test_a_task_that_cannot_be_filled_contributes_zero(quick_run, sizes, tasks):
  run = quick_run(participants=1, stage=plan.All(), noise_multiplier=0.0)
  found, moved = _tasks_and_update(_without(run, sizes))
  assert found == [tasks] * 2 and moved == [tasks > 0] * 2


def _without(run, sizes):
  hierarchy = plan.Hierarchy.from_sizes(
      sizes, levels=run.dataset.hierarchy.levels
  )
  shape = (hierarchy.num_leaves, *run.dataset.images.shape[1:])
  images = np.random.default_rng(1).integers(0, 256, shape, np.uint8)
  return run._replace(
      dataset=fake_dataset.FakeDataset(images=images, hierarchy=hierarchy),
      plan=dataclasses.replace(run.plan, allow_short_units=True),
  )


def _tasks_and_update(run):
  """The tasks of two steps, and whether they moved the parameters."""
  optimizer = optax.sgd(0.1)
  step, state = run.step(optimizer, diagnostics=True), run.init(optimizer)
  tasks, moved = [], []
  for _ in range(2):
    state, metrics = step(state)
    tasks.append(int(metrics["private/tasks"]))
    moved.append(float(metrics["update_norm"]) > 0)
  return tasks, moved
