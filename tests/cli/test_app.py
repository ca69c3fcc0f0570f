"""What a user sees of mistakes: one sentence, exit status 1, no traceback."""

import os
import pathlib
import subprocess
import sys

import pytest

from episodic_dp.cli import app

ROOT = pathlib.Path(__file__).resolve().parents[2]
GLYPHS = "episodic_dp/config/presets/glyphs.py"

# The wrapper alone: the mains take seconds to import.
_MAIN = """
from absl import flags
from ml_collections import config_flags
from episodic_dp import plan
from episodic_dp.cli import app
from episodic_dp.config import describe

config = config_flags.DEFINE_config_file("config", None, "", lock_config=True)
workdir = flags.DEFINE_string("workdir", None, "", required=True)

def main(argv):
  if workdir.value == "bug":
    [][1]
  if workdir.value == "foreign":
    int("x" * 3)
  describe.describe(config.value)
  print("fine")

app.run(main)
"""


def _run(*arguments):
  return subprocess.run(
      [sys.executable, "-c", _MAIN, *arguments],
      cwd=ROOT,
      capture_output=True,
      text=True,
      timeout=120,
  )


def test_a_right_command_runs():
  done = _run(f"--config={GLYPHS}:steps=3", "--workdir=x", "--config.steps=4")
  assert (done.returncode, done.stdout) == (0, "fine\n"), done.stderr


@pytest.mark.parametrize(
    "arguments, sentence",
    [
        ([f"--config={GLYPHS}"], "the flag --workdir is missing"),
        (
            ["--config=none", "--workdir=x"],
            "--config=none is neither a file nor a preset: the presets are"
            " cifar_fs, cifar_fs_superclasses",
        ),
        (
            [f"--config={GLYPHS}:widht=3", "--workdir=x"],
            "config argument 'widht=3' is not known",
        ),
        (
            [f"--config={GLYPHS}", "--workdir=x", "--config.stpes=3"],
            "the config has no field 'stpes': did you mean 'steps'?",
        ),
        (
            [f"--config={GLYPHS}", "--workdir=x", "--config.zzzz.y=3"],
            "the config has no field 'zzzz'",
        ),
        (
            [f"--config={GLYPHS}", "--workdir=x", "--config.steps=many"],
            "--config.steps=many",
        ),
        ([f"--config={GLYPHS}", "--workdr=x"], "'workdr'"),
        (
            [f"--config={GLYPHS}", "--workdir=x", "more"],
            "argument 'more' is not a flag",
        ),
        (
            [
                f"--config={GLYPHS}",
                "--workdir=x",
                "--config.mechanism.noise_multiplier=-1",
            ],
            "noise_multiplier -1.0 must be",
        ),
    ],
)
def test_mistakes_are_one_sentence(arguments, sentence):
  done = _run(*arguments)
  assert done.returncode == 1, done.stderr
  lines = done.stderr.strip().splitlines()
  assert len(lines) == 1 and lines[0].startswith("error: "), done.stderr
  assert sentence in lines[0]
  assert "fine" not in done.stdout


@pytest.mark.parametrize("kind", ["bug", "foreign"])
def test_bugs_keep_their_traceback(kind):
  done = _run(f"--config={GLYPHS}", f"--workdir={kind}")
  assert done.returncode != 0
  assert "Traceback" in done.stderr


@pytest.mark.parametrize("imported", [False, True])
def test_programs_are_cached_in_the_users_cache(tmp_path, imported):
  """Whether JAX is imported before or after; nobody else may write there."""
  begin = "import jax\n" if imported else ""
  code = begin + (
      "from episodic_dp.cli import app\n"
      "folder = app.use_compilation_cache()\n"
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


@pytest.mark.parametrize(
    "flags,named",
    [
        (("host:1", None, 0), "--coordinator=host:1 needs --num_processes"),
        (("host:1", 2, 2), "--process_id=2 must be at least 0 and less than"),
        ((None, 2, 0), "need --coordinator=HOST:PORT"),
        (("auto", None, 1), "need --coordinator=HOST:PORT"),
    ],
)
def test_flags_of_several_processes_go_together(flags, named):
  with pytest.raises(ValueError) as error:
    app.join(*flags)
  assert named in str(error.value)


def test_one_process_stays_alone(monkeypatch):
  asked = []
  monkeypatch.setattr(
      "jax.distributed.initialize", lambda *args, **kwargs: asked.append(args)
  )
  monkeypatch.setenv("SLURM_NTASKS", "4")  # An allocation, not a step of srun.
  app.join(None, None, None)
  assert not asked
  monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "4")
  app.join(None, None, None)
  app.join("host:1", 2, 0)
  assert asked == [(None, None, None), ("host:1", 2, 0)]


@pytest.mark.parametrize(
    ("cores", "environment", "asked"),
    [
        (2, {}, [2]),
        (64, {}, [8]),  # More are not tested.
        (4, {"JAX_NUM_CPU_DEVICES": "3"}, []),
        (4, {"XLA_FLAGS": "--xla_force_host_platform_device_count=2"}, []),
    ],
)
def test_every_core_is_a_device_unless_told_otherwise(
    cores, environment, asked, monkeypatch
):
  import jax

  found = []
  monkeypatch.setattr(
      jax.config, "update", lambda name, value: found.append((name, value))
  )
  monkeypatch.delenv("XLA_FLAGS", raising=False)
  for name, value in environment.items():
    monkeypatch.setenv(name, value)
  monkeypatch.setattr(
      os, "sched_getaffinity", lambda _: set(range(cores)), raising=False
  )
  app.use_cores()
  assert found == [("jax_num_cpu_devices", count) for count in asked]


def test_imports_leave_the_devices_open():
  """Once JAX was asked for devices, cores can no longer become some."""
  code = (
      "import experiments.reproduce, episodic_dp.cli.commands\n"
      "import jax\n"
      "jax.config.update('jax_num_cpu_devices', 3)\n"
      "print(jax.device_count())"
  )
  done = subprocess.run(
      [sys.executable, "-c", code],
      cwd=ROOT,
      env={**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": ""},
      capture_output=True,
      text=True,
  )
  assert done.stdout.split() == ["3"], done.stderr
