"""Tasks over many devices, and data on the host: the same sums and bits."""

import dataclasses
import json
import pathlib
import threading

import jax
import numpy as np
import optax
import pytest

from episodic_dp import training
from episodic_dp.private import meta_step
from tests import processes
from tests.refusals import assert_refused

_SCRIPT = pathlib.Path(__file__).with_name("on_many_devices.py")


def run_script(*arguments):
  """Return the output of the script on eight forced host devices."""
  flags = (
      "--xla_force_host_platform_device_count=8"
      " --xla_backend_optimization_level=0"  # Compiles faster.
  )
  return json.loads(processes.printed(
      _SCRIPT, *arguments, timeout=None, XLA_FLAGS=flags, JAX_PLATFORMS="cpu"
  ))


@pytest.mark.slow
def test_all_kinds_of_steps_on_many_devices():
  found = run_script("steps")
  assert len(found) == 7
  assert found["fixed"]["devices"].keys() == {"1", "2", "4", "8"}
  assert found["fixed"]["devices"]["1"]["params"] == 0  # The same bits.
  for name, case in found.items():
    for devices, gave in case["devices"].items():
      assert gave["params"] < 1e-6, (name, devices)
      assert gave["facts"] < 1e-5, (name, devices)
      np.testing.assert_allclose(*gave["clip"], rtol=1e-5, err_msg=name)
    assert case["tasks"] > 3, name
  sums = run_script("sums", "1", "2", "4", "8")
  planted = sums.pop("planted")
  for count, gave in sums.items():
    assert gave["sum"] < 1e-6, count
    assert gave["move"] <= 2 * (1 + 1e-5), count
  # What would sum gradients before they are clipped breaks the bound itself.
  assert planted["move"] > 2 * (1 + 1e-5)


def test_more_devices_than_there_are_is_refused():
  assert_refused(training.RunError, "devices=99", training.make_mesh, 99)


# Data that stay on the host ---------------------------------------------------

ADAM = optax.adam(0.05)


def on_host(run, images=None):
  """The same run with its images on the host."""
  images = run.dataset.images if images is None else images
  changed = dataclasses.replace(run.dataset, resident=False, images=images)
  return run._replace(dataset=changed)


def go(step, state, steps):
  """Parameters and metrics after each step."""
  found = []
  for _ in range(steps):
    state, metrics = step(state)
    found.append(jax.device_get((state.params, metrics)))
  return state, found


def same_bits(left, right):
  jax.tree.map(
      lambda a, b: np.testing.assert_array_equal(a, b, strict=True), left, right
  )


@pytest.mark.slow
def test_steps_of_one_chunk_give_the_same_bits(quick_run, tmp_path):
  """A fixed number of tasks, from a mapped file."""
  run = quick_run(stage=5)
  np.save(tmp_path / "images.npy", run.dataset.images)
  mapped = np.load(tmp_path / "images.npy", mmap_mode="r")
  _, expected = go(run.step(ADAM, microbatch_size=8), run.init(ADAM), 4)
  step = on_host(run, mapped).step(ADAM, microbatch_size=8)
  _, found = go(step, run.init(ADAM), 4)
  same_bits(found, expected)


def test_a_mesh_of_one_device_gives_the_bits_of_resident_data(
    quick_run, monkeypatch
):
  """Give every task a separate block; where one step follows another."""
  run = quick_run(stage=0.6)
  compute = {"microbatch_size": 1, "mesh": training.make_mesh(1)}
  _, expected = go(run.step(ADAM, **compute), run.init(ADAM), 3)
  monkeypatch.setattr(meta_step, "BLOCK_BYTES", 1)
  step = on_host(run).step(ADAM, **compute)
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
  run = quick_run(stage=0.4)
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


def test_a_step_whose_images_cannot_be_read_can_be_taken_again(watched):
  run, images = watched
  step, state = run.step(ADAM), run.init(ADAM)
  state, _ = step(state)
  step._next[2].result()
  images.fail = OSError(5, "Input/output error")
  state, _ = step(state)  # It was gathered before the failure.
  with pytest.raises(OSError):
    step(state)
  images.fail = None
  assert int(step(state)[0].step) == 3


@pytest.mark.slow
def test_compiling_takes_no_step(quick_run):
  run = on_host(quick_run(stage=5))
  step, state = run.step(ADAM), run.init(ADAM)
  _, expected = go(step, run.init(ADAM), 2)
  step = run.step(ADAM)
  step.compile(state)
  _, found = go(step, state, 2)
  same_bits(found, expected)
