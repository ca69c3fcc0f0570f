"""Tables and figures that `experiments.reproduce` makes, one file each.

A target offers `runs(scale) -> [Run]`, `table(outcomes) -> (header, rows)` and
`draw(outcomes, figure)`; `outcomes` maps the names of finished runs to what
`runs.finish` returned. Those of `FINISHED_BY_THEMSELVES` offer also `finish`
for one run that is not finished. `more(outcomes)`, fields of the JSON, and
`pictures(folder)` may be missing.

What `results_pages` prints besides: the module docstring as introduction,
`finding(outcomes)`, one sentence with the numbers that matter ("" where there
are too few runs), and `NOTES`, Markdown without results: how settings were
chosen, what the numbers do not say. Both may be missing.
"""

import importlib
from types import ModuleType

SCALES = ("smoke", "cpu", "full")
FINISHED_BY_THEMSELVES = (
    "audited_plans", "pvi_adult", "pvi_prior", "figure12", "figure13_starts",
    "amplification", "table4", "sinusoid",
)  # fmt: skip
NAMES = (
    "table3", "frontier", "learners", "budget", "sample_level",
    "mnist_writers", "stages", "figure4", "figure6a", "figure6b", "figure6c",
    "figure7", "figure9", "figure10", "figure11", "figure13_shots", "guideline",
    "glyphs", *FINISHED_BY_THEMSELVES,
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
