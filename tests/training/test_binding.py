"""No step twice under one noise: what a run refuses to go on with.

Each of the runs below went on in the first build, and released a step a second
time, on other data or in another way, under the noise of the first time.
"""

import dataclasses
import json
import shutil

import jax
import numpy as np
import optax
import pytest

from episodic_dp import learners
from episodic_dp import plan
from episodic_dp import training
from episodic_dp.training import binding
from episodic_dp.training import identity as identity_lib
from episodic_dp.training import keys
from episodic_dp.training import metrics
from tests.training import tiny_run

STEPS = 6  # The last checkpoint before the end is after step 4.


def _spec(steps=STEPS, **options):
  """As Python describes runs: without a configuration."""
  return tiny_run.spec(steps, seed=None, config={}, **options)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
  folder = tmp_path_factory.mktemp("whole")
  tiny_run.train(_spec(), folder)
  return folder


@pytest.fixture
def killed(whole, tmp_path):
  """The run as a kill after step 6 leaves it, before its checkpoint."""
  folder = tmp_path / "run"
  shutil.copytree(whole, folder)
  shutil.rmtree(folder / "checkpoints" / str(STEPS))
  return folder


def _refused(spec, folder, match):
  before = {p: p.read_bytes() for p in folder.rglob("*.json*")}
  key = keys.path(folder).read_bytes()
  with pytest.raises(training.RunError, match=match) as caught:
    tiny_run.train(spec, folder)
  assert "\n" not in str(caught.value)
  assert "another --workdir" in str(caught.value)
  assert keys.path(folder).read_bytes() == key
  assert {p: p.read_bytes() for p in folder.rglob("*.json*")} == before


def _params(folder):
  return tiny_run.final_params(folder)[0]["w"]


def _noise(folder):
  return np.asarray(jax.random.key_data(keys.load(folder).jax_key())).tolist()


def _other_data(**changes):
  """Equal sizes, one pixel of one image changed."""
  train = tiny_run.dataset()
  images = train.images.copy()
  images[17, 2, 3] ^= 1
  return dataclasses.replace(train, images=images, **changes)


# What is refused --------------------------------------------------------------


def test_other_data_of_equal_sizes(killed):
  _refused(_spec(train=_other_data()), killed, "has other data .images")


def test_another_release(killed):
  _refused(_spec(noise_multiplier=2.0), killed, "noise_multiplier=1.0")
  shutil.rmtree(killed / "checkpoints")
  _refused(_spec(noise_multiplier=2.0), killed, "samples or releases something")


def test_another_learner_that_has_the_same_name(killed):
  """Only what it computes differs, by a number in a closure."""
  base = tiny_run.learner()

  class MAML(learners.MAML):

    def loss(self, params, episode):
      return 1.5 * super().loss(params, episode)

  fields = {f.name: getattr(base, f.name) for f in dataclasses.fields(base)}
  _refused(_spec(learner=MAML(**fields)), killed, "has another learner")


def test_another_optimizer_while_steps_may_be_repeated(killed):
  match = "another optimizer or learning rate, and steps 5 to 6 may have been"
  _refused(_spec(optimizer=optax.adam(0.02)), killed, match)


def test_lines_that_are_lost_are_asked_for(whole, tmp_path):
  shutil.copytree(whole, tmp_path / "run")
  lines = (tmp_path / "run/metrics.jsonl").read_text().splitlines(True)
  (tmp_path / "run/metrics.jsonl").write_text("".join(lines[:-1]))
  match = f"put the lines of metrics.jsonl after step {STEPS - 1} back"
  _refused(_spec(optimizer=optax.adam(0.02)), tmp_path / "run", match)


def test_other_first_parameters(killed):
  shutil.rmtree(killed / "checkpoints")
  _refused(
      dataclasses.replace(_spec(), seed=1), killed, "begins with other param"
  )


def test_another_random_stream(killed):
  with jax.threefry_partitionable(False):
    _refused(_spec(), killed, "JAX_THREEFRY_PARTITIONABLE=1, or choose")


def test_a_key_of_which_the_run_is_gone(killed):
  """Config, metrics and checkpoints deleted; another run takes its place."""
  for name in ("checkpoints", "tensorboard"):
    shutil.rmtree(killed / name)
  for path in killed.glob("*.*"):
    path.unlink()
  _refused(
      _spec(noise_multiplier=2.0),
      killed,
      "belongs to another run .another: release",
  )
  match = "belongs to another run .another: data"
  _refused(_spec(train=_other_data()), killed, match)


def test_the_same_run_may_begin_again_under_its_key(whole, killed):
  """The same bits: nothing is released that was not."""
  shutil.rmtree(killed / "checkpoints")
  (killed / metrics.FILE).unlink()
  tiny_run.train(_spec(), killed)
  np.testing.assert_array_equal(_params(killed), _params(whole))


def test_a_checkpoint_of_another_key(whole, killed, tmp_path):
  """Equal in all but the key: its steps had other noise."""
  tiny_run.train(_spec(4), tmp_path / "other")
  shutil.rmtree(killed / "checkpoints")
  shutil.copytree(tmp_path / "other" / "checkpoints", killed / "checkpoints")
  _refused(_spec(), killed, "not written under the secret key of this folder")


