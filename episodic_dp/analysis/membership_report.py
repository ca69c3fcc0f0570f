"""What `membership.attack` found, as a table, a page and a picture."""

from collections.abc import Mapping
import os
import pathlib
from typing import Any

import numpy as np

from episodic_dp.accounting import report
from episodic_dp.analysis import membership
from episodic_dp.auditing import roc as roc_lib
from episodic_dp.output import files
from episodic_dp.output import plotting
from episodic_dp.output import tables

NAME = "membership"


def table(results: Mapping[str, Any]) -> str:
  """The areas and rates of all runs, as a table of Markdown."""
  header = [
      "run", "trained on", "steps", "ε of a participant",
      "attacked: members and others", "mean loss, members / others",
      "area under the curve",
      *(f"found at {100 * rate:g} % false alarms" for rate in membership.RATES),
  ]
  rows = []
  for run in results["runs"]:
    for what in membership.SIDES:
      attacked = run[what]
      loss = run["loss"]
      rows.append([
          run["name"],
          f"{run['training_participants']} participants",
          str(run["steps"]),
          _epsilon_cell(run["guarantee"]),
          f"{attacked['members']} and {attacked['others']} {what}",
          f"{loss['members']:.3f} / {loss['others']:.3f}",
          "{:.3f} ({:.3f} to {:.3f})".format(
              attacked["auc"], *attacked["auc_interval"]
          ),
          *(_rate_cell(point) for point in attacked["points"]),
      ])
  return tables.markdown(header, rows)


def _epsilon_cell(guarantee: Mapping[str, float] | None) -> str:
  if guarantee is None:
    return "none"
  epsilon = report.rounded_up(guarantee["epsilon"])
  return f"{epsilon} at δ = {guarantee['delta']:g}"


def _rate_cell(point: Mapping[str, Any]) -> str:
  low, high = point["tpr_interval"]
  text = f"{100 * point['tpr']:.2f} % ({100 * low:.2f} to {100 * high:.2f})"
  if point["allowed"] is not None:
    text += f", allowed {100 * point['allowed']:.2f}"
  return text


def page(results: Mapping[str, Any], command: str) -> str:
  """The table and how to read it, as Markdown."""
  return f"""\
# Who took part? Membership inference on released meta-models

`{command}`

{table(results)}

![curves]({NAME}.png)

A member is a participant of the training data, another one is held out. The
attacker adapts the released model to one support set of somebody and takes them
for a member where the loss on their queries is small: a participant's mean over
{results["tasks"]} tasks, or an example's over the times that it was a query. In
brackets are 95 % intervals, Clopper and Pearson's for the rates (at this
threshold) and DeLong's for the area, which is 0.5 for a blind guess; those of
examples are too narrow, since examples of one participant are alike. "Allowed"
is the most that the participant's (ε, δ) lets any attack find on average over
runs, for examples too: one that was not trained on comes with a participant who
was not either.

It is one model of each run and one simple attack: an attack that fails proves
nothing, and the guarantee does not rest on it.

This page is made of private training data without noise, and no guarantee
covers it.
"""


@plotting.styled
def draw(results: Mapping[str, Any]) -> plotting.Figure:
  """A matplotlib figure: a panel for participants, one for examples."""
  figure = plotting.figure(5.4, width=plotting.WIDE)
  panels = figure.subplots(1, len(membership.SIDES))
  for axes, what in zip(panels, membership.SIDES):
    for number, run in enumerate(results["runs"]):
      _curve(axes, run, run[what], plotting.series(number))
    axes.plot(
        [1e-6, 1], [1e-6, 1], label="a blind guess", **plotting.REFERENCE
    )
    lowest = min(1 / run[what]["others"] for run in results["runs"])
    axes.set(
        xscale="log", yscale="log", xlim=(lowest, 1), ylim=(lowest, 1.3),
        xlabel="others taken for members", ylabel="members found",
        title=f"{what}, 95 % intervals",
    )
    axes.grid(which="both")
    plotting.legend_below(axes, columns=1)
  return figure


def _curve(
    axes: plotting.Axes,
    run: Mapping[str, Any],
    attacked: Mapping[str, Any],
    look: Mapping[str, Any],
) -> None:
  """One run: its curve with a band, and the most that its guarantee allows."""
  curve, color = attacked["curve"], look["color"]
  axes.plot(
      curve["fpr"], curve["tpr"], color=color, linestyle="-",
      marker=look["marker"], markevery=0.12, drawstyle="steps-post",
      label=f"{run['name']}: area {attacked['auc']:.3f}",
  )
  axes.fill_between(
      curve["fpr"], curve["low"], curve["high"], color=color, alpha=0.15,
      linewidth=0, step="post",
  )
  if run["guarantee"] is not None:
    rates = np.geomspace(1e-6, 1, 400)
    axes.plot(
        rates, roc_lib.most_true_positives(rates, **run["guarantee"]),
        color=color, linestyle="--",
        label=f"at most, by ε = {_epsilon_cell(run['guarantee'])}",
    )


def write(
    results: Mapping[str, Any], folder: str | os.PathLike, command: str
) -> pathlib.Path:
  """Writes the three files, readable by their owner only.

  Returns:
    The path of the page.
  """
  path = pathlib.Path(folder) / f"{NAME}.md"
  files.write_json(
      path.with_suffix(".json"), {"command": command, **results}, private=True
  )
  plotting.save(draw(results), path.with_suffix(".png"), private=True)
  files.write_text(path, page(results, command), private=True)
  return path
