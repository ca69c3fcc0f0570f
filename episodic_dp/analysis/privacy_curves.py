"""The (epsilon, delta) curve of a level: CSV and a picture."""

from collections.abc import Sequence
import os
import pathlib
import re

import numpy as np

from episodic_dp import accounting
from episodic_dp import plan as plan_lib
from episodic_dp.output import files
from episodic_dp.output import plotting

DELTAS = tuple(float(f"{10.0**-x:.6g}") for x in np.linspace(1, 12, 34))


def write(
    ledger: accounting.Ledger,
    folder: str | os.PathLike,
    *,
    levels: Sequence[str],
    group: int = 1,
) -> list[str]:
  """Write LEVEL.csv and LEVEL.png for every level that has a guarantee.

  Args:
    ledger: the steps that were released.
    folder: made where it does not exist.
    levels: of the hierarchy.
    group: how many units are added or removed together.

  Returns:
    A sentence for each level.
  """
  folder = pathlib.Path(folder)
  sentences = []
  for level in levels:
    try:
      pairs = [
          (ledger.guarantee(level, delta=delta, group=group).epsilon, delta)
          for delta in DELTAS
      ]
    except plan_lib.UnsoundPlanError as e:
      sentences.append(f"{level}: no guarantee ({e})")
      continue
    stem = re.sub(r"[^\w.-]", "_", level)
    lines = [f"{epsilon!r},{delta!r}" for epsilon, delta in pairs]
    text = "\n".join(["epsilon,delta", *lines, ""])
    files.write_text(folder / f"{stem}.csv", text)
    plotting.save(_draw(level, pairs), folder / f"{stem}.png")
    sentences.append(f"{level}: {len(pairs)} pairs in {folder / stem}.csv")
  return sentences


@plotting.styled
def _draw(
    level: str, pairs: Sequence[tuple[float, float]]
) -> plotting.Figure:
  figure = plotting.figure(3.4)
  axes = figure.subplots()
  axes.semilogy(*np.asarray(pairs).T, **plotting.series(0), markevery=[])
  axes.set(title=level, xlabel="ε", ylabel="δ")
  return figure
