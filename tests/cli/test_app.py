"""The command line as a whole: help, mistakes as one sentence, and imports."""

import errno
import logging
import os
import pathlib
import re
import subprocess
import sys

from absl import flags
import jax
import pytest

import episodic_dp
from episodic_dp import errors
from episodic_dp.cli import app
from episodic_dp.cli import commands
from episodic_dp.cli import exit_status
from tests import processes

_GLYPHS = ("--config=glyphs",)


def test_the_overview_names_every_command(call):
  for arguments in ((), ("--help",), ("-h",), ("help",)):
    done = call(*arguments)
    assert (done.returncode, done.stderr) == (0, "")
    for name, purpose in commands.COMMANDS.items():
      assert f"  {name} " in done.stdout and purpose in done.stdout
  assert call("--version").stdout == f"episodic-dp {episodic_dp.__version__}\n"
  done = call("trian")
  assert done.returncode == 1 and "'trian' is not a command" in done.stderr


@pytest.mark.parametrize("name", commands.COMMANDS)
def test_help_and_flags_of_a_command(name, call, tmp_path):
  done = call(name, "--help")
  assert (done.returncode, done.stderr) == (0, "")
  text = done.stdout
  assert text.startswith(commands.module(name).__doc__.strip())
  assert f"episodic-dp {name} " in text  # An example.
  assert max(map(len, text.splitlines())) <= 80
  own = commands.define_flags(commands.module(name))
  assert ("\nflags:\n" in text) == bool(own) and "--alsologtostderr" not in text
  kinds = {flag: flags.FLAGS[flag].flag_type() for flag in own}
  needed = {
      flag: f"--{flag}={1 if kinds[flag] == 'float' else tmp_path / 'x'}"
      for flag in own if app.is_required(flags.FLAGS[flag])
  }
  for flag in own:
    assert flag in text
    delattr(flags.FLAGS, flag)
  if "config" in needed:
    needed["config"] = f"--config={'adult' if name == 'pvi' else 'glyphs'}"
  texts = ("string", "multi string", "comma separated list of strings")
  for flag in own:  # An empty name would be the current folder.
    if kinds[flag] in texts and "." not in flag:
      done = call(name, *(needed | {flag: f"--{flag}="}).values())
      assert (done.returncode, done.stdout) == (1, "")
      assert done.stderr.startswith(f"error: --{flag}= has an empty value")


@pytest.mark.parametrize(
    "error, reported",
    [
        (OSError(errno.ENOSPC, "No space left", "x.npy"), "No space left"),
        (FileNotFoundError(errno.ENOENT, "No such file", "x"), "No such file"),
        (errors.PlanError("steps=0: expected more"), "steps=0"),
        (errors.DataError("x.png is no image"), "x.png"),
        (errors.UnsoundPlanError("no proof"), "no proof"),
        (errors.RunError("no checkpoint"), "no checkpoint"),
        (MemoryError(), "not enough memory"),
        (RuntimeError("RESOURCE_EXHAUSTED"), None),
        (ValueError("of a library, or of a mistake in this one"), None),
        (IndexError("a bug"), None),
    ],
)
def test_what_a_user_can_mend_is_one_sentence(error, reported):
  found = app.sentence(error)
  assert found is None if reported is None else reported in found


@pytest.mark.parametrize(
    "folder", ["episodic_dp/data", "experiments", "launch"]
)
def test_faults_of_users_have_a_type(folder):
  """A bare ValueError would end a command with a traceback."""
  root = pathlib.Path(app.__file__).parents[2]
  for path in (root / folder).rglob("*.py"):
    assert "raise ValueError(" not in path.read_text(), path


def test_a_tilde_is_the_home_folder_in_every_argument(monkeypatch):
  monkeypatch.setenv("HOME", "/home/ann")
  values = flags.FlagValues()
  flags.DEFINE_string("workdir", None, "", flag_values=values)
  flags.DEFINE_list("ledger", [], "", flag_values=values)
  flags.DEFINE_multi_string("config.FIELD", [], "", flag_values=values)
  rest = app.parse_flags(
      ["x", "--workdir=~/run", "--ledger=~/a,b~,~", "~/s.json", "a~/b",
       "--config.model.start=~/w.npz"], values,
  )
  assert rest == ["x", "/home/ann/s.json", "a~/b"]
  assert values.workdir == "/home/ann/run"
  assert values.ledger == ["/home/ann/a", "b~", "/home/ann"]
  assert values["config.FIELD"].value == ["model.start=/home/ann/w.npz"]


@pytest.mark.parametrize(
    "settings, words",
    [
        ({"JAX_NUMPY_DTYPE_PROMOTION": "strict"}, "DTYPE_PROMOTION is set"),
        ({"JAX_NUMPY_RANK_PROMOTION": "raise"}, None),
        ({"XLA_FLAGS": "--xla_backend_extra_options=x --xla_disable_hlo_passes"
                       "=fusion,dot-decomposer,call-inliner"}, None),
    ],
)
@pytest.mark.slow
def test_settings_that_optimisers_refuse_are_one_sentence(
    settings, words, tmp_path
):
  done = processes.python(
      "-m", "episodic_dp", "train", "--config=sinusoid", "--config.steps=1",
      f"--workdir={tmp_path}", **settings,
  )
  assert "Traceback" not in done.stderr
  if words is not None:
    assert done.returncode == 1 and words in done.stderr.splitlines()[-1]


