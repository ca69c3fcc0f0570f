"""Commands called in this process, as the console script calls them."""

import dataclasses
import sys

from absl import flags
import pytest

from episodic_dp.cli import commands


@dataclasses.dataclass(frozen=True)
class Done:
  """The end of a command, as `subprocess.run` returns it."""

  returncode: int
  stdout: str
  stderr: str


@pytest.fixture
def call(capfd, monkeypatch):
  """call(command, *arguments) -> Done; bugs keep their traceback."""
  monkeypatch.setenv("EPISODIC_DP_CACHE", "off")
  monkeypatch.setattr(sys, "argv", sys.argv)  # Commands replace it.

  def run(*arguments):
    before, status = set(flags.FLAGS), 0
    capfd.readouterr()
    try:
      commands.main(["episodic-dp", *map(str, arguments)])
    except SystemExit as e:
      status = e.code or 0
    finally:
      # Another command of this process may define its own of that name.
      for name in [name for name in flags.FLAGS if name not in before]:
        delattr(flags.FLAGS, name)
      flags.FLAGS.unparse_flags()
    return Done(status, *capfd.readouterr())

  return run
