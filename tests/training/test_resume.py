"""No step is released twice under one noise, and forks are paid for.

Each run that is refused here went on in the first build, and released a step a
second time, on other data or in another way, under the noise of the first time.
"""

import dataclasses
import json
import os
import platform
import shutil
from unittest import mock

import jax
import numpy as np
import optax
import pytest

from episodic_dp import accounting
from episodic_dp import backends
from episodic_dp import learners
from episodic_dp import private
from episodic_dp import training
from episodic_dp.training import checkpoint
from episodic_dp.training import meta_training
from episodic_dp.training import resume
from episodic_dp.training import settings
from episodic_dp.training import workdir
from tests.refusals import assert_refused
from tests.stored import json_of
from tests.training import tiny_run

STEPS = 6  # The last checkpoint before the end is after step 4.


def _spec(steps=STEPS, **options):
  """Describe a run as Python does: without a configuration."""
  return tiny_run.spec(steps, seed=None, config={}, **options)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
  folder = tmp_path_factory.mktemp("whole")
  tiny_run.train(_spec(), folder)
  return folder


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
  """A run that was killed after step 5, behind the checkpoint of step 4."""
  folder = tmp_path_factory.mktemp("killed")
  tiny_run.kill(_spec(), folder, 5)
  return folder


@pytest.fixture
def run(killed, tmp_path):
  shutil.copytree(killed, tmp_path / "run")
  return tmp_path / "run"


def _key(folder):
  with workdir.locked(folder) as place:
    return resume.load(place)


def _noise(folder):
  return np.asarray(jax.random.key_data(_key(folder).jax_key())).tolist()


def _params(folder):
  return tiny_run.final_params(folder)[0]["w"]


def _files(folder):
  paths = [path for path in folder.rglob("*") if path.name != ".lock"]
  return {path: path.read_bytes() for path in paths if path.is_file()}


def _check_refused(spec, folder, match, **options):
  before = _files(folder)
  assert_refused(
      training.RunError, match, tiny_run.train, spec, folder, **options
  )
  assert _files(folder) == before


def _other_data():
  """Return data of equal sizes, one pixel of one image changed."""
  train = tiny_run.dataset()
  images = train.images.copy()
  images[17, 2, 3] ^= 1
  return dataclasses.replace(train, images=images)


def _other_learner():
  """Return a learner whose only change is a number in a closure."""
  base = tiny_run.learner()

  class MAML(learners.MAML):

    def loss(self, params, episode):
      return 1.5 * super().loss(params, episode)

  fields = {f.name: getattr(base, f.name) for f in dataclasses.fields(base)}
  return MAML(**fields)


# Another run ------------------------------------------------------------------

_OTHERS = {
    "data": lambda: _spec(train=_other_data()),
    "release": lambda: _spec(noise_multiplier=2.0),
    "learner": lambda: _spec(learner=_other_learner()),
    "first parameters": lambda: dataclasses.replace(_spec(), seed=1),
    "optimizer": lambda: _spec(optimizer=optax.adam(0.02)),
    "terms of the noise": lambda: _spec(
        compute=private.Compute(noise_terms=4)
    ),
}


@pytest.mark.parametrize("name", _OTHERS)
@pytest.mark.parametrize("mode", ["same", "auto"])
@pytest.mark.few(3)
def test_another_run_is_refused_whatever_is_asked(run, name, mode):
  match = "learner, optimizer or first parameters"
  match = f"differs in {name}" if name in ("data", "release") else match
  _check_refused(
      _OTHERS[name](), run, f"{match}.*choose a new folder", resume=mode
  )
  if mode == "auto":
    return
  # Also where the key is all that is left.
  for path in ("checkpoints", "tensorboard"):
    shutil.rmtree(run / path)
  for path in run.glob("*.*"):
    path.unlink()
  _check_refused(_OTHERS[name](), run, "choose a new folder", resume=mode)


def test_runs_that_differ_draw_other_noise_from_one_secret(
    tmp_path, monkeypatch
):
  """Nobody compares here: the key follows from the fingerprint.

  It is written before the step is compiled, where these runs are killed.
  """
  killed = mock.Mock(side_effect=tiny_run.Killed)
  monkeypatch.setattr(meta_training.MetaTraining, "compile", killed)
  seeded = {
      name: dataclasses.replace(make(), private_seed=7)
      for name, make in (_OTHERS | {"the same": _spec}).items()
  }
  for name, spec in seeded.items():
    with pytest.raises(tiny_run.Killed):
      training.train(spec, tmp_path / name)
  noises = [_noise(tmp_path / name) for name in seeded]
  assert len({json.dumps(noise) for noise in noises}) == len(seeded)


