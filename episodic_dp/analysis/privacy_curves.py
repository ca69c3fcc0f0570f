"""Writes what `accounting.export` computes: CSV, JSON and a picture a level."""

from collections.abc import Sequence
import os
import pathlib
import re
from typing import Any

import numpy as np

from episodic_dp import accounting
from episodic_dp import plan as plan_lib
from episodic_dp.accounting import export
from episodic_dp.accounting import report
from episodic_dp.output import files
from episodic_dp.output import plotting


def write(
    ledger: accounting.Ledger,
    folder: str | os.PathLike,
    *,
    levels: Sequence[str],
    delta: float,
    group: int = 1,
    assumed: Sequence[str] = (),
) -> list[str]:
  """Writes LEVEL.json, LEVEL_epsilon_delta.csv, LEVEL_trade_off.csv, LEVEL.png.

  Args:
    ledger: what was released.
    folder: made where it does not exist.
    levels: those that have a guarantee are written.
    delta: of the stated epsilon.
    group: how many units are added or removed together.
    assumed: sentences that come before what the guarantee itself assumes.

  Returns:
    A sentence for each level.

  Raises:
    ValueError: the folder cannot be written.
  """
  folder = pathlib.Path(folder)
  sentences: list[str] = []
  used: list[str] = []
  for level in levels:
    try:
      data = export.export(ledger, level, delta=delta, group=group)
    except plan_lib.UnsoundPlanError as e:
      sentences.append(f"{level}: no guarantee ({e})")
      continue
    data["assumptions"] = [*assumed, *data["assumptions"]]
    stem = re.sub(r"[^\w.-]", "_", level)
    if stem in used:  # "a b" beside "a_b".
      stem = f"{stem}_{len(used)}"
    used.append(stem)
    files.write_json(folder / f"{stem}.json", data)
    for name, header in (
        ("epsilon_delta", ("epsilon", "delta")),
        ("trade_off", ("alpha", "beta")),
    ):
      files.write_text(
          folder / f"{stem}_{name}.csv", export.csv_text(header, data[name])
      )
    plotting.save(draw(data), folder / f"{stem}.png")
    sentences.append(export.sentence(data))
  return sentences


@plotting.styled
def draw(data: dict[str, Any]) -> plotting.Figure:
  """The two curves of one level beside each other."""
  figure = plotting.figure(4.2, width=plotting.WIDE)
  figure.suptitle(data["neighbours"])
  left, right = figure.subplots(1, 2)
  epsilon, delta = np.asarray(data["epsilon_delta"]).T
  left.semilogy(epsilon, delta, **plotting.series(0), markevery=[])
  left.set_xlabel("ε")
  left.set_ylabel("δ")
  alpha, beta = np.asarray(data["trade_off"]).T
  right.plot(
      alpha, beta, **plotting.series(0), markevery=[],
      label="no test does better",
  )
  mu = data["gaussian"]["mu"]
  if isinstance(mu, float):
    right.plot(
        alpha, export.gaussian_trade_off(mu, alpha), **plotting.series(1),
        markevery=[], label=f"Gaussian, μ = {report.rounded_up(mu)}",
    )
  right.plot(alpha, 1 - alpha, **plotting.REFERENCE, label="guessing")
  right.set_xlabel("error of the first kind")
  right.set_ylabel("error of the second kind")
  right.legend()
  return figure
