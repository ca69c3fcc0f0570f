"""Every released step is charged, whatever is killed, forked and restored."""

import collections
import os
import shutil
import signal
import types

import jax
import numpy as np
import pytest

from episodic_dp import training
from episodic_dp.training import loop
from episodic_dp.training import resume
from episodic_dp.training import workdir
from tests.stored import json_of
from tests.training import tiny_run

STEPS = 40
_SAVED = ("private", "checkpoints", workdir.RECORD)


class _Observed:
  """A `training.Program` whose steps cost nothing to compute.

  Attributes:
    released: (step, key) -> what was released; all programs of a test share it.
    charged: number of times that each step is charged.
  """

  unit, privacy_unit, diagnostics, remembers = "step", None, False, False

  def __init__(self, released, version=0, steps=STEPS, killed=None):
    self.released, self._version, self._killed = released, version, killed
    self.steps, self.charged, self.taken = steps, None, 0
    self.spec = types.SimpleNamespace(
        evaluate_every=7, checkpoint_every=4, private_seed=None,
        config={"version": version},
    )

  def init(self):
    return {"w": 0, "n": 0, "key": None}

  def parts(self, state):
    names = ("release", "data", "learner", "start", "program")
    return dict.fromkeys(names, "one")

  def saved(self, state):
    return {"w": np.int64(state["w"])}, {"n": np.int64(state["n"])}

  def restored(self, state, params, rest, key):
    words = tuple(np.asarray(jax.random.key_data(key)).tolist())
    return {"w": int(params["w"]), "n": int(rest["n"]), "key": words}

  def charge(self, ranges, done):
    self._ranges, self._done = ranges, done
    self._check()

  def compile(self, state):
    pass

  def step(self, state):
    number, key = state["n"], state["key"]
    value = hash((state["w"], key, self._version)) % 2**31
    assert self.released.setdefault((number, key), value) == value
    self._done += 1
    self.taken += 1
    if self.taken == self._killed:
      raise tiny_run.Killed  # Released, and not yet in any file.
    return {"w": value, "n": number + 1, "key": key}, {}

  def spent(self):
    return {"epsilon": 1.0}

  def ledger(self):
    return {}

  def validate(self, state):
    return {"validation_accuracy": 0.5}, 0.5, "0.5"

  def write(self, folder, lineage, *, ended):
    if ended:
      self._check()

  def result(self, state, done, stopped, seconds):
    return types.SimpleNamespace(steps=done, stopped=stopped)

  def _check(self):
    *others, last = self._ranges
    present = range(last.start, max(last.stop, self._done))
    steps = [step for one in (*others, present) for step in one]
    self.charged = collections.Counter(steps)
    released = collections.Counter(step for step, _ in self.released)
    assert not released - self.charged


def _run(program, folder, *, stop=None, mode="auto"):
  """Run until a stop after some steps, a kill within a step, or the end."""

  def signalled(line):
    if program.taken == stop:
      os.kill(os.getpid(), signal.SIGTERM)

  try:
    return loop.run(program, folder, resume=mode, callbacks=[signalled])
  except tiny_run.Killed:
    return None


def _restore(folder, backup, names):
  for name in names:
    shutil.rmtree(folder / name, ignore_errors=True)
    if (backup / name).is_dir():
      shutil.copytree(backup / name, folder / name)
    elif (backup / name).exists():
      shutil.copy(backup / name, folder / name)


