"""Cells of tables, lines and dots of pictures, shared by all targets."""

from collections.abc import Callable, Iterable, Mapping, Sequence
import dataclasses
import functools
from typing import Any

from matplotlib import ticker
import numpy as np

from episodic_dp.accounting import report
from episodic_dp.output import plotting
from experiments import runs as runs_lib

Outcome = Mapping[str, Any]
Outcomes = Mapping[str, Outcome]
Same = Sequence[Outcome]  # The runs of a setting, one for each key.
Cell = Callable[[Same], str]
Table = tuple[list[str], list[list[str]]]
# A place on an axis; the middle, low and high end of a value in percent.
Point = tuple[float, float, float, float]
SINGLE = "test accuracy, last checkpoint"
# The look of a published value.
PUBLISHED: dict[str, Any] = dict(
    color=plotting.INK, linestyle="", marker="*", markersize=11,
    markerfacecolor="white", zorder=4, label="[M], at its size",
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Target:
  """A table and a figure that `experiments.reproduce` makes.

  Attributes:
    title: heading of its page.
    about: Markdown below the heading.
    runs: scale -> the runs to train.
    table: outcomes of the finished runs -> (header, rows).
    draw: (outcomes, figure) -> None.
    notes: Markdown below the picture: how settings were chosen.
    finding: outcomes -> one sentence with the numbers that matter.
    finish: makes a run that is no plain training; see `runs.finish`.
    more: outcomes -> further fields of the JSON file.
  """

  title: str
  about: str
  runs: Callable[[str], Sequence[runs_lib.Run]]
  table: Callable[[Outcomes], Table]
  draw: Callable[[Outcomes, Any], None]
  notes: str = ""
  finding: Callable[[Outcomes], str] = lambda outcomes: ""
  finish: Callable[..., dict[str, Any]] = runs_lib.finish
  more: Callable[[Outcomes], dict[str, Any]] = lambda outcomes: {}


def plain_numbers(axis: Any) -> None:
  """Label a logarithmic axis of few powers of ten 0.2, 0.5, 1, 2 ..."""
  low, high = axis.get_view_interval()
  between: tuple[int, ...] = (1,)
  if high < 300 * low:
    between = (1, 2, 3, 5)
  axis.set_major_locator(ticker.LogLocator(subs=between))
  axis.set_major_formatter(ticker.FuncFormatter(lambda x, _: f"{x:g}"))
  axis.set_minor_formatter(ticker.NullFormatter())


def group(outcomes: Outcomes, *without: str) -> list[list[Outcome]]:
  """Group outcomes whose labels differ only in those named."""
  found: dict[str, list[Outcome]] = {}
  for outcome in outcomes.values():
    key = str([
        (k, v) for k, v in outcome["labels"].items() if k not in without
    ])
    found.setdefault(key, []).append(outcome)
  return list(found.values())


# Cells ------------------------------------------------------------------------


def table(columns: Mapping[str, Cell], groups: Iterable[Same]) -> Table:
  """Return a row for each group of runs, with its version if these differ.

  Args:
    columns: header -> the cell of a group.
    groups: runs of one setting each, as `group` returns them.
  """
  groups = [*groups]
  if len({*map(version, groups)}) > 1:
    columns = {**columns, "version": version}
  rows = []
  for same in groups:
    rows.append([cell(same) for cell in columns.values()])
  return list(columns), rows


def version(same: Same) -> str:
  """Return the versions of the library that made the runs."""
  return ", ".join(sorted({o.get("version", "-") for o in same}))


def tabled(
    columns: Mapping[str, Cell], *without: str
) -> Callable[[Outcomes], Table]:
  """Return a function: outcomes -> a row for each setting.

  Args:
    columns: header -> the cell of a setting.
    *without: labels in which the runs of a setting differ.
  """
  return lambda outcomes: table(columns, group(outcomes, *without))


def label(name: str, form: str = "{}") -> Cell:
  """Return a cell that shows a label."""
  return lambda same: form.format(same[0]["labels"][name])


def field(name: str, form: str = "{}") -> Cell:
  """Return a cell that shows a field of the outcome."""
  return lambda same: form.format(same[0][name])


def is_private(same: Same) -> str:
  """Return "yes" for private runs."""
  return "yes" if same[0]["labels"]["private"] else "no"


def spread(values: Sequence[float], form: str = "{:.4f}") -> str:
  """Return the mean over keys, then the lowest and the highest."""
  mean = form.format(sum(values) / len(values))
  if len(values) == 1:
    return mean
  return f"{mean} ({form.format(min(values))} to {form.format(max(values))})"


def percent(same: Same, model: str = "single") -> float:
  """Return the mean accuracy in percent."""
  means = [o["accuracy"][model]["mean"] for o in same]
  return 100 * sum(means) / len(means)


def interval(
    same: Same, model: str = "single"
) -> tuple[float, float, float]:
  """Return (mean, low, high) test accuracy in percent.

  For one run it is the 95 % interval over test tasks; for several it reaches
  from the lowest to the highest run.
  """
  scores = [o["accuracy"][model] for o in same]
  low, high = ("low", "high") if len(same) == 1 else ("mean", "mean")
  return (
      percent(same, model),
      100 * min(score[low] for score in scores),
      100 * max(score[high] for score in scores),
  )


def accuracy(same: Same, model: str = "single") -> str:
  """Return the mean accuracy with its `interval`."""
  if not all(model in o["accuracy"] for o in same):
    return "-"
  mean, low, high = interval(same, model)
  if len(same) == 1:
    return f"{mean:.1f} % ± {(high - low) / 2:.1f}"
  return f"{mean:.1f} % ({low:.1f} to {high:.1f})"


def _time(same: Same, name: str) -> str:
  """Return the mean time; "-" if a run took several processes."""
  times = [o[name] for o in same]
  return "-" if None in times else f"{sum(times) / len(times):.0f} s"


ensemble = functools.partial(accuracy, model="ensemble")
untrained = functools.partial(accuracy, model="untrained")
seconds = functools.partial(_time, name="seconds")
cpu_seconds = functools.partial(_time, name="cpu_seconds")


def epsilon(level: str) -> Cell:
  """Return a cell with the largest epsilon of a level, or "none"."""
  return functools.partial(epsilon_of, level=level)


def epsilon_of(same: Same, level: str) -> str:
  """Return the largest epsilon of a level, or "none"."""
  found = {o["epsilon"].get(level, {}).get("epsilon", "inf") for o in same}
  if "inf" in found:
    return "none"
  return report.rounded_up(max(found))


# Pictures ---------------------------------------------------------------------


def lines(
    groups: Iterable[Same], name: Cell, x: Callable[[Same], float]
) -> dict[str, list[Point]]:
  """Return line -> its points, sorted by x.

  Args:
    groups: runs of one setting each.
    name: name of a group's line.
    x: its place.
  """
  found: dict[str, list[Point]] = {}
  for same in groups:
    found.setdefault(name(same), []).append((x(same), *interval(same)))
  return {line: sorted(points) for line, points in found.items()}


def draw_lines(
    axes: Any,
    drawn: Mapping[str, Sequence[Point]],
    x_label: str,
    *,
    chance: float | None = None,
    logarithmic: bool = False,
) -> None:
  """Plot accuracies with their intervals over a setting.

  Args:
    axes: of matplotlib.
    drawn: legend -> points, as `lines` returns them.
    x_label: the name of the setting.
    chance: accuracy of a blind guess, in percent.
    logarithmic: scale of the horizontal axis.
  """
  for number, (legend, points) in enumerate(drawn.items()):
    x, middle, low, high = np.array(points).T
    axes.errorbar(
        x,
        middle,
        yerr=[middle - low, high - middle],
        capsize=2,
        label=legend,
        **plotting.series(number),
    )
  if logarithmic:
    axes.set_xscale("log")
  places = {point[0] for points in drawn.values() for point in points}
  if logarithmic or len(places) < 6:
    plotting.ticks(axes.xaxis, sorted(places))
  finish_axes(axes, x_label, chance)


def finish_axes(axes: Any, x_label: str, chance: float | None) -> None:
  """Label the axes of a picture of accuracies."""
  if chance is not None:
    axes.axhline(chance, label="chance", **plotting.REFERENCE)
  axes.set_ylim(0, 100)
  axes.set_xlabel(x_label)
  axes.set_ylabel("test accuracy (%), 95 % interval")
  plotting.legend_below(axes)


def name_lines(
    axes: Any, names: Sequence[str], x_label: str, **legend: int
) -> None:
  """Write the names of lines from top to bottom, and the legend below."""
  axes.set_yticks(range(len(names)), names)
  axes.invert_yaxis()
  axes.set_xlabel(x_label)
  plotting.legend_below(axes, **legend)


def dots(
    axes: Any,
    runs: Sequence[Outcome],
    name: Callable[[Outcome], str],
    series: Callable[[Outcome], str],
    *,
    chance: float | None = None,
    of: str = "test",
) -> list[str]:
  """Plot a dot a run with its interval, a line of the picture for each name.

  Args:
    axes: of matplotlib.
    runs: their outcomes.
    name: name of a run's line.
    series: legend of a run.
    chance: accuracy of a blind guess, in percent.
    of: the kind of tasks.

  Returns:
    The names, from top to bottom.
  """
  names = list(dict.fromkeys(map(name, runs)))
  legends = list(dict.fromkeys(map(series, runs)))
  for k, legend in enumerate(legends):
    shift = min(0.18, 0.8 / len(legends)) * (k - (len(legends) - 1) / 2)
    means, places, halves = [], [], []
    for run in runs:
      if series(run) == legend:
        score = run["accuracy"]["single"]
        means.append(100 * score["mean"])
        places.append(names.index(name(run)) + shift)
        halves.append(50 * (score["high"] - score["low"]))
    axes.errorbar(
        means,
        places,
        xerr=halves,
        capsize=2,
        label=legend,
        **plotting.series(k) | {"linestyle": ""},
    )
  if chance is not None:
    axes.axvline(chance, label="chance", **plotting.REFERENCE)
  axes.grid(visible=False, axis="y")
  name_lines(
      axes, names, f"{of} accuracy (%), last checkpoint, 95 % interval"
  )
  return names


def dotted(
    name: Callable[[Outcome], str],
    series: Callable[[Outcome], str],
    **options: Any,
) -> Callable[[Outcomes, Any], None]:
  """Return a function that plots `dots` with these options."""

  def draw(outcomes: Outcomes, figure: Any) -> None:
    dots(figure.subplots(), [*outcomes.values()], name, series, **options)

  return draw