def test_a_checkpoint_of_another_key_is_refused(run, tmp_path):
  tiny_run.train(_spec(4), tmp_path / "other")
  shutil.rmtree(run / "checkpoints")
  shutil.copytree(tmp_path / "other" / "checkpoints", run / "checkpoints")
  match = "not written under the secret key of this folder"
  _check_refused(_spec(), run, match)
  _check_refused(_spec(), run, match, resume="auto")


def test_a_checkpoint_ahead_of_the_counter_is_refused(whole, run):
  """Another key file of the same run knows less than what was released."""
  shutil.rmtree(run / "private")
  shutil.copytree(whole / "private", run / "private")
  _check_refused(_spec(), run, "not written under the secret key")
  key = _key(whole)
  checkpoints = checkpoint.Checkpoints(whole)
  last = dataclasses.replace(key.segments[-1], last=STEPS - 1)
  assert resume._belongs(key, checkpoints, STEPS)
  less = dataclasses.replace(key, segments=(last,))
  assert not resume._belongs(less, checkpoints, STEPS)


def test_a_key_that_is_gone_or_damaged_is_not_made_anew(run):
  path = run / "private" / "key"
  text = path.read_text()
  for content in (text[:-9], text.replace('"last": 6', '"last": 4'), "", "[]"):
    path.write_text(content)
    _check_refused(
        _spec(), run, "is damaged or of another version.*key_file"
    )
  path.unlink()
  for name in ("metrics.jsonl", "config.json", "checkpoints"):
    _check_refused(_spec(), run, "is missing.*key_file", resume="auto")
    (run / name).rename(run / f"gone {name}")  # The record is left.
  _check_refused(_spec(), run, "is missing.*key_file", resume="auto")


def test_a_seeded_key_is_not_taken_for_a_secret_one(run):
  seeded = dataclasses.replace(_spec(), private_seed=7)
  _check_refused(
      seeded, run, "differs in private_seed", resume="auto"
  )


# The same run -----------------------------------------------------------------


def test_lost_steps_are_repeated_bit_for_bit_and_cost_nothing(whole, run):
  # Whole runs of one secret: the key of the killed run, in a new folder.
  again = run.parent / "again"
  (again / "private").mkdir(parents=True)
  shutil.copy(run / "private" / "key", again / "private" / "key")
  tiny_run.train(_spec(), again)
  result = tiny_run.train(_spec(), run)
  np.testing.assert_array_equal(_params(run), _params(again))
  assert (run / "metrics.jsonl").read_bytes() == (
      again / "metrics.jsonl"
  ).read_bytes()
  spent = json_of(whole / "guarantee.json")["guarantees"]
  for level, guarantee in result.guarantees.items():
    assert guarantee.epsilon == spent[level]["epsilon"]


def test_equal_copies_give_equal_bits_and_their_lineages_differ(run):
  copy = run.parent / "copy"
  shutil.copytree(run, copy)
  lineages = []
  for folder in (run, copy):
    tiny_run.train(_spec(), folder)
    stated = json_of(folder / "guarantee.json")
    lineages.append(stated["lineage"])
  np.testing.assert_array_equal(_params(run), _params(copy))
  (first, one), (same, other) = lineages
  assert first == same and one != other


# Another fingerprint ----------------------------------------------------------


def _epsilon(steps):
  spec = _spec()
  return accounting.guarantee(
      spec.release, steps=steps, delta=spec.delta, level="participant"
  ).epsilon


def _changed(steps=STEPS):
  return dataclasses.replace(_spec(steps), config={"version": 2})


def test_another_fingerprint_is_one_sentence_then_a_fork(run):
  before = _noise(run)
  match = (
      "config.version=2 .it was absent.*resume='fork' .in a command --resume"
      ".*from step 4.*charges"
  )
  _check_refused(_changed(), run, match)
  result = tiny_run.train(_changed(), run, resume="fork")
  # Up to 6 steps were allowed under the first key, and the last two again.
  assert result.guarantees["participant"].epsilon == _epsilon(STEPS + 2)
  assert _noise(run) != before
  key = _key(run)
  assert [(s.first, s.last) for s in key.segments] == [(0, 6), (4, 6)]
  # It continues as the forked run, and not as the first.
  again = tiny_run.train(_changed(), run)
  assert again.guarantees["participant"].epsilon == _epsilon(STEPS + 2)
  _check_refused(_spec(), run, "config.version=absent")
  # A run that is forked back has a third key.
  tiny_run.train(_spec(), run, resume="auto")
  assert len(_key(run).segments) == 3
  assert _noise(run) not in (before, key.seal)
  # The fork's own steps cannot be repeated under the earlier key.
  shutil.rmtree(run / "checkpoints")
  _check_refused(_spec(), run, "of step 0, was not written under the secret")


