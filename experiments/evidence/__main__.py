"""Writes the pages whose tables are the code's own answers.

  python -m experiments.evidence --write
  python -m experiments.evidence --only=support,learners,errata

  support   docs/support.md: which plans have a guarantee (a minute)
  learners  docs/learners.md: what can be trained privately (twenty seconds)
  errata    the tables of episodic_dp/accounting/README.md: what is wrong in
            print, and by how much (half a minute)
  choosing  the tables of docs/choosing.md: tasks, noise and clipping (a minute)

Nothing is read but the code and experiments/results/, no data are needed.
Without --write what would be written is printed: whole pages, or the tables of
pages that have other text besides. They must be written anew whenever the
accountant or the training step learns or refuses something; tests say when.
"""

from collections.abc import Sequence
import pathlib

from absl import flags
from absl import logging

from episodic_dp import backends
from episodic_dp.cli import app
from episodic_dp.output import files
from episodic_dp.output import phases
from experiments.evidence import choosing
from experiments.evidence import errata
from experiments.evidence import learners
from experiments.evidence import pages
from experiments.evidence import support

_PAGES = {
    "support": support,
    "learners": learners,
    "errata": errata,
    "choosing": choosing,
}
_ROOT = pathlib.Path(__file__).resolve().parents[2]

_WRITE = flags.DEFINE_bool("write", False, "Write the files.")
_ONLY = flags.DEFINE_list("only", [], "Names of pages; all of them if empty.")


def main(argv: Sequence[str]) -> None:
  """Prints the pages, or writes them."""
  del argv
  for name in _ONLY.value:
    if name not in _PAGES:
      raise ValueError(
          f"unknown page '{name}': choose among {', '.join(_PAGES)}"
      )
  backends.use_all_cores()
  for name in _ONLY.value or _PAGES:
    page = _PAGES[name]
    with phases.phase(f"computing {name}", at_once=True):
      text = page.document()
    if _WRITE.value:
      files.write_text(page.FILE, text)
      logging.info("wrote %s", page.FILE.relative_to(_ROOT))
    else:
      print(pages.marked(text, name) or text, end="")


if __name__ == "__main__":
  app.run(main)