def test_a_key_that_a_seed_made_is_not_taken_for_a_secret_one(tmp_path):
  tiny_run.train(tiny_run.spec(2, config={}), tmp_path)
  remedy = "with the --config.private_seed that it was started with, or"
  for spec, what in (
      (_spec(2), "made from a private_seed"),
      (tiny_run.spec(2, seed=8, config={}), "does not follow"),
  ):
    _refused(spec, tmp_path, f"{what}.*resume {remedy}")


# What may change --------------------------------------------------------------


@pytest.mark.slow  # Compiles a step of its own.
def test_steps_to_come_may_have_another_optimizer_and_other_noise(
    whole, tmp_path
):
  """Two copies that part: the ledgers are two, and so is the noise."""
  for name in ("a", "b", "c"):
    shutil.copytree(whole, tmp_path / name)
  tiny_run.train(_spec(8), tmp_path / "a")
  for name in ("b", "c"):
    tiny_run.train(_spec(8, optimizer=optax.adam(0.02)), tmp_path / name)
  # One is the run as it was; the others are another one, and that the same.
  assert _noise(tmp_path / "a") == _noise(whole)
  assert _noise(tmp_path / "b") == _noise(tmp_path / "c") != _noise(whole)
  one, other = (_params(tmp_path / name) for name in "bc")
  np.testing.assert_array_equal(one, other)
  # Its earlier steps cannot be taken anew under another noise than they were.
  for step in (6, 8):
    shutil.rmtree(tmp_path / "b" / "checkpoints" / str(step))
  _refused(
      _spec(8, optimizer=optax.adam(0.02)),
      tmp_path / "b",
      "went on with other settings after step 6, and its checkpoint of that",
  )


def test_equal_copies_give_equal_bits_and_their_lineages_differ(
    whole, tmp_path
):
  lineages = []
  for name in ("a", "b"):
    shutil.copytree(whole, tmp_path / name)
    tiny_run.train(_spec(8), tmp_path / name)
    checkpoints = training.Checkpoints(tmp_path / name, read_only=True)
    lineages.append(checkpoints.run_of(8)[1]["lineage"])
    statement = json.loads((tmp_path / name / "guarantee.json").read_text())
    assert statement["lineage"] == lineages[-1]
  one, other = (_params(tmp_path / name) for name in "ab")
  np.testing.assert_array_equal(one, other)
  (first, one), (same, other) = lineages
  assert first == same and one != other


def test_another_machine_is_said(whole, tmp_path, monkeypatch, caplog):
  caplog.set_level("WARNING", logger="absl")
  folder = tmp_path / "run"
  shutil.copytree(whole, folder)
  monkeypatch.setattr(binding.environment, "_instructions", lambda: "abacus")
  tiny_run.train(_spec(8), folder)
  (told,) = [r.message for r in caplog.records if "elsewhere" in r.message]
  assert "instructions 'x86_64" in told or "instructions '" in told
  assert "-> 'abacus'" in told and "its noise are the same" in told


# The rules by themselves ------------------------------------------------------


_BEFORE = {name: "0" for name in (*identity_lib.STABLE, *identity_lib.TRACED)}
_ENVIRONMENT = dict.fromkeys(binding.environment.CONDITIONS, "1")


def _bound(changed, *, step=8, logged=8, after=0, stages=None, jax="1"):
  last = keys.Segment(after=after, parts=_BEFORE, conditions=_ENVIRONMENT)
  key = keys.RunKey(secret=bytes(32), seeded=False, segments=(last,))
  identity = identity_lib.Identity(
      parts=_BEFORE | dict.fromkeys(changed, "1"),
      environment=_ENVIRONMENT | {"jax": jax},
  )
  place = binding.Place(folder="here", step=step, logged=logged)
  plan_ = plan.SamplingPlan(stages or (plan.Poisson(0.1),))
  return binding.bound(key, identity, place, plan_)


def test_an_equal_run_goes_on_however_it_stopped():
  for step, logged in ((0, 0), (0, 3), (8, 8), (8, 9), (8, 0)):
    assert len(_bound((), step=step, logged=logged).segments) == 1
  # A new JAX that traces the same is the same.
  assert len(_bound((), jax="2").segments) == 1


@pytest.mark.parametrize("name", [*identity_lib.STABLE, "sampler", "learner"])
@pytest.mark.parametrize("logged", [8, 9])
def test_these_never_change(name, logged):
  with pytest.raises(training.RunError, match="another --workdir"):
    _bound((name,), logged=logged)


@pytest.mark.parametrize("name", [*identity_lib.FUTURE])
def test_these_change_where_no_step_can_be_repeated(name):
  changed = _bound((name,)).segments
  assert [segment.after for segment in changed] == [0, 8]
  # A line too many, or removed; no checkpoint; within a pass.
  for options in (
      {"logged": 9},
      {"logged": 7},
      {"step": 0},
      {"step": 0, "logged": 0},
      {"stages": (plan.RandomAllocation(3),)},
  ):
    with pytest.raises(training.RunError, match="another --workdir"):
      _bound((name,), **options)
  assert len(_bound((name,), stages=(plan.RandomAllocation(4),)).segments) == 2


def test_what_another_jax_traced_is_another_run_from_now_on():
  traced = ("sampler", "learner", "optimizer")
  assert len(_bound(traced, jax="2").segments) == 2
  with pytest.raises(training.RunError, match="jax '1' -> '2'.*be compared"):
    _bound(traced, jax="2", logged=9)


def test_history_that_is_gone_is_not_repeated():
  with pytest.raises(training.RunError, match="after step 12.*is gone"):
    _bound((), after=12)
