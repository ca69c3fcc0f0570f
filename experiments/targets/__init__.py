"""Tables and figures that `experiments.reproduce` makes, one file each.

A target offers `runs(scale) -> [Run]`, `table(outcomes) -> (header, rows)` and
`draw(outcomes, figure)`; `outcomes` maps the names of finished runs to what
`runs.finish` returned. Those of `PAIRS` offer `runs`, `finish` and `CHANCE`, as
`pairs` says; those of `FINISHED_BY_THEMSELVES` also `finish` for one run,
`more` for the JSON and `pictures`.
"""

import importlib
from types import ModuleType

SCALES = ("smoke", "cpu", "full")
PAIRS = ("glyphs", "sinusoid")
FINISHED_BY_THEMSELVES = ("pvi_adult", "pvi_prior")
NAMES = (
    "omniglot", "learners", "budget", "sample_level", "mnist_writers", *PAIRS,
    *FINISHED_BY_THEMSELVES,
)  # fmt: skip


def load(name: str) -> ModuleType:
  """The target of that name, imported now: a list of names needs none of them.

  Raises:
    ValueError: there is none.
  """
  if name not in NAMES:
    raise ValueError(
        f"--target={name} does not exist: choose one of {', '.join(NAMES)}"
    )
  return importlib.import_module(f"experiments.targets.{name}")