_PARTS = [
    ("private",), ("checkpoints",), ("private", "checkpoints"),
    (workdir.RECORD,), (workdir.RECORD, "checkpoints"),
]


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.few(5)
def test_no_sequence_of_events_leaves_a_released_step_uncharged(tmp_path, seed):
  rng, released, backups = np.random.default_rng(seed), {}, []
  folder = tmp_path / "run"
  for _ in range(25):
    what = rng.choice(["kill", "stop", "restore"], p=[0.5, 0.3, 0.2])
    count = rng.integers(1, 8)
    version = rng.choice([0, 1, 2], p=[0.8, 0.1, 0.1])
    if what == "restore" and backups:
      parts = _PARTS[rng.integers(len(_PARTS))]
      _restore(folder, backups[rng.integers(len(backups))], parts)
    program = _Observed(
        released, int(version), steps=200, killed=count if what == "kill" else 0
    )
    try:
      _run(program, folder, stop=count)
    except training.RunError:  # Nothing is released by a refusal.
      _restore(folder, backups[-1], _SAVED)
    backups.append(tmp_path / str(len(backups)))
    shutil.copytree(folder, backups[-1])
  assert len(released) > 40


def test_a_stop_before_the_step_of_a_kill_states_and_charges_both(tmp_path):
  released = {}
  assert _run(_Observed(released, killed=19), tmp_path) is None
  stopped = _Observed(released)
  assert _run(stopped, tmp_path, stop=2).steps == 18
  assert stopped.charged.total() == 20  # The counter is a checkpoint's step.
  fork = _Observed(released, version=1)
  assert _run(fork, tmp_path).steps == STEPS
  assert len(released) == 19 + (STEPS - 18)
  assert fork.charged.total() == 20 + (STEPS - 18)


@pytest.fixture
def backed_up(tmp_path):
  """A run that was stopped after step 12, its backup, and what it released."""
  folder, backup, released = tmp_path / "run", tmp_path / "backup", {}
  _run(_Observed(released), folder, stop=12)
  shutil.copytree(folder, backup)
  return folder, backup, released


@pytest.mark.parametrize("more", [8, 9])
def test_steps_that_only_the_metrics_show_are_charged(more, backed_up):
  folder, backup, released = backed_up
  _run(_Observed(released), folder, stop=more)
  _restore(folder, backup, _SAVED)
  fork = _Observed(released, version=1)
  assert _run(fork, folder).steps == STEPS
  # One more than the metrics show: a kill may have prevented the next line.
  assert fork.charged.total() == more + 1 + STEPS == len(released) + 1


def test_a_key_that_is_older_than_a_fork_is_refused_or_forked(backed_up):
  folder, backup, released = backed_up
  _run(_Observed(released, version=1), folder, stop=9)
  _restore(folder, backup, ("private", "checkpoints"))
  with pytest.raises(training.RunError, match="older than .* --resume=fork"):
    _run(_Observed(released), folder, mode="same")
  assert _run(_Observed(released), folder).steps == STEPS
  with workdir.locked(folder) as place:
    assert len(resume.load(place).others()) == 2


@pytest.mark.parametrize("steps", [2, 3])
def test_a_fork_is_charged_whose_key_and_record_were_both_replaced(
    steps, backed_up
):
  folder, backup, released = backed_up
  assert _run(_Observed(released, version=1, killed=steps), folder) is None
  _restore(folder, backup, _SAVED)
  with pytest.raises(training.RunError, match="older than .* --resume=fork"):
    _run(_Observed(released), folder, mode="same")
  last = _Observed(released)
  assert _run(last, folder).steps == STEPS
  # The last step of the fork has no line.
  assert last.charged.total() == len(released) == steps + STEPS


@pytest.mark.parametrize("text", ["", "[]", '{"a": 1}', '{"a": ["x", 2]}'])
def test_a_damaged_record_is_one_sentence(tmp_path, text):
  _run(_Observed({}), tmp_path, stop=2)
  (tmp_path / workdir.RECORD).write_text(text)
  with pytest.raises(training.RunError, match="cannot be read"):
    _run(_Observed({}), tmp_path)


def test_the_record_names_no_secret(tmp_path):
  _run(_Observed({}), tmp_path, stop=2)
  with workdir.locked(tmp_path) as place:
    key = resume.load(place)
  recorded = json_of(tmp_path / workdir.RECORD)
  assert recorded == {key.name(): [0, 2]}
  assert key.secret.hex() not in str(recorded)