def test_a_stop_before_the_steps_of_a_kill_states_them_too(run):
  # Step 5 was released behind the checkpoint of step 4, and step 6 allowed.
  result = tiny_run.train(_spec(), run, deadline=0.0)
  assert (result.steps, result.stopped) == (4, "time limit")
  assert result.guarantees["participant"].epsilon == _epsilon(6)
  stated = json_of(run / "guarantee.json")
  assert stated["guarantees"]["participant"]["epsilon"] == _epsilon(6)
  assert stated["steps"] == 6
  forked = tiny_run.train(_changed(), run, resume="fork")
  assert forked.guarantees["participant"].epsilon == _epsilon(STEPS + 2)


def test_a_fork_that_is_killed_pays_for_both(run):
  tiny_run.kill(_changed(8), run, 5, resume="fork")
  other = dataclasses.replace(_changed(8), config={"version": 3})
  result = tiny_run.train(other, run, resume="auto")
  # 6 under the first key, 4 to 8 under the second and under the third.
  assert result.guarantees["participant"].epsilon == _epsilon(6 + 4 + 4)


def test_a_fork_after_a_clean_end_costs_nothing(whole, tmp_path):
  shutil.copytree(whole, tmp_path / "run")
  result = tiny_run.train(_changed(8), tmp_path / "run", resume="fork")
  assert result.guarantees["participant"].epsilon == _epsilon(8)


def _found():
  return resume.fingerprint({}, {"a": {"b": 1}})


# Settings of JAX and variables of the environment: the value (True: the other
# one), and whether the run is refused ("other bits") or resumes under its key
# ("same bits").
_CHANGES = {
    "other bits": {
        "jax_numpy_dtype_promotion": "standard",  # Tests have the strict ones.
        "jax_numpy_rank_promotion": "allow",
        "jax_default_matmul_precision": "highest",
        "jax_threefry_partitionable": True,
        "jax_random_seed_offset": 5,
        "jax_enable_x64": True,
        "jax_disable_most_optimizations": True,
        "jax_disable_jit": True,
        "jax_debug_nans": True,
        "jax_default_prng_impl": "rbg",
        "jax_enable_pgle": True,
        "jax_high_dynamic_range_gumbel": True,
        "jax_softmax_custom_jvp": True,
        "jax_optimization_level": "O1",
        "jax_exec_time_optimization_effort": 0.5,
        "jax_persistent_cache_enable_xla_caches": "all",
        "XLA_FLAGS": "--xla_cpu_enable_fast_math=true",
        "LIBTPU_INIT_ARGS": "--xla_tpu_enable_async=true",
        "ONEDNN_MAX_CPU_ISA": "SSE41",
        "ONEDNN_DEFAULT_FPMATH_MODE": "BF16",
        "DNNL_MAX_CPU_ISA": "SSE41",
        "OMP_NUM_THREADS": "1",
        "MKL_CBWR": "COMPATIBLE",
        "TF_ENABLE_ONEDNN_OPTS": "0",
        "NVIDIA_TF32_OVERRIDE": "0",
        "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
        "NCCL_ALGO": "Ring",
        "XLA_PYTHON_CLIENT_ALLOCATOR": "platform",
        "LD_PRELOAD": "libmath.so",
        # Names that no version has, with parts of harmless ones.
        "XLA_LOG_OF_SUMS": "1",
        "ONEDNN_CACHE_CHECK_DEBUG": "1",
        "JAX_DEBUG_PLATFORM_GUARD": "1",
    },
    "same bits": {
        "jax_log_compiles": True,
        "jax_logging_level": "ERROR",
        "jax_traceback_filtering": "off",
        "jax_transfer_guard": "log",
        "jax_explain_cache_misses": True,
        "jax_compilation_cache_max_size": 10**9,
        "jax_persistent_cache_min_compile_time_secs": 2.5,
        "jax_pprint_use_color": True,
        "JAX_COORDINATOR_ADDRESS": "host:1",
        "ONEDNN_VERBOSE": "1",
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "CUDA_VISIBLE_DEVICES": "1",
        "XLA_FLAGS": "--xla_dump_to=/tmp/a --xla_dump_hlo_as_text",
        "HOME": "/elsewhere",
    },
}


@pytest.mark.parametrize(
    "bits, name, value",
    [(bits, *item) for bits, all in _CHANGES.items() for item in all.items()],
)
def test_a_setting_counts_unless_it_is_known_to_change_no_number(
    bits, name, value, monkeypatch
):
  if name.startswith("jax_") and name not in jax.config.values:
    pytest.skip("this version of JAX does not have the setting")
  monkeypatch.delenv("XLA_FLAGS", raising=False)
  before = _found()
  assert before == _found()
  if name in jax.config.values:
    old = jax.config.values[name]
    jax.config.update(name, not old if value is True else value)
    try:
      now = _found()
    finally:
      jax.config.update(name, old)
  else:
    monkeypatch.setenv(name, value)
    now = _found()
  changed = [k for k in now if now[k] != before.get(k)]
  assert changed == [name] * (bits == "other bits")


