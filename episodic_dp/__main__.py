"""`python -m episodic_dp` is `episodic-dp`."""

import warnings

from episodic_dp.cli import interrupts


def main() -> None:
  """Run the console script; handle signals before importing the rest."""
  interrupts.install()
  # For a user of a command, who has no line of code.
  warnings.formatwarning = lambda message, *unused: f"{message}\n"
  # Lazy import: it takes most of a second.
  from episodic_dp.cli import app
  from episodic_dp.cli import commands

  with app.until_unread():
    commands.main()


if __name__ == "__main__":
  main()
