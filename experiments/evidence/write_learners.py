"""What can be trained privately, found by asking the code for each combination.

  python -m experiments.evidence.write_learners            prints them
  python -m experiments.evidence.write_learners --write    to docs/learners.md

Under twenty seconds of one core, without data. The file must be written anew
whenever the training step or the accountant learns or refuses something; a test
says when.
"""

from collections.abc import Sequence
import pathlib

from absl import flags
from absl import logging

from episodic_dp.cli import app
from episodic_dp.output import files
from experiments.evidence.learners import page

FILE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "learners.md"


def main(argv: Sequence[str]) -> None:
  del argv
  text = page.document()
  if flags.FLAGS.write:
    files.write_text(FILE, text)
    logging.info("wrote %s", FILE)
  else:
    print(text, end="")


if __name__ == "__main__":  # The flag here, so that tests can import FILE.
  flags.DEFINE_bool("write", False, "Write docs/learners.md.")
  app.run(main)
