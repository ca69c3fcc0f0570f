"""Wheel and source archive are what a package index takes."""

import importlib
import pathlib
import subprocess
import sys
import tarfile

import pytest

ROOT = pathlib.Path(__file__).parent.parent


@pytest.mark.slow  # Builds both, without the network.
def test_wheel_and_source_archive_are_in_order(tmp_path):
  pytest.importorskip("setuptools", minversion="77")  # As pyproject.toml asks.
  for name in ("build", "check_wheel_contents", "twine"):
    pytest.importorskip(name, reason="pip install '.[release]'")
  tree = tmp_path / "tree"
  subprocess.run(
      ["git", "clone", "-q", "--depth=1", ROOT.as_uri(), str(tree)], check=True
  )

  def call(*arguments):
    subprocess.run(
        [sys.executable, "-m", *arguments], cwd=tree, check=True, timeout=200,
        capture_output=True,
    )

  call("build", "--no-isolation", f"--outdir={tmp_path}", ".")
  (wheel,) = tmp_path.glob("*.whl")
  (source,) = tmp_path.glob("*.tar.gz")
  call("twine", "check", "--strict", str(wheel), str(source))
  call("check_wheel_contents", str(wheel))
  with tarfile.open(source) as archive:
    tops = {name.split("/")[1] for name in archive.getnames() if "/" in name}
  assert {"LICENSE", "README.md", "episodic_dp", "setup.py"} <= tops
  assert not tops & {"tests", "docs", "experiments"}


@pytest.mark.parametrize(
    "name",
    ["accounting", "auditing", "data", "export", "learners", "models", "plan",
     "private", "pvi", "sampling", "training"],
)
def test_a_public_module_shows_its_public_names_alone(name):
  module = importlib.import_module(f"episodic_dp.{name}")
  assert dir(module) == sorted(module.__all__)
