"""Which plans have a guarantee, found by asking the accountant for each.

  python -m experiments.support            prints the matrix (Markdown)
  python -m experiments.support --write    writes docs/support.md

A minute, without data or JAX. The file must be written anew whenever the
accountant learns or refuses something; a test says when.
"""

from collections.abc import Sequence
import pathlib

from absl import flags
from absl import logging

from episodic_dp.accounting import support
from experiments import cli
from experiments import files

FILE = pathlib.Path(__file__).resolve().parents[1] / "docs" / "support.md"


def main(argv: Sequence[str]) -> None:
  del argv
  text = support.document()
  if flags.FLAGS.write:
    files.write_text(FILE, text)
    logging.info("wrote %s", FILE)
  else:
    print(text, end="")


if __name__ == "__main__":  # The flag here, so that tests can import FILE.
  flags.DEFINE_bool("write", False, "Write docs/support.md.")
  cli.run(main)
