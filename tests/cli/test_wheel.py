"""The presets by name, from outside the repository: source tree and wheel."""

import os
import pathlib
import shutil
import subprocess
import sys
import sysconfig
import zipfile

import pytest

from episodic_dp.config import presets
from tests import walk

ROOT = pathlib.Path(__file__).resolve().parents[2]


def _commands(path, folder):
  """Runs commands in a folder, with the package from a path alone."""

  def run(*arguments):
    done = subprocess.run(
        [sys.executable, "-m", "episodic_dp", *arguments],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(path), "EPISODIC_DP_CACHE": "off"},
        capture_output=True,
        text=True,
        timeout=400,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout

  return run


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
  """Built of a copy of the tree, without the network."""
  pytest.importorskip("setuptools", minversion="77")  # As pyproject.toml asks.
  out = tmp_path_factory.mktemp("wheel")
  tree = out / "tree"
  shutil.copytree(
      ROOT / "episodic_dp", tree / "episodic_dp",
      ignore=shutil.ignore_patterns("__pycache__"),
  )
  for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
    shutil.copy(ROOT / name, tree)
  for other in ("experiments", "tests"):  # These stay out.
    (tree / other).mkdir()
    (tree / other / "__init__.py").touch()
  subprocess.run(
      [
          sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps",
          "--no-build-isolation", "--no-index", f"--wheel-dir={out}", str(tree),
      ],
      cwd=out, check=True, timeout=200,
  )
  (path,) = out.glob("*.whl")
  return path


@pytest.mark.parametrize("name", sorted({*presets.NAMES} - {"own_data"}))
@pytest.mark.few(4)
def test_every_preset_is_known_by_its_name(call, name, monkeypatch, tmp_path):
  monkeypatch.chdir(tmp_path)
  done = call("account", f"--config={name}", "--config.steps=1")
  assert done.returncode == 0, done.stderr
  assert done.stdout.startswith("1 steps, one clipped gradient per ")


@pytest.mark.slow  # Builds and installs a wheel, and compiles a run.
def test_a_wheel_trains_evaluates_and_accounts(wheel, tmp_path):
  target, folder = tmp_path / "site", tmp_path / "elsewhere"
  folder.mkdir()
  subprocess.run(
      [
          sys.executable, "-m", "pip", "install", "--quiet", "--no-deps",
          "--no-index", f"--target={target}", str(wheel),
      ],
      check=True, capture_output=True, timeout=200,
  )
  run = _commands(target, folder)
  where = subprocess.run(
      [sys.executable, "-c", "import episodic_dp; print(episodic_dp.__file__)"],
      cwd=folder, env=os.environ | {"PYTHONPATH": str(target)},
      capture_output=True, text=True, check=True,
  ).stdout
  assert where.startswith(str(target))
  walk.walk(run, folder)


@pytest.mark.slow  # Builds a wheel.
def test_a_wheel_holds_what_is_read_and_no_more(wheel):
  with zipfile.ZipFile(wheel) as z:
    names = set(z.namelist())
    entry_points = next(n for n in names if n.endswith("entry_points.txt"))
    assert "episodic-dp = episodic_dp.__main__:main" in (
        z.read(entry_points).decode()
    )
    about = next(n for n in names if n.endswith("/METADATA"))
    assert "\nLicense-Expression: Apache-2.0\n" in z.read(about).decode()
  kept = {
      str(path.relative_to(ROOT))
      for path in (ROOT / "episodic_dp").rglob("*")
      if path.is_file() and path.suffix not in (".md", ".pyc")
  }
  assert {n for n in names if n.startswith("episodic_dp/")} == kept
  tops = {name.split("/")[0] for name in names}
  assert {t for t in tops if not t.endswith(".dist-info")} == {"episodic_dp"}


ACCOUNT = """
from episodic_dp import accounting, plan
from episodic_dp.sampling import numpy_sampler
release = plan.Release(
    plan.Hierarchy.regular((1000, 10), levels=("user", "example")),
    plan.SamplingPlan((plan.Poisson(0.1), plan.FixedSize(2))),
    plan.Mechanism(clip_unit="user", noise_multiplier=2.0),
)
for accountant in ("pld", "rdp", "moments"):
  for found in accounting.guarantees(
      release, steps=100, delta=1e-5, accountant=accountant
  ).values():
    print(found)
"""


@pytest.mark.slow  # Builds a wheel.
def test_the_accountant_needs_numpy_and_scipy_alone(wheel, tmp_path):
  for name in ("numpy", "numpy.libs", "scipy", "scipy.libs"):
    held = pathlib.Path(sysconfig.get_path("platlib")) / name
    if held.exists():
      (tmp_path / name).symlink_to(held)
  with zipfile.ZipFile(wheel) as z:
    z.extractall(tmp_path)
  done = subprocess.run(
      [sys.executable, "-S", "-c", ACCOUNT],  # Without other packages.
      cwd=tmp_path, env={"PYTHONPATH": str(tmp_path)},
      capture_output=True, text=True, check=True,
  )
  assert done.stdout.count("user: epsilon") == 3
  assert done.stdout.count("example: epsilon") == 3
