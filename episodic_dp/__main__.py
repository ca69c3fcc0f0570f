"""`python -m episodic_dp` is `episodic-dp`."""

from episodic_dp.cli import commands

if __name__ == "__main__":
  commands.main()
