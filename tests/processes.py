"""Programs of a fresh Python, in the repository's folder."""

import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
QUICK = {"XLA_FLAGS": "--xla_backend_optimization_level=0"}  # To compile.


def python(*words, cwd=ROOT, timeout=400, **environment):
  """Run a program and return its end; further variables of its environment."""
  return subprocess.run(
      [sys.executable, *map(str, words)], cwd=cwd, env=os.environ | environment,
      capture_output=True, text=True, timeout=timeout, check=False,
  )


def printed(*words, **options):
  """Return what a program prints that must not fail."""
  done = python(*words, **options)
  assert done.returncode == 0, done.stderr[-4000:]
  return done.stdout
