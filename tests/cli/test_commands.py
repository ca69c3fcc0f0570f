"""The command line as a whole: what it says of itself, and what it imports."""

import os
import pathlib
import re
import subprocess
import sys

from absl import flags
import pytest

import episodic_dp
from episodic_dp.cli import app
from episodic_dp.cli import commands
from episodic_dp.cli import exit_status

ROOT = pathlib.Path(__file__).resolve().parents[2]


def test_the_overview_names_every_command(call):
  for arguments in ((), ("--help",), ("-h",), ("help",)):
    done = call(*arguments)
    assert (done.returncode, done.stderr) == (0, "")
    for name, command in commands.COMMANDS.items():
      assert f"  {name} " in done.stdout and command.summary in done.stdout


@pytest.mark.parametrize("flag", ["-h", "--help"])
@pytest.mark.parametrize("name", commands.COMMANDS)
def test_help_is_the_docstring_and_the_commands_own_flags(call, name, flag):
  done = call(name, flag)
  assert (done.returncode, done.stderr) == (0, "")
  text = done.stdout
  assert text.startswith(commands.module(name).__doc__.strip())
  assert f"episodic-dp {name} " in text  # An example.
  assert "\nflags:\n" in text and "--alsologtostderr" not in text
  assert max(map(len, text.splitlines())) <= 80
  # What a wheel does not have.
  for sentence in re.split(r"\.\s", text):
    if re.search(r"docs/|experiments/|\bmake [a-z]+ ?`", sentence):
      assert "in a checkout" in sentence.lower()
  before = set(flags.FLAGS)
  for defined in commands.define_flags(commands.module(name)):
    assert f"{defined}" in text
    delattr(flags.FLAGS, defined)
  assert set(flags.FLAGS) == before


def test_defaults_and_choices_are_shown(call):
  text = call("audit", "--help").stdout
  assert "--canary=worst|natural" in text
  assert "<worst|natural>" not in text
  assert "Runs with the record, and as many without it. (default: 50000)" in (
      " ".join(text.split())
  )
  assert "--[no]download" in call("train", "--help").stdout
  assert "(required)" in call("train", "--help").stdout


@pytest.mark.parametrize("name", commands.COMMANDS)
def test_an_empty_name_is_refused_by_every_flag(name, call, tmp_path):
  own = commands.define_flags(commands.module(name))
  kinds = {flag: flags.FLAGS[flag].flag_type() for flag in own}
  required = {flag for flag in own if app.is_required(flags.FLAGS[flag])}
  for flag in own:
    delattr(flags.FLAGS, flag)
  needed = {flag: f"--{flag}={tmp_path / 'x'}" for flag in required}
  if "config" in required:
    needed["config"] = f"--config={'adult' if name == 'pvi' else 'glyphs'}"
  texts = ("string", "multi string", "comma separated list of strings")
  named = [flag for flag in own if kinds[flag] in texts]
  assert named
  for flag in named:
    done = call(name, *(needed | {flag: f"--{flag}="}).values())
    leave = "" if flag in required else ", or leave the flag out"
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        f"error: --{flag}= has an empty value: give one, as in"
        f" --{flag}=NAME{leave}\n"
    )


def test_an_empty_name_among_others_is_refused(call):
  done = call("account", "--ledger=a,,b")
  assert done.returncode == 1
  assert done.stderr.startswith("error: --ledger=a,,b has an empty value: ")


def test_the_version_is_the_packages(call):
  done = call("--version")
  assert done.stdout == f"episodic-dp {episodic_dp.__version__}\n"


def test_an_unknown_command_is_named(call):
  done = call("trian")
  assert done.returncode == 1 and not done.stdout
  assert "'trian' is not a command: use one of train, evaluate" in done.stderr


def test_it_is_a_module_too():
  done = subprocess.run(
      [sys.executable, "-m", "episodic_dp", "--version"],
      cwd=ROOT, capture_output=True, text=True, check=True,
  )
  assert done.stdout == f"episodic-dp {episodic_dp.__version__}\n"


def test_what_only_accounts_imports_no_jax(tmp_path):
  """Run, not only imported."""
  path = tmp_path / "statement.json"
  code = f"""
import sys
from absl import flags
from episodic_dp.cli import app
from episodic_dp.cli import commands

def call(*arguments):
  before = set(flags.FLAGS)
  try:
    commands.main(["episodic-dp", *arguments])
  except SystemExit as e:
    assert not e.code, e.code
  for name in [name for name in flags.FLAGS if name not in before]:
    delattr(flags.FLAGS, name)
  flags.FLAGS.unparse_flags()
  print(arguments[0], "jax" in sys.modules)

call("account", "--config=glyphs", "--statement={path}")
call("verify", "{path}")
call("calibrate", "--config=glyphs", "--epsilon=3")
"""
  done = subprocess.run(
      [sys.executable, "-c", code],
      cwd=ROOT, capture_output=True, text=True, check=False,
  )
  assert done.returncode == 0, done.stderr
  for name in ("account", "verify", "calibrate"):
    assert f"{name} False" in done.stdout.splitlines()


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_reader_that_leaves_is_no_error(unbuffered):
  process = subprocess.Popen(
      [sys.executable, "-m", "episodic_dp", "--help"],
      stdout=subprocess.PIPE, stderr=subprocess.PIPE,
      env=os.environ | {"PYTHONUNBUFFERED": unbuffered},
  )  # fmt: skip
  process.stdout.close()
  assert process.stderr.read() == b""
  assert process.wait(60) == exit_status.ERROR
