"""Runs on a server that speaks S3, on this machine."""

import itertools
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time

import numpy as np
import pytest

from episodic_dp import training
from episodic_dp.training import keys
from episodic_dp.training import metrics
from episodic_dp.training import remote
from episodic_dp.training import stores
from episodic_dp.training import workdir
from tests.training import secret_search as search
from tests.training import tiny_run

s3fs = pytest.importorskip("s3fs", reason="s3fs, of the extra 'cloud'")
server = pytest.importorskip(
    "moto.server", reason="moto[s3,server], of the extra 'test'"
)

_NUMBERS = itertools.count()
_CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "nobody", "AWS_SECRET_ACCESS_KEY": "nothing",
    "AWS_DEFAULT_REGION": "us-east-1",
}  # fmt: skip


@pytest.fixture(scope="module")
def endpoint():
  """The environment of who uses the server."""
  running = server.ThreadedMotoServer(ip_address="127.0.0.1", port=0)
  running.start()
  host, port = running.get_host_and_port()
  environment = _CREDENTIALS | {"AWS_ENDPOINT_URL": f"http://{host}:{port}"}
  with pytest.MonkeyPatch.context() as patched:
    for name, value in environment.items():
      patched.setenv(name, value)
    s3fs.S3FileSystem.clear_instance_cache()
    s3fs.S3FileSystem().mkdir("bucket")
    yield environment
  s3fs.S3FileSystem.clear_instance_cache()
  running.stop()


@pytest.fixture
def url(endpoint):
  del endpoint
  return f"s3://bucket/{next(_NUMBERS)}/run"


@pytest.mark.slow  # A server, and what its client needs to begin.
def test_a_run_begins_goes_on_and_is_read(url, tmp_path, caplog):
  caplog.set_level("INFO", logger="absl")
  tiny_run.train(tiny_run.spec(4, seed=None), url)
  tiny_run.train(tiny_run.spec(8, seed=None), url)
  assert "resumed from step 4 in" in caplog.text
  store = stores.Store(url)
  # Two processes, of which the statement and the checkpoint tell.
  lineage = json.loads(store.read("guarantee.json"))["lineage"]
  assert len(lineage) == len(set(lineage)) == 2
  with remote.fetched(url) as folder:
    checkpoints = training.Checkpoints(folder, read_only=True)
    assert checkpoints.run_of(8)[1]["lineage"] == lineage
    found, step = tiny_run.final_params(folder)
    assert not (folder / "private").exists()
  for name in store.names():
    store.get(name, tmp_path / name)
  secrets = search.secrets_of_run(keys.load(tmp_path), 8)
  texts = search.public_bytes(tmp_path) | {"the log": caplog.text.encode()}
  assert search.searched(texts, secrets) == []
  # A copy that goes on as a folder ends with the same bits.
  assert step == 8
  tiny_run.train(tiny_run.spec(10, seed=None), tmp_path)
  tiny_run.train(tiny_run.spec(10, seed=None), url)
  with remote.fetched(url) as folder:
    expected, _ = tiny_run.final_params(folder)
  found, _ = tiny_run.final_params(tmp_path)
  np.testing.assert_array_equal(found["w"], expected["w"])


@pytest.mark.slow  # Processes that are killed.
def test_killed_at_random_moments_a_run_ends_with_the_same_bits(
    endpoint, url, tmp_path
):
  steps, rng = 24, np.random.default_rng()
  tiny_run.train(tiny_run.spec(steps), tmp_path / "whole")
  script = pathlib.Path(tiny_run.__file__)
  command = [sys.executable, str(script), url, str(steps)]
  kills, status = 0, None
  while status != 0:
    process = subprocess.Popen(
        command,
        env=os.environ | endpoint | {
            "TMPDIR": str(tmp_path), "JAX_NUM_CPU_DEVICES": "1",
        },  # fmt: skip
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
      # Not before it has begun, unless it has nothing left to do; after some
      # kills it may end.
      if kills < 4:
        any("step" in line for line in process.stderr)
      wait = float(rng.uniform(0, 1.5)) if kills < 4 else 300
      process.communicate(timeout=wait)
    except subprocess.TimeoutExpired:
      process.send_signal(signal.SIGKILL)
      process.communicate()
      kills += 1
    status = process.returncode
    assert status in (0, -signal.SIGKILL)
  with remote.fetched(url) as folder:
    found, step = tiny_run.final_params(folder)
    lines = metrics.read(folder / metrics.FILE)
  expected, _ = tiny_run.final_params(tmp_path / "whole")
  assert step == steps and kills
  np.testing.assert_array_equal(found["w"], expected["w"])
  assert [line["step"] for line in lines] == list(range(steps + 1))


def _refused(url, match):
  began = time.monotonic()
  with pytest.raises(training.RunError, match=match) as caught:
    with workdir.opened(url):
      pass
  assert "\n" not in str(caught.value)
  assert time.monotonic() - began < 60


@pytest.mark.slow  # As above.
def test_a_store_that_is_not_there_is_said_before_anything_else(
    endpoint, monkeypatch
):
  del endpoint
  _refused("s3://nowhere/run", "nowhere/run cannot be written .*: make the")
  with socket.socket() as s:
    s.bind(("127.0.0.1", 0))
    monkeypatch.setenv(
        "AWS_ENDPOINT_URL", f"http://127.0.0.1:{s.getsockname()[1]}"
    )
  s3fs.S3FileSystem.clear_instance_cache()
  _refused("s3://bucket/run", "cannot be read .*: see that network and cred")
  for name in _CREDENTIALS:
    monkeypatch.delenv(name)
  monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
  monkeypatch.setenv("HOME", "/proc/nowhere")
  s3fs.S3FileSystem.clear_instance_cache()
  _refused("s3://bucket/run", "cannot be read .*redentials.*: see that network")
  s3fs.S3FileSystem.clear_instance_cache()
