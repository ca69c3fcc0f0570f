"""Which plans have a guarantee, found by asking the accountant for each.

  python -m experiments.evidence.write_support            prints it
  python -m experiments.evidence.write_support --write    to docs/support.md

A minute, without data or JAX. The file must be written anew whenever the
accountant learns or refuses something; a test says when.
"""

from collections.abc import Sequence
import pathlib

from absl import flags
from absl import logging

from episodic_dp.cli import app
from episodic_dp.output import files
from experiments.evidence import plans

FILE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "support.md"


def main(argv: Sequence[str]) -> None:
  del argv
  text = plans.document()
  if flags.FLAGS.write:
    files.write_text(FILE, text)
    logging.info("wrote %s", FILE)
  else:
    print(text, end="")


if __name__ == "__main__":  # The flag here, so that tests can import FILE.
  flags.DEFINE_bool("write", False, "Write docs/support.md.")
  app.run(main)
