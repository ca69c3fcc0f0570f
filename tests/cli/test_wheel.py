"""The presets by name, from outside the repository: source tree and wheel."""

import functools
import shutil
import zipfile

import pytest

from episodic_dp.config import presets
from tests import processes
from tests import walk


def _commands(path, folder):
  """Runs commands in a folder, with the package from a path alone."""
  return functools.partial(
      processes.printed, "-m", "episodic_dp", cwd=folder,
      PYTHONPATH=str(path), EPISODIC_DP_CACHE="off",
  )


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
  """Built of a copy of the tree, without the network."""
  pytest.importorskip("setuptools", minversion="77")  # As pyproject.toml asks.
  out = tmp_path_factory.mktemp("wheel")
  tree = out / "tree"
  shutil.copytree(
      processes.ROOT / "episodic_dp", tree / "episodic_dp",
      ignore=shutil.ignore_patterns("__pycache__"),
  )
  for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
    shutil.copy(processes.ROOT / name, tree)
  for other in ("experiments", "tests"):  # These stay out.
    (tree / other).mkdir()
    (tree / other / "__init__.py").touch()
  processes.printed(
      "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation",
      "--no-index", f"--wheel-dir={out}", tree, cwd=out,
  )
  (path,) = out.glob("*.whl")
  return path


@pytest.mark.parametrize("name", sorted({*presets.NAMES} - {"own_data"}))
@pytest.mark.few(4)
def test_every_preset_is_known_by_its_name(call, name, monkeypatch, tmp_path):
  monkeypatch.chdir(tmp_path)
  done = call("account", f"--config={name}", "--config.steps=1")
  assert done.returncode == 0, done.stderr
  assert done.stdout.startswith("steps=1, one clipped gradient per ")


@pytest.mark.slow  # Builds and installs a wheel, and compiles a run.
def test_a_wheel_trains_evaluates_and_accounts(wheel, tmp_path):
  target, folder = tmp_path / "site", tmp_path / "elsewhere"
  folder.mkdir()
  processes.printed(
      "-m", "pip", "install", "--quiet", "--no-deps", "--no-index",
      f"--target={target}", wheel,
  )
  run = _commands(target, folder)
  where = processes.printed(
      "-c", "import episodic_dp; print(episodic_dp.__file__)", cwd=folder,
      PYTHONPATH=str(target),
  )
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
      str(path.relative_to(processes.ROOT))
      for path in (processes.ROOT / "episodic_dp").rglob("*")
      if path.is_file() and path.suffix not in (".md", ".pyc")
  }
  assert {n for n in names if n.startswith("episodic_dp/")} == kept
  tops = {name.split("/")[0] for name in names}
  assert {t for t in tops if not t.endswith(".dist-info")} == {"episodic_dp"}
