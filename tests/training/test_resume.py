"""No step is released twice under one noise, and forks are paid for.

Each run that is refused here went on in the first build, and released a step a
second time, on other data or in another way, under the noise of the first time.
"""

import dataclasses
import json
import shutil
from unittest import mock

import jax
import numpy as np
import optax
import pytest

from episodic_dp import accounting
from episodic_dp import learners
from episodic_dp import training
from episodic_dp.training import checkpoint
from episodic_dp.training import meta_training
from episodic_dp.training import resume
from episodic_dp.training import workdir
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
  with pytest.raises(training.RunError, match=match) as caught:
    tiny_run.train(spec, folder, **options)
  assert "\n" not in str(caught.value)
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
    "another data": lambda: _spec(train=_other_data()),
    "another release": lambda: _spec(noise_multiplier=2.0),
    "another learner": lambda: _spec(learner=_other_learner()),
    "first parameters": lambda: dataclasses.replace(_spec(), seed=1),
    "optimizer": lambda: _spec(optimizer=optax.adam(0.02)),
}


@pytest.mark.parametrize("name", _OTHERS)
@pytest.mark.parametrize("mode", ["same", "auto"])
@pytest.mark.few(3)
def test_another_run_is_refused_whatever_is_asked(run, name, mode):
  match = "learner, optimizer or first parameters"
  match = name if name in ("another data", "another release") else match
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
        _spec(), run, "is damaged or of another version.*--key_file"
    )
  path.unlink()
  _check_refused(_spec(), run, "is missing.*--key_file", resume="auto")


def test_a_seeded_key_is_not_taken_for_a_secret_one(run):
  seeded = dataclasses.replace(_spec(), private_seed=7)
  _check_refused(
      seeded, run, "holds a run with another private_seed", resume="auto"
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
  spent = json.loads((whole / "guarantee.json").read_text())["guarantees"]
  for level, guarantee in result.guarantees.items():
    assert guarantee.epsilon == spent[level]["epsilon"]


def test_equal_copies_give_equal_bits_and_their_lineages_differ(run):
  copy = run.parent / "copy"
  shutil.copytree(run, copy)
  lineages = []
  for folder in (run, copy):
    tiny_run.train(_spec(), folder)
    stated = json.loads((folder / "guarantee.json").read_text())
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
  match = "config.version=2 .it was absent.*--resume=fork.*from step 4.*charges"
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


_SETTINGS = {
    "jax_numpy_dtype_promotion": "strict",
    "jax_default_matmul_precision": "highest",
    "jax_threefry_partitionable": False,
    "jax_random_seed_offset": 5,
    "jax_enable_x64": True,
    "jax_disable_most_optimizations": True,
    "jax_default_prng_impl": "rbg",
}


@pytest.mark.parametrize("name", _SETTINGS)
def test_a_setting_that_moves_numbers_is_seen(name):
  before = resume.fingerprint({}, {"a": {"b": 1}})
  assert before == resume.fingerprint({}, {"a": {"b": 1}})
  value = jax.config.values[name]
  other = _SETTINGS[name]
  jax.config.update(name, not value if isinstance(other, bool) else other)
  try:
    now = resume.fingerprint({}, {"a": {"b": 1}})
  finally:
    jax.config.update(name, value)
  assert [k for k in now if now[k] != before[k]] == [name]


_MACHINES = {
    "XLA_FLAGS": lambda patch: patch.setenv("XLA_FLAGS", "--xla_fast"),
    "versions": lambda patch: patch.setattr(np, "__version__", "0"),
    "devices": lambda patch: patch.setattr(jax, "device_count", lambda: 77),
    "processor": lambda patch: patch.setattr(
        resume, "_processor", lambda: "abacus"
    ),
}


@pytest.mark.parametrize("name", _MACHINES)
def test_what_a_run_is_computed_on_is_seen(name, monkeypatch):
  before = resume.fingerprint({}, {"a": {"b": 1}})
  assert resume.fingerprint({}, {"a": {"b": 2}}) != before
  _MACHINES[name](monkeypatch)
  assert resume.fingerprint({}, {"a": {"b": 1}}) != before


def test_nothing_shows_a_key_or_a_pixel(run):
  key = _key(run)
  for shown in (repr(key), str(key.segments), repr(tiny_run.dataset())):
    assert key.secret.hex() not in shown and str(key.secret) not in shown
    assert "array" not in shown and "release" not in shown
  state = meta_training.MetaTraining(_spec()).init()._replace(key=key.jax_key())
  words = np.asarray(jax.random.key_data(key.jax_key()))
  assert not any(str(word) in repr(state) for word in words)
