"""What `fine_tune.fine_tune` measured, as a table and a picture."""

from collections.abc import Mapping
import os
import pathlib
from typing import Any

from episodic_dp import training
from episodic_dp.accounting import report
from episodic_dp.output import files
from episodic_dp.output import plotting
from episodic_dp.output import tables

NAME = "fine_tuning"


def write(results: Mapping[str, Any], folder: str | os.PathLike) -> None:
  """Writes FOLDER/fine_tuning.json and .png."""
  path = pathlib.Path(folder) / f"{NAME}.json"
  files.write_json(path, results)
  plotting.save(draw(results), path.with_suffix(".png"))


def table(results: Mapping[str, Any]) -> str:
  """Accuracies for each initialisation and number of shots, and guarantees."""
  starts = results["initialisations"]
  shots = list(starts[0]["accuracy"])
  rows, lines = [], []
  for start in starts:
    cells = [
        training.Accuracy(**start["accuracy"][shot]) for shot in shots
    ]
    rows.append([start["name"], start["learner"] or "-", *cells])
    lines += [f"  {start['name']}: {text}" for text in _guarantees(start)]
  header = ["initialisation", "learner", *(_shots(s) for s in shots)]
  return "\n".join([
      tables.text(header, rows),
      f"{results['way']}-way, {results['tasks']} tasks of {results['data']},"
      f" chance {100 * results['chance']:.0f} %; guarantees as the runs state"
      " them:",
      *lines,
  ])


def _shots(shot: str) -> str:
  return f"{shot} shot" + ("" if shot == "1" else "s")


def _guarantees(start: Mapping[str, Any]) -> list[str]:
  """Sentences on what protects the data that an initialisation is from."""
  if start["learner"] is None:
    return ["no data were used"]
  if start["guarantee"] is None:
    return ["states no guarantee (it has no guarantee.json)"]
  lines = [
      f"epsilon = {report.rounded_up(g['epsilon'])} at delta ="
      f" {g['delta']:g} ({g['neighbours']}; {g['steps']} steps)"
      for g in start["guarantee"].values()
      if isinstance(g["epsilon"], float)
  ]
  caveats = (g["caveat"] for g in start["guarantee"].values())
  return (lines or ["no formal guarantee"]) + [
      text for text in dict.fromkeys(caveats) if text and lines
  ]


@plotting.styled
def draw(results: Mapping[str, Any]) -> plotting.Figure:
  """A matplotlib figure: accuracy against shots, a line for each start."""
  figure = plotting.figure(4.8, width=7.2)
  axes = figure.subplots()
  for number, start in enumerate(results["initialisations"]):
    points = {int(shot): score for shot, score in start["accuracy"].items()}
    shots = sorted(points)
    means = [100 * points[s]["mean"] for s in shots]
    halves = [100 * (points[s]["high"] - points[s]["mean"]) for s in shots]
    look = plotting.series(number - 1)
    if start["learner"] is None:
      look |= {"color": plotting.SOFT, "linestyle": "--", "marker": "x"}
    axes.errorbar(
        shots, means, yerr=halves, capsize=3, label=_label(start), **look
    )
  axes.axhline(100 * results["chance"], label="chance", **plotting.REFERENCE)
  options = results["fine_tuning"]
  what = "whole network" if options["body"] else "head"
  axes.set(
      title=(
          f"{results['way']}-way test tasks of {results['data']}, {what}"
          f" fine-tuned by {options['steps']} steps of {options['optimizer']}"
      ),
      xlabel="support images of each class",
      ylabel="accuracy (%), with 95 % intervals",
      ylim=(0, 100),
  )
  plotting.ticks(axes.xaxis, shots)
  plotting.legend_below(axes)
  return figure


def _label(start: Mapping[str, Any]) -> str:
  """The name, the learner, and the guarantee of the first level with one."""
  if start["learner"] is None:
    return "random initialisation"
  text = f"{start['name']} ({start['learner']})"
  for level, g in (start["guarantee"] or {}).items():
    if isinstance(g["epsilon"], float):
      caveat = ", with a caveat" if g["caveat"] else ""
      return (
          f"{text}: ε = {report.rounded_up(g['epsilon'])} per {level}{caveat}"
      )
  return f"{text}: no guarantee"
