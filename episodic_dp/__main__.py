"""`python -m episodic_dp` is `episodic-dp`."""

from episodic_dp.cli import interrupts


def main() -> None:
  """The console script: signals are handled before the rest is imported."""
  interrupts.install()
  # Lazy import: it takes a good part of a second.
  from episodic_dp.cli import app
  from episodic_dp.cli import commands

  with app.until_unread():
    commands.main()


if __name__ == "__main__":
  main()
