"""What a user sees of mistakes: one sentence, exit status 1, no traceback."""

import errno
import logging
import pathlib
import shlex
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
from episodic_dp.config import RunConfig

config = config_flags.DEFINE_config_file("config", None, "", lock_config=True)
workdir = flags.DEFINE_string("workdir", None, "", required=True)

def main(argv):
  if workdir.value == "bug":
    [][1]
  if workdir.value == "foreign":
    int("x" * 3)
  RunConfig.parse(config.value)
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


def test_a_main_ends_quietly_where_nobody_reads():
  command = [sys.executable, "-c", _MAIN, f"--config={GLYPHS}", "--workdir=x"]
  done = subprocess.run(
      f"{shlex.join(command)} | true",
      shell=True,
      cwd=ROOT,
      capture_output=True,
      text=True,
      timeout=120,
  )
  assert done.stderr == ""


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
            "the config has no field 'zzzz': there are augmentation, checkp",
        ),
        (
            [f"--config={GLYPHS}", "--workdir=x", "--config.mechanism.noise=1"],
            "the config has no field 'noise': there are clip_by, clip_norm,"
            " clip_percentile, clip_quantile, clip_rate, clip_unit,"
            " clip_window, clipping, count_noise, noise_multiplier (--help",
        ),
        (
            [f"--config={GLYPHS}", "--workdir=x", "--config.steps=many"],
            "--config.steps=many must be a whole number, such as --config.ste",
        ),
        (
            [f"--config={GLYPHS}", "--workdir=x", "--config.delta=a: b"],
            "--config.delta=a: b must be a number, such as --config.delta=1e-",
        ),
        (
            [f"--config={GLYPHS}", "--workdir=x", "--config.private_seed=no"],
            "--config.private_seed=no must be a whole number (--help lists",
        ),
        (
            [f"--config={GLYPHS}", "--workdir=x",
             "--config.augmentation.flip=maybe"],
            "--config.augmentation.flip=maybe must be true or false, such as",
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


@pytest.mark.parametrize(
    "error, told",
    [
        (OSError(errno.ENOSPC, "No space left"), "a file cannot be read or"),
        (OSError(errno.EROFS, "Read-only", "x.npy"), "x.npy cannot be"),
        (MemoryError(), "there is not enough memory"),
        (OSError(errno.EINVAL, "Invalid argument"), None),
        (RuntimeError("RESOURCE_EXHAUSTED"), None),
    ],
)
def test_what_the_machine_lacks_is_one_sentence(error, told):
  found = app.sentence(error)
  assert found is None if told is None else told in found


@pytest.mark.parametrize("kind", ["bug", "foreign"])
def test_bugs_keep_their_traceback(kind):
  done = _run(f"--config={GLYPHS}", f"--workdir={kind}")
  assert done.returncode != 0
  assert "Traceback" in done.stderr


def test_lines_of_a_log_stay_one_line(capsys):
  name = "a\nW1\x1b[2J"
  record = logging.LogRecord(
      "absl", logging.WARNING, app.__file__, 1, "left out %s", (name,), None
  )
  assert app._own_lines(record)
  assert record.getMessage() == r"left out a\nW1\x1b[2J"
  with pytest.raises(SystemExit):
    app.fail("no file\x1b[2J called\nthis")
  assert capsys.readouterr().err == "error: no file\\x1b[2J called this\n"
