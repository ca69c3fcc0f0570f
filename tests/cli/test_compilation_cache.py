"""Where compiled programs are kept between two commands."""

import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.mark.slow  # Two processes that compile.
@pytest.mark.parametrize("imported", [False, True])
def test_programs_are_cached_in_the_users_cache(tmp_path, imported):
  """Whether JAX is imported before or after; nobody else may write there."""
  begin = "import jax\n" if imported else ""
  code = begin + (
      "from episodic_dp.cli import compilation_cache\n"
      "folder = compilation_cache.use()\n"
      "import jax\n"
      "print(folder)\n"
      "print(jax.config.jax_compilation_cache_dir)\n"
  )

  def folders(**environment):
    keep = {
        k: v
        for k, v in os.environ.items()
        if k not in ("EPISODIC_DP_CACHE", "JAX_COMPILATION_CACHE_DIR")
    }
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env=keep | environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert not done.returncode, done.stderr
    used, told = done.stdout.splitlines()
    assert used == told
    return used

  used = pathlib.Path(folders(XDG_CACHE_HOME=str(tmp_path)))
  assert used.parent == tmp_path / "episodic_dp"
  assert used.stat().st_mode & 0o777 == 0o700
  if imported:
    return
  own = folders(EPISODIC_DP_CACHE=str(tmp_path / "own"))
  assert pathlib.Path(own).parent == tmp_path / "own"
  assert folders(EPISODIC_DP_CACHE="off") == "None"
  (tmp_path / "file").touch()  # A folder cannot be made in it.
  assert folders(EPISODIC_DP_CACHE=str(tmp_path / "file")) == "None"
  assert folders(JAX_COMPILATION_CACHE_DIR="/jax") == "/jax"