def test_files_that_flags_name_are_read(tmp_path, monkeypatch):
  flags, digests = tmp_path / "flags", []
  for value in (str(flags), f"--xla_gpu_load_autotune_results_from={flags}"):
    monkeypatch.setenv("XLA_FLAGS", value)
    for text in ("--xla_cpu_enable_fast_math=true", "--xla_fast=1"):
      flags.write_text(text)
      digests.append(_found()["XLA_FLAGS"])
  assert len(set(digests)) == 4


_MACHINES = {
    "versions": lambda patch: patch.setattr(np, "__version__", "0"),
    "devices": lambda patch: patch.setattr(jax, "device_count", lambda: 77),
    "processes": lambda patch: patch.setattr(jax, "process_count", lambda: 7),
    "processor": lambda patch: patch.setattr(
        settings, "processor", lambda: "abacus"
    ),
}


@pytest.mark.parametrize("name", _MACHINES)
def test_what_a_run_is_computed_on_is_seen(name, monkeypatch):
  before = _found()
  assert resume.fingerprint({}, {"a": {"b": 2}}) != before
  _MACHINES[name](monkeypatch)
  assert _found() != before


def test_a_run_starts_where_linux_is_absent(tmp_path, monkeypatch):
  """macOS lists neither the cores of a process nor its processor."""
  known = settings.processor()
  monkeypatch.delattr(os, "sched_getaffinity", raising=False)
  monkeypatch.delattr(os, "posix_fallocate", raising=False)
  monkeypatch.setattr(settings, "_PROCESSORS", tmp_path / "nowhere")
  assert backends.cores() == os.cpu_count()
  found = settings.processor()
  assert found == settings.processor() != known
  other = platform.uname()._replace(system="Darwin", node="other")
  monkeypatch.setattr(platform, "uname", lambda: other)
  assert settings.processor() != found  # Another machine rounds otherwise.
  result = tiny_run.train(tiny_run.spec(1), tmp_path / "run")
  assert result.stopped == "done"


def test_the_settings_of_every_process_are_seen():
  one, other = (
      resume.fingerprint({}, {}, None, ["first", second]) for second in "ab"
  )
  assert [k for k in one if one[k] != other[k]] == ["settings of process 1"]


_HOST_CODE = {
    "pure": lambda x: jax.pure_callback(np.sin, x, x, vmap_method="sequential"),
    "io": lambda x: jax.experimental.io_callback(np.sin, x, x),
    "debug": lambda x: jax.debug.callback(print, x) or x,
    "print": lambda x: jax.debug.print("{}", x) or x,
    "inner": lambda x: jax.lax.map(_HOST_CODE["pure"], x),
    "library": lambda x: jax.ffi.ffi_call("own", x)(x),
    "quoted": lambda x: jax.ffi.ffi_call("my-callback", x)(x),
}


@pytest.mark.parametrize("name", _HOST_CODE)
def test_code_of_the_host_is_refused(name):
  with pytest.raises(training.RunError, match="calls Python or a lib"):
    resume.program_digest(_HOST_CODE[name], np.ones(3, np.float32))


def test_libraries_of_jax_are_known():
  matrix = np.eye(3, dtype=np.float32)
  digests = {
      resume.program_digest(function, matrix)
      for function in (jax.numpy.linalg.svd, lambda x: jax.lax.top_k(x, 2))
  }
  assert len(digests) == 2


def test_a_network_that_calls_the_host_is_refused_before_a_key_is_made(
    tmp_path,
):
  base = tiny_run.learner()

  def apply(params, images):
    return _HOST_CODE["debug"](base.model.apply(params, images))

  model = base.model._replace(apply=apply)
  learner = dataclasses.replace(base, model=model)
  with pytest.raises(training.RunError, match="calls Python"):
    training.train(_spec(learner=learner), tmp_path)
  assert not any(tmp_path.iterdir())


def test_nothing_shows_a_key_or_a_pixel(run):
  key = _key(run)
  for shown in (repr(key), str(key.segments), repr(tiny_run.dataset())):
    assert key.secret.hex() not in shown and str(key.secret) not in shown
    assert "array" not in shown and "release" not in shown
  state = meta_training.MetaTraining(_spec()).init()._replace(key=key.jax_key())
  words = np.asarray(jax.random.key_data(key.jax_key()))
  assert not any(str(word) in repr(state) for word in words)
