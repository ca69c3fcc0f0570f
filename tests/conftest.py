"""What tests of several folders share."""

import os

import jax
import pytest

# One device whatever the cores: the mains that tests call would ask for more.
jax.devices()

_OPTIONS = {
    "jax_persistent_cache_min_compile_time_secs": 0,
    "jax_persistent_cache_min_entry_size_bytes": -1,
}


@pytest.fixture(scope="session")
def compilation_cache(tmp_path_factory):
  """Compiled programs are shared by the tests' runs and their subprocesses.

  The cache lasts for the session; the old settings come back.
  """
  options = {
      "jax_compilation_cache_dir": str(tmp_path_factory.mktemp("compiled")),
      **_OPTIONS,
  }
  before = {name: getattr(jax.config, name) for name in options}
  for name, value in options.items():
    jax.config.update(name, value)
    os.environ[name.upper()] = str(value)
  yield
  for name, value in before.items():
    jax.config.update(name, value)
    os.environ.pop(name.upper())
