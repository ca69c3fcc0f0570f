"""The folder of the real data, and a server for downloads."""

import contextlib
import functools
import http.server
import os
import threading

import pytest


@pytest.fixture(scope="session")
def real_data():
  """Return the folder of the real data; they are prepared once, in the cache.

  Set TFDS_DATA_DIR to keep them elsewhere than in ~/tensorflow_datasets.
  """
  data_dir = os.environ.get("EPISODIC_DP_DATA")
  if not data_dir:
    pytest.skip("EPISODIC_DP_DATA names no folder with the real data sets")
  return data_dir


class _Quiet(http.server.SimpleHTTPRequestHandler):

  def log_message(self, *unused):
    pass


@pytest.fixture
def serve(monkeypatch):
  """serve(folder) is a context with the address of a server of its files."""

  @contextlib.contextmanager
  def serving(folder):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    handler = functools.partial(_Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
      threading.Thread(target=server.serve_forever, daemon=True).start()
      yield f"http://127.0.0.1:{server.server_port}/"
      server.shutdown()

  return serving
