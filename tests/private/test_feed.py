"""Data that stay on the host train to the same bits as data on the device."""

import threading

import jax
import numpy as np
import optax
import pytest

from episodic_dp import errors
from episodic_dp import plan
from episodic_dp import training
from episodic_dp.private import meta_step

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


def test_data_may_be_larger_than_all_memory(quick_run, tmp_path):
  """29 GB of holes, which would take minutes to read and not fit."""
  hierarchy = plan.Hierarchy.regular(
      (200_000_000, 3, 3), levels=("participant", "class", "image")
  )
  path = tmp_path / "images.npy"
  np.lib.format.open_memmap(
      path, "w+", np.uint8, (hierarchy.num_leaves, 4, 4, 1)
  )
  assert path.stat().st_size > 28e9
  mapped = np.load(path, mmap_mode="r")
  run = on_host(quick_run(stage=plan.FixedSize(5)), mapped)
  run.dataset.hierarchy = hierarchy
  state, _ = go(run.step(ADAM), run.init(ADAM), 2)
  assert int(state.step) == 2
  assert path.stat().st_blocks * 512 < 1e6  # Nothing was written either.
  path.unlink()


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


@pytest.mark.parametrize(
    "block,tasks", [(1, 2), (5 * TASK_BYTES, 4), (2**30, 8)]
)
def test_a_block_is_some_chunks_and_within_its_bytes(watched, block, tasks):
  run, _ = watched
  step = run.step(ADAM, microbatch_size=2, block_bytes=block)
  assert step._task == [3, 2] and step._size == tasks
  *_, last = step._gather(
      np.zeros((7, 3, 2), int), np.ones(7, bool), 7, 7 - 7 % tasks
  )
  assert last.images.shape == (tasks * 6, 4, 4, 1)
  assert last.mask.tolist() == [i < 7 % tasks for i in range(tasks)]


def test_images_that_do_not_fit_point_to_the_host():
  def full(array):
    del array
    raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory")

  with pytest.raises(plan.PlanError) as e:
    meta_step._on_device(np.zeros((2, 4, 4, 1), np.uint8), full)
  assert "do not fit" in str(e.value) and "resident=False" in str(e.value)
