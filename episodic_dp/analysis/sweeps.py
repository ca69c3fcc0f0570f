"""Compute and draw epsilon over one number of a config, for every level."""

import dataclasses
import math
import os
import pathlib
from typing import Any

import numpy as np

from episodic_dp import _validate
from episodic_dp import accounting
from episodic_dp import errors
from episodic_dp import plain
from episodic_dp.config import RunConfig
from episodic_dp.output import files
from episodic_dp.output import phases
from episodic_dp.output import plotting

_POINTS = 17
SWEEPS = {
    "steps": "steps T",
    "noise_multiplier": "noise multiplier z",
    "delta": "δ",
}
"""The numbers that can be varied, and their labels."""


def sweep(
    name: str, config: RunConfig, result: dict[str, Any]
) -> dict[str, Any]:
  """Compute the data of one sweep.

  Args:
    name: one of `SWEEPS`.
    config: of the curves' own points.
    result: of `costs.account` for it.

  Returns:
    "sweep", "delta", "steps", "noise_multiplier", "clip_unit" and "lines": a
    list of "label", "x", "y" (lists) and "own" ([x, y] of the config). An
    infinite epsilon is the string "inf".

  Raises:
    PlanError: the name is unknown, or no level has a finite epsilon.
  """
  _validate.one_of("sweep", name, tuple(SWEEPS))
  own = {
      level: g["epsilon"]
      for level, g in result["guarantees"].items()
      if g["epsilon"] != "inf"
  }
  if not own:
    raise errors.PlanError(
        f"sweep '{name}' has nothing to draw: no level of this config has a"
        " finite epsilon; raise noise_multiplier, or see the reasons printed"
    )
  release, mechanism = config.release, config.release.mechanism
  fixed = {
      "steps": result["steps"],
      "delta": result["delta"],
      "noise_multiplier": mechanism.noise_multiplier,
  }

  def epsilon(level, value):
    if value == fixed[name]:
      return own[level]
    other = fixed | {name: value}
    # A fixed norm: with less noise a private quantile would leave no room.
    changed = dataclasses.replace(
        mechanism.with_fixed_norm, noise_multiplier=other["noise_multiplier"]
    )
    return plain.to_plain(accounting.guarantee(
        release.replace(mechanism=changed),
        steps=other["steps"], delta=other["delta"], level=level,
    ).epsilon)

  values = _values(name, fixed[name])
  with phases.phase(f"sweep {name}"):
    lines = [
        {
            "label": level,
            "x": values,
            "y": [epsilon(level, value) for value in values],
            "own": [fixed[name], own[level]],
        }
        for level in own
    ]
  return fixed | {
      "sweep": name, "clip_unit": mechanism.clip_unit, "lines": lines
  }


def _values(name: str, own: float) -> list[Any]:
  """Return the values of a sweep in rising order, the config's among them."""
  if name == "steps":
    spread = np.geomspace(1, 10 * own, _POINTS).round().astype(int).tolist()
  elif name == "delta":
    spread = (10.0 ** -np.arange(1, 13)).tolist()
  else:
    spread = (own * 2.0 ** np.linspace(-2, 2, _POINTS)).tolist()
  return sorted({own, *spread})


def write(data: dict[str, Any], folder: str | os.PathLike) -> pathlib.Path:
  """Write FOLDER/sweep_NAME.json and .png of one sweep; return the figure.

  Raises:
    OSError: the folder cannot be written.
  """
  path = pathlib.Path(folder) / f"sweep_{data['sweep']}.png"
  files.write_json(path.with_suffix(".json"), data)
  plotting.save(draw(data), path)
  return path


@plotting.styled
def draw(data: dict[str, Any]) -> plotting.Figure:
  """Draw one sweep, with the config's own points."""
  figure = plotting.figure(4.6)
  axes = figure.subplots()
  for number, line in enumerate(data["lines"]):
    look = plotting.series(number)
    values = [math.nan if y == "inf" else y for y in line["y"]]
    axes.plot(line["x"], values, label=line["label"], **look | {"marker": ""})
    axes.plot(*line["own"], **look | {"markersize": 9})
  axes.set(
      xscale="log", yscale="log", xlabel=SWEEPS[data["sweep"]], ylabel="ε",
      title=f"z = {data['noise_multiplier']:g} per {data['clip_unit']},"
      f" δ = {data['delta']:g}, {data['steps']} steps",
  )
  axes.legend()
  return figure
