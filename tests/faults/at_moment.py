"""The command `episodic-dp`, interfered with at a moment of its own.

  python -m tests.faults.at_moment MODULE:FUNCTION N SHELL COMMAND [--flag ...]

Before the N-th call of a function of the library the shell does what it is
told: fills a disk, say. The command knows nothing of it. MODULE:NAME=NUMBER
gives a constant another value instead.
"""

from collections.abc import Callable
import importlib
import itertools
import subprocess
import sys

from episodic_dp import __main__ as program


def _interfered(plain: Callable, number: int, shell: str) -> Callable:
  """The function, before one call of which the shell acts."""
  calls = itertools.count(1)

  def call(*args: object, **kwargs: object) -> object:
    if next(calls) == number:
      # Its own streams: whoever reads the command's waits for their end.
      subprocess.run(
          ["sh", "-c", shell], check=False, stdout=subprocess.DEVNULL,
          stderr=subprocess.DEVNULL,
      )  # fmt: skip
    return plain(*args, **kwargs)

  return call


def main() -> None:
  """Puts the moment in place and runs the command."""
  _, target, number, shell, *arguments = sys.argv
  name, _, path = target.partition(":")
  path, equals, value = path.partition("=")
  owner = importlib.import_module(name)
  *classes, last = path.split(".")
  for part in classes:
    owner = getattr(owner, part)
  plain = getattr(owner, last)
  made = _interfered(plain, int(number), shell)
  setattr(owner, last, int(value) if equals else made)
  sys.argv = ["episodic-dp", *arguments]
  program.main()


if __name__ == "__main__":
  main()
