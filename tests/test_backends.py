"""Every core is a device, from Python too, and who is too late hears of it."""

import os

import jax
import numpy as np
import pytest

from episodic_dp import backends
from episodic_dp import training
from tests import processes

_CORES = 3  # The number of cores that the processes below see.
# Arguments: "compute" before the library does, "host" to leave the images there
# as well.
_SCRIPT = f"""
import os
os.sched_getaffinity = lambda _: range({_CORES})
import dataclasses, sys
import jax
import numpy as np
import optax
if "compute" in sys.argv:
  jax.random.key(0)
from episodic_dp import data, learners, models, plan, private

classes = np.arange(30) % 3
train = data.ArrayDataset(
    name="random",
    images=np.random.default_rng(0).integers(0, 256, (30, 4, 4, 1), np.uint8),
    hierarchy=plan.Hierarchy.regular((30,), levels=("image",)),
    labels=classes,
)
release = plan.Release(
    train.hierarchy,
    plan.SamplingPlan((plan.Poisson(0.5),)),
    plan.Mechanism(clip_unit="image", noise_multiplier=1.0),
)
model = models.Model(
    lambda key: jax.random.normal(key, (16, 3)),
    lambda params, images: images.reshape(len(images), -1) @ params,
    mixes_examples=False,
)
learner, optimizer = learners.Supervised(model), optax.sgd(1.0)

def parameters(train):
  step = private.make_meta_step(learner, optimizer, train, release)
  state = private.init(
      private.secret_key(bytes(8)), learner, optimizer, release.mechanism
  )
  return step(state)[0].params

found = parameters(train)
print(len(found.devices()))
private.make_meta_step(learner, optimizer, train, release)  # Warns once.
if "host" in sys.argv:
  train = dataclasses.replace(train, resident=False)
  streamed = parameters(train)
  assert streamed.devices() == found.devices()
  assert np.array_equal(streamed, found)
"""


def run(*words):
  """The devices that a fresh process stepped on, and its warnings."""
  done = processes.python(
      "-c", _SCRIPT, *words, JAX_PLATFORMS="cpu", XLA_FLAGS="",
      JAX_DISABLE_MOST_OPTIMIZATIONS="1",
  )
  assert done.returncode == 0, done.stderr
  reported = [s for s in done.stderr.splitlines() if "use_all_cores" in s]
  return int(done.stdout), reported


@pytest.mark.slow  # A separate process, which compiles two steps.
def test_a_script_uses_all_cores_unasked_for_data_on_the_host_too():
  assert run("host") == (_CORES, [])


@pytest.mark.slow
def test_who_computed_before_is_told_once_what_to_call():
  devices, reported = run("compute")
  assert devices == 1 and len(reported) == 1
  assert "call episodic_dp.use_all_cores() before anything else" in reported[0]
  assert "private.Compute(mesh=None)" in reported[0]


def test_an_initialisation_has_the_same_bits_alone_and_within_a_program():
  key = jax.random.key(3)
  init = backends.jit_init(
      lambda key: jax.random.truncated_normal(key, -2, 2, (5,))
  )
  alone = np.asarray(init(key))
  for within in (
      jax.jit(init)(key),
      jax.jit(lambda: init(key))(),
      jax.jit(lambda: init(jax.random.key(3)))(),
      jax.vmap(init)(key[None])[0],
  ):
    assert np.array_equal(within, alone)
  assert jax.eval_shape(init, key).shape == (5,)


class Config:
  """The settings of JAX before it has begun, or after."""

  def __init__(self, count, begun=False):
    self.values = {"jax_num_cpu_devices": count}
    self.asked = []
    self._begun = begun

  def update(self, name, value):
    if self._begun:
      raise RuntimeError("before backends are initialized")
    self.asked.append((name, value))


@pytest.fixture
def pretend(monkeypatch):
  """pretend(cores, Config, flags) -> that Config, in place of JAX's."""

  def start(cores, config, flags=""):
    monkeypatch.setattr(jax, "config", config)
    backends.warn_of_idle_cores.cache_clear()
    monkeypatch.setenv("XLA_FLAGS", flags)
    monkeypatch.setattr(
        os, "sched_getaffinity", lambda _: range(cores), raising=False
    )
    return config

  return start


@pytest.mark.parametrize(
    ("cores", "given", "flags", "asked"),
    [
        (2, -1, "", [2]),
        (64, -1, "", [8]),  # More are not tested.
        (4, 3, "", []),
        (4, -1, "--xla_force_host_platform_device_count=2", []),
    ],
)
def test_every_core_is_a_device_unless_told_otherwise(
    cores, given, flags, asked, pretend
):
  config = pretend(cores, Config(given), flags)
  assert backends.ask_for_cores()
  assert config.asked == [("jax_num_cpu_devices", count) for count in asked]


@pytest.mark.parametrize(
    ("cores", "backend"), [(1, "cpu"), (4, "gpu"), (4, "cpu")]
)
def test_only_idle_cores_are_warned_of(
    cores, backend, pretend, monkeypatch, caplog
):
  pretend(cores, Config(-1, begun=True))
  monkeypatch.setattr(jax, "default_backend", lambda: backend)
  for _ in range(2):
    training.make_mesh()
  assert len(caplog.records) == (cores > 1 and backend == "cpu")


@pytest.mark.parametrize(
    "gibibytes,tasks", [(None, 32), (1, 1), (16, 8), (79, 32), (1000, 64)]
)
def test_an_accelerator_takes_as_many_tasks_as_its_memory_holds(
    monkeypatch, gibibytes, tasks
):
  class Device:
    def memory_stats(self):
      return gibibytes and {"bytes_limit": gibibytes * 2**30}

  monkeypatch.setattr(backends, "name", lambda: "gpu")
  monkeypatch.setattr(jax, "local_devices", lambda: [Device()])
  chosen = backends.choices()
  assert chosen.microbatch_size == tasks
  assert not chosen.own_forms and chosen.compiler_options is None
