"""`python -m episodic_dp` is `episodic-dp`."""

import os
import sys

from episodic_dp.cli import exit_status
from episodic_dp.cli import interrupts


def main() -> None:
  """The console script: signals are handled before the rest is imported."""
  interrupts.install()
  # Lazy import: it takes a good part of a second.
  from episodic_dp.cli import app
  from episodic_dp.cli import commands

  try:
    commands.main()
    sys.stdout.flush()
  except BrokenPipeError:
    if not app.reader_left():
      raise
    # `episodic-dp train --help | head`: whoever reads has seen enough, and
    # Python would say that it could not write the rest when it ends.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(exit_status.ERROR)


if __name__ == "__main__":
  main()
