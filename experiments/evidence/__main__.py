"""Write the pages whose tables are computed by the code.

  python -m experiments.evidence --write
  python -m experiments.evidence --only=support,learners,errata

  support   docs/support.md: plans that have a guarantee (a minute)
  learners  docs/learners.md: learners that can be trained (twenty seconds)
  errata    the tables of episodic_dp/accounting/README.md: errors in print,
            and their size (half a minute)
  configuration  docs/configuration.md: every field of a config

They read the code only and no data. Without --write the pages are printed.
Write them again whenever the accountant or the training step supports or
refuses something new; tests compare them.
"""

from collections.abc import Sequence

from absl import flags
from absl import logging

from episodic_dp import backends
from episodic_dp.cli import app
from episodic_dp.output import files
from experiments.evidence import configuration
from experiments.evidence import errata
from experiments.evidence import learners
from experiments.evidence import support

_PAGES = {
    "support": support,
    "learners": learners,
    "errata": errata,
    "configuration": configuration,
}

_WRITE = flags.DEFINE_bool("write", False, "Write the files.")
_ONLY = flags.DEFINE_list(
    "only", list(_PAGES), "Names of pages; all by default."
)


def main(_: Sequence[str]) -> None:
  """Print the pages, or write them."""
  backends.use_all_cores()
  for name in _ONLY.value:
    page = _PAGES[name]
    text = page.document()
    if _WRITE.value:
      files.write_text(page.FILE, text)
      logging.info("wrote %s", page.FILE)
    else:
      print(text, end="")


if __name__ == "__main__":
  app.run(main)