def test_an_error_of_xla_is_one_sentence_and_no_traceback(capsys):
  def main(argv):
    raise jax.errors.JaxRuntimeError("INVALID_ARGUMENT: No such option: x\nat")

  with pytest.raises(SystemExit):
    app.run(main, ["test"])
  assert "error: XLA failed (INVALID_ARGUMENT: No such option: x): if" in (
      capsys.readouterr().err
  )


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


def test_what_only_accounts_needs_numpy_scipy_and_absl_alone(tmp_path):
  """Run, not only imported; other commands name the package that is missing."""
  code = f"""
import sys
from importlib import abc

class Nothing(abc.MetaPathFinder):
  kept = {{"absl", "numpy", "scipy", "episodic_dp", *sys.stdlib_module_names}}

  def find_spec(self, name, path=None, target=None):
    top = name.partition(".")[0]
    if top not in self.kept and not top.startswith("_"):
      raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Nothing())
from absl import flags
from episodic_dp.cli import app
from episodic_dp.cli import commands

def call(*arguments):
  before = set(flags.FLAGS)
  try:
    commands.main(["episodic-dp", *arguments])
  except SystemExit as e:
    print(arguments[0], e.code or 0)
  for name in [name for name in flags.FLAGS if name not in before]:
    delattr(flags.FLAGS, name)
  flags.FLAGS.unparse_flags()

call("account", "--config=glyphs", "--statement={tmp_path / 'x.json'}")
call("verify", "{tmp_path / 'x.json'}")
call("calibrate", "--config=cifar_fs_superclasses", "--epsilon=3")
for name in {{*commands.COMMANDS}} - {{"account", "verify", "calibrate"}}:
  call(name, "--help")
"""
  done = processes.python("-c", code)
  assert done.returncode == 0, done.stderr
  accounts = ("account", "verify", "calibrate")
  for name in commands.COMMANDS:
    ended = f"{name} {exit_status.ERROR * (name not in accounts)}"
    assert ended in done.stdout.splitlines(), name
  missing = done.stderr.count("is not installed: install episodic_dp with")
  assert missing == len(commands.COMMANDS) - len(accounts)
  assert "Traceback" not in done.stderr


def test_the_help_of_libraries_is_no_error():
  done = processes.python("-m", "episodic_dp", "account", "--helpfull")
  assert (done.returncode, done.stderr) == (0, "")
  assert "--config" in done.stdout and "--[no]alsologtostderr" in done.stdout
  done = processes.python("-m", "episodic_dp", "--helpfull")
  assert (done.returncode, done.stderr) == (0, "")


def test_a_warning_shows_no_line_of_code():
  code = (
      "import sys, warnings; from episodic_dp.__main__ import main;"
      " sys.argv[1:] = ['--version']; main(); warnings.warn('a sentence')"
  )
  assert processes.python("-c", code).stderr == "a sentence\n"


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("arguments", [["--help"], ["account", *_GLYPHS]])
def test_a_reader_that_leaves_is_no_error(unbuffered, arguments):
  with subprocess.Popen(
      [sys.executable, "-m", "episodic_dp", *arguments],
      stdout=subprocess.PIPE, stderr=subprocess.PIPE,
      env=os.environ | {"PYTHONUNBUFFERED": unbuffered},
  ) as process:
    process.stdout.close()
    said = process.stderr.read().decode()  # How long it takes, when slow.
    assert not re.search("error|Broken pipe|Traceback|Exception", said), said
    assert process.wait(60) == exit_status.ERROR


@pytest.mark.slow  # Processes that import JAX.
@pytest.mark.parametrize("imported", [False, True])
def test_compiled_programs_are_kept_where_they_are_told(
    tmp_path, imported, monkeypatch
):
  code = (
      "import jax\n" * imported
      + "from episodic_dp.cli import app\napp._keep_compiled_programs()\n"
      + "import jax\nprint(jax.config.jax_compilation_cache_dir)\n"
  )
  monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR")

  def folder(**environment):
    return processes.printed("-c", code, **environment).strip()

  own = folder(EPISODIC_DP_CACHE=str(tmp_path))
  assert pathlib.Path(own).parent == tmp_path
  assert folder(EPISODIC_DP_CACHE="off") == "None"
  assert folder(JAX_COMPILATION_CACHE_DIR="/jax") == "/jax"


def test_bugs_keep_their_traceback():
  code = "from episodic_dp.cli import app\napp.run(lambda argv: [][1])"
  done = processes.python("-c", code)
  assert done.returncode != 0 and "IndexError" in done.stderr
