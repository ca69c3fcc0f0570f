"""A run of milliseconds on an object store: what a lost machine leaves."""

import itertools
import json
from unittest import mock

import optax
import pytest

from episodic_dp import training
from episodic_dp.private import step as step_lib
from episodic_dp.training import keys
from episodic_dp.training import mirror
from episodic_dp.training import remote
from episodic_dp.training import stores
from tests.training import tiny_run

_NUMBERS = itertools.count()


@pytest.fixture
def url():
  return f"memory://runs/{next(_NUMBERS)}/run"


def _spec(steps, **options):
  return tiny_run.spec(steps, seed=None, config={}, **options)


def _lost(spec, url):
  """Trains; the machine is lost with the last steps, without a last upload."""
  with mock.patch.object(mirror.Mirror, "finish"):
    tiny_run.train(spec, url)


def test_a_lost_machine_leaves_a_run_that_goes_on_as_it_was(url, caplog):
  _lost(_spec(6), url)
  # Steps may have been seen of which the store knows nothing.
  with pytest.raises(training.RunError, match="steps 7 to 7 may have been ta"):
    tiny_run.train(_spec(8, optimizer=optax.adam(0.02)), url)
  caplog.set_level("INFO", logger="absl")
  tiny_run.train(_spec(8), url)
  assert "resumed from step 6" in caplog.text
  store = stores.Store(url)
  assert not json.loads(store.read(remote.MANIFEST))["running"]
  lineage = json.loads(store.read("guarantee.json"))["lineage"]
  assert len(set(lineage)) == 2
  with remote.fetched(url) as folder:
    checkpoints = training.Checkpoints(folder, read_only=True)
    assert checkpoints.run_of(8)[1]["lineage"] == lineage


def test_a_key_file_is_what_goes_on(url, tmp_path):
  path = tmp_path / "key"
  for steps in (4, 6):
    with training.opened(url, key_file=path) as opened:
      tiny_run.train(_spec(steps), opened)
  assert remote.KEY not in stores.Store(url).names()
  # The key of another run is none.
  with pytest.raises(training.RunError, match=f"secret key {path} belongs to"):
    with training.opened(f"{url}2", key_file=path) as opened:
      tiny_run.train(_spec(6, noise_multiplier=2.0), opened)
  # What the run released follows from it alone.
  tiny_run.train(_spec(2), tmp_path / "folder")
  keys.path(tmp_path / "folder").write_bytes(path.read_bytes())
  with pytest.raises(training.RunError, match="not written under the secret"):
    tiny_run.train(_spec(6), tmp_path / "folder")


def test_the_first_upload_comes_before_the_first_step(url):
  """The key would be lost with the machine, and what it drew be seen."""
  seen = []

  def publish(self, **options):
    del self, options
    seen.append(True)
    raise training.RunError("the network is down")

  with (
      mock.patch.object(mirror.Mirror, "publish", publish),
      mock.patch.object(step_lib._Resident, "__call__") as step,
      pytest.raises(training.RunError, match="network"),
  ):
    tiny_run.train(_spec(4), url)
  assert seen and not step.called
