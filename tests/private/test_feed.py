"""Data that stay on the host train to the same bits as data on the device."""

import threading

import jax
import numpy as np
import optax
import pytest

from episodic_dp import errors
from episodic_dp import plan
from episodic_dp import training

ADAM = optax.adam(0.05)
SGD = optax.sgd(0.05)
TASK_BYTES = 3 * 2 * 16  # way, shot + query, 4 x 4 pixels


def on_host(run, images=None):
  """The same run with its images on the host."""
  parts = vars(run.dataset) | {"resident": False}
  if images is not None:
    parts["images"] = images
  return run._replace(dataset=type(run.dataset)(**parts))


def go(step, state, steps):
  """Parameters and metrics after each step."""
  found = []
  for _ in range(steps):
    state, metrics = step(state)
    found.append(jax.device_get((state.params, metrics)))
  return state, found


def same_bits(left, right):
  assert jax.tree.structure(left) == jax.tree.structure(right)
  for a, b in zip(jax.tree.leaves(left), jax.tree.leaves(right)):
    np.testing.assert_array_equal(a, b, strict=True)


def test_steps_of_one_chunk_give_the_same_bits(quick_run, tmp_path):
  """A fixed number of tasks, from a mapped file."""
  run = quick_run(stage=plan.FixedSize(5))
  np.save(tmp_path / "images.npy", run.dataset.images)
  mapped = np.load(tmp_path / "images.npy", mmap_mode="r")
  _, expected = go(run.step(ADAM, microbatch_size=8), run.init(ADAM), 4)
  step = on_host(run, mapped).step(ADAM, microbatch_size=8)
  _, found = go(step, run.init(ADAM), 4)
  same_bits(found, expected)


def test_a_mesh_of_one_device_gives_the_bits_of_resident_data(quick_run):
  """Every task a block of its own; where one step takes over from another."""
  run = quick_run(stage=plan.Poisson(0.6))
  compute = {"microbatch_size": 1, "mesh": training.make_mesh(1)}
  _, expected = go(run.step(ADAM, **compute), run.init(ADAM), 3)
  step = on_host(run).step(ADAM, **compute, block_bytes=1)
  state, found = go(step, run.init(ADAM), 1)
  key = jax.random.wrap_key_data(np.asarray(jax.random.key_data(state.key)))
  state = jax.tree.map(np.asarray, state._replace(key=()))._replace(key=key)
  found += go(step, state, 2)[1]
  same_bits(found, expected)


class Watched(np.ndarray):
  """Images that note who gathers, and how much."""

  taken: list
  fail: Exception | None = None

  def take(self, rows, axis, out, mode):
    self.taken.append((threading.current_thread().name, len(rows)))
    if self.fail is not None:
      raise self.fail
    return np.asarray(self).take(rows, axis=axis, out=out, mode=mode)


@pytest.fixture
def watched(quick_run):
  run = quick_run(stage=plan.Poisson(0.4))
  images = run.dataset.images.view(Watched)
  images.taken = []
  return on_host(run, images), images


def test_only_what_is_drawn_is_gathered_and_ahead_of_the_step(watched):
  run, images = watched
  step, state = run.step(ADAM, diagnostics=True), run.init(ADAM)
  drawn = []
  for _ in range(6):
    state, metrics = step(state)
    drawn.append(int(metrics["private/tasks"]))
  # After six steps the seventh is being prepared, by the same thread.
  step._next[2].result()
  assert [size for _, size in images.taken[:6]] == [6 * n for n in drawn]
  assert len(images.taken) == 7
  assert all(name.startswith("gather") for name, _ in images.taken)


def test_errors_of_the_thread_are_one_sentence_without_rows(watched):
  run, images = watched
  step, state = run.step(ADAM), run.init(ADAM)
  for error, text in (
      (MemoryError("row 12345"), "MemoryError"),
      (OSError(5, "Input/output error", "12345"), "Input/output error"),
  ):
    images.fail = None
    state, _ = step(state)
    step._next[2].result()
    images.fail = error
    state, _ = step(state)  # It was gathered before the failure.
    with pytest.raises(errors.RunError, match=text) as caught:
      step(state)
    assert "12345" not in str(caught.value)
    assert caught.value.__suppress_context__
  # The state was not consumed: the step can be taken again.
  images.fail = None
  assert int(step(state)[0].step) == 5
