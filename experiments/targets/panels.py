"""Cells of tables and dots of pictures, shared by the targets."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from episodic_dp.accounting import report
from episodic_dp.output import plotting

Outcome = Mapping[str, Any]
Outcomes = Mapping[str, Outcome]


def group(
    outcomes: Outcomes, *without: str
) -> dict[tuple[Any, ...], list[Outcome]]:
  """Outcomes whose labels differ in those named alone, in their first order."""
  found: dict[tuple[Any, ...], list[Outcome]] = {}
  for outcome in outcomes.values():
    labels = outcome["labels"].items()
    key = tuple((k, v) for k, v in labels if k not in without)
    found.setdefault(key, []).append(outcome)
  return found


def spread(values: Sequence[float], digits: str) -> str:
  """The mean of several keys, then the least and the most; `digits`: ".4f"."""
  mean = f"{np.mean(values):{digits}}"
  if len(values) == 1:
    return mean
  return f"{mean} ({min(values):{digits}} to {max(values):{digits}})"


def accuracy(outcomes: Sequence[Outcome], model: str = "single") -> str:
  """The mean accuracy in percent.

  With one run "± " is the 95 % interval over test tasks; with several, what
  stands in brackets are the lowest and the highest run.
  """
  scores = [o["accuracy"][model] for o in outcomes]
  means = [100 * s["mean"] for s in scores]
  if len(scores) == 1:
    return f"{means[0]:.1f} % ± {half(scores[0]):.1f}"
  mean = percent(outcomes, model)
  return f"{mean:.1f} % ({min(means):.1f} to {max(means):.1f})"


def percent(outcomes: Sequence[Outcome], model: str = "single") -> float:
  """The mean accuracy in percent, as a number."""
  means = [o["accuracy"][model]["mean"] for o in outcomes]
  return 100 * sum(means) / len(means)


def half(score: Mapping[str, float]) -> float:
  """Half the width of a score's interval, in percent."""
  return 50 * (score["high"] - score["low"])


def seconds(outcomes: Sequence[Outcome], field: str = "seconds") -> str:
  """The mean time of training; "-" where a run took several processes."""
  times = [o[field] for o in outcomes]
  if None in times:
    return "-"
  return f"{sum(times) / len(times):.0f} s"


def epsilon(outcomes: Sequence[Outcome], level: str) -> str:
  """The largest epsilon of a level, or "none"."""
  found = {o["epsilon"].get(level, {}).get("epsilon", "inf") for o in outcomes}
  if "inf" in found:
    return "none"
  return report.rounded_up(max(found))


def dots(
    axes: Any,
    names: Sequence[str],
    series: Mapping[str, Mapping[str, Sequence[Outcome]]],
    *,
    chance: float | None,
) -> None:
  """A dot a run, with its interval, from top to bottom.

  Args:
    axes: of matplotlib.
    names: a line each.
    series: legend -> name -> runs.
    chance: accuracy of a blind guess; None where there are several.
  """
  for k, (legend, found) in enumerate(series.items()):
    x, y, error = [], [], []
    for i, name in enumerate(names):
      for outcome in found.get(name, ()):
        score = outcome["accuracy"]["single"]
        x.append(100 * score["mean"])
        error.append(half(score))
        y.append(i + 0.18 * (k - (len(series) - 1) / 2))
    axes.errorbar(
        x, y, xerr=error, capsize=2, label=legend,
        **plotting.series(k) | {"linestyle": ""},
    )
  if chance is not None:
    axes.axvline(100 * chance, label="chance", **plotting.REFERENCE)
  axes.set_yticks(range(len(names)), names)
  axes.invert_yaxis()
  axes.set_xlim(0, 100)
  axes.set_xlabel("test accuracy (%), last checkpoint, 95 % interval")
  axes.grid(visible=False, axis="y")
  axes.legend(loc="lower left")
