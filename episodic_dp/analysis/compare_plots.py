"""The pictures of a comparison of runs: scores against epsilon, and over steps.

Runs that differ in their keys alone are drawn as their mean with the 95 %
interval of Student's t over them, and the single runs small beside it; a run by
itself with the 95 % interval over its tasks.
"""

from collections.abc import Mapping, Sequence
import math
import os
import pathlib
from typing import Any

from matplotlib import transforms

from episodic_dp.analysis import compare
from episodic_dp.output import plotting
from episodic_dp.training import metrics
from episodic_dp.training import reporting

AGAINST_EPSILON = "score_against_epsilon.png"
OVER_STEPS = "learning_curves.png"

# The one that is drawn is the first that most runs have.
_SCORES = {"single": "test", "validation": "validation"}
_WIDE_RANGE = 8.0  # Of epsilons: more goes on a logarithmic axis.
_MOST_NAMED = 12  # More groups of runs have no legend.
_BESIDE = 0.1  # Inches between a mean and the dashes of its runs.
_BAR: dict[str, Any] = dict(capsize=4, elinewidth=1.6)

_Curve = tuple[list[int], list[float], list[float], list[float]]
_Group = tuple[tuple[compare.Run, ...], compare.Mean | None]


def write(
    found: compare.Comparison, folder: str | os.PathLike
) -> list[pathlib.Path]:
  """Writes both pictures, as far as the runs have what they show.

  Args:
    found: of `compare.compare`.
    folder: made where it does not exist.

  Returns:
    The files.

  Raises:
    WriteError: the folder cannot be written; one sentence.
  """
  drawn = {
      AGAINST_EPSILON: against_epsilon(found), OVER_STEPS: over_steps(found)
  }
  written = []
  for name, figure in drawn.items():
    if figure is not None:
      written.append(pathlib.Path(folder) / name)
      plotting.save(figure, written[-1])
  return written


@plotting.styled
def against_epsilon(found: compare.Comparison) -> plotting.Figure | None:
  """Score against epsilon, a point a setting; None where no run has both.

  Runs without a guarantee stand in a panel of their own, for no place on the
  axis of epsilon would be true.
  """
  name, level = _common_score(found.runs), _common_level(found.runs)
  if name is None:
    return None
  groups = [
      (kept, mean if mean is not None and name in mean.scores else None)
      for runs, mean in found.groups
      if (kept := tuple(run for run in runs if name in run.scores))
  ]
  private = [group for group in groups if _finite(group, level)]
  plain = [group for group in groups if not _finite(group, level)]
  if not private or len(groups) < 2:
    return None  # One point tells no more than the table.
  figure = plotting.figure(4.8, width=7.4)
  ratios = [6, 1.2][: 1 + bool(plain)]
  panels = figure.subplots(
      1, len(ratios), sharey=True, width_ratios=ratios, squeeze=False
  )[0]
  labels = _labels(groups)
  for number, group in enumerate(groups):
    axes = panels[0] if group in private else panels[1]
    x = _epsilon(group, level) if group in private else 0.0
    _point(axes, group, x, name, plotting.series(number), labels[number])
  _finish_scores(panels, found.runs, name, "against ε")
  _finish_epsilon(panels[0], private, level)
  if plain:
    panels[1].set_xticks([0.0], ["none"])
    panels[1].set_xlim(-1, 1)
    panels[1].set_xlabel("no guarantee")
  _legend(figure, panels, len(groups))
  return figure


@plotting.styled
def over_steps(found: compare.Comparison) -> plotting.Figure | None:
  """Validation scores over steps, a line a setting; None where none has any."""
  groups = [
      (kept, mean)
      for runs, mean in found.groups
      if (kept := tuple(run for run in runs if run.validations))
  ]
  if not groups:
    return None
  figure = plotting.figure(4.8, width=7.4)
  axes = figure.subplots()
  factor = _factor(groups[0][0][0], "validation")
  for number, (group, label) in enumerate(zip(groups, _labels(groups))):
    look = plotting.series(number)
    for steps, mean, low, high in _curves(group):
      axes.plot(steps, [factor * v for v in mean], label=label, **look)
      axes.fill_between(
          steps, [factor * v for v in low], [factor * v for v in high],
          color=look["color"], alpha=0.16, linewidth=0,
      )  # fmt: skip
      label = "_"  # Not once more in the legend.
  runs = [run for kept, _ in groups for run in kept]
  _finish_scores([axes], runs, "validation", "over the steps")
  plotting.over_steps(axes)
  _legend(figure, [axes], len(groups))
  return figure


def _point(
    axes: plotting.Axes,
    group: _Group,
    x: float,
    name: str,
    look: Mapping[str, Any],
    label: str,
) -> None:
  """The mean of a setting with its runs, or its runs alone."""
  runs, mean = group
  rows: Sequence[compare.Run | compare.Mean] = runs
  if mean is not None:
    rows = [mean]
    beside = transforms.ScaledTranslation(
        _BESIDE, 0, axes.figure.dpi_scale_trans
    )
    axes.plot(
        [x] * len(runs),
        [_factor(run, name) * run.scores[name].mean for run in runs],
        linestyle="", marker="_", color=look["color"],
        transform=axes.transData + beside,
    )
  for row in rows:
    score, factor = row.scores[name], _factor(row, name)
    axes.errorbar(
        [x], [factor * score.mean],
        yerr=[[factor * (score.mean - score.low)],
              [factor * (score.high - score.mean)]],
        label=label, **_BAR, **dict(look) | {"linestyle": "", "markersize": 7},
    )  # fmt: skip
    label = "_"


def _curves(group: _Group) -> list[_Curve]:
  """(steps, mean, low, high): of the mean, or of every run by itself."""
  runs, mean = group
  if mean is None:
    return [_columns(run.validations) for run in runs]
  finished = [run for run in runs if run.name in mean.of]
  steps = [
      v.step for v in finished[0].validations
      if all(any(w.step == v.step for w in run.validations) for run in finished)
  ]  # fmt: skip
  return [_columns([
      metrics.Validated(step, *compare.over_runs([
          next(v.mean for v in run.validations if v.step == step)
          for run in finished
      ]))
      for step in steps
  ])]


def _columns(points: Sequence[metrics.Validated]) -> _Curve:
  return (
      [p.step for p in points], [p.mean for p in points],
      [p.low for p in points], [p.high for p in points],
  )  # fmt: skip


def _common_score(runs: Sequence[compare.Run]) -> str | None:
  counts = {
      name: sum(name in run.scores for run in runs) for name in _SCORES
  }
  best = max(counts, key=lambda name: counts[name])
  return best if counts[best] else None


def _common_level(runs: Sequence[compare.Run]) -> str:
  """The level that most runs have a finite epsilon of, the first of these."""
  counts: dict[str, int] = {}
  for run in runs:
    for level, stated in run.stated.items():
      counts[level] = counts.get(level, 0) + math.isfinite(stated.epsilon)
  return max(counts, key=lambda level: counts[level], default="")


def _finite(group: _Group, level: str) -> bool:
  return math.isfinite(_epsilon(group, level))


def _epsilon(group: _Group, level: str) -> float:
  """The largest of the runs of a setting."""
  found = [run.stated[level].epsilon for run in group[0] if level in run.stated]
  return max(found, default=math.inf)


def _factor(row: compare.Run | compare.Mean, name: str) -> float:
  return 100.0 if row.scores[name].kind == "accuracy" else 1.0


def _labels(groups: Sequence[_Group]) -> list[str]:
  """The setting where it has a mean, or the folder's name."""
  return [
      mean.name if mean is not None
      else os.path.basename(runs[0].name.rstrip("/")) + ", …" * (len(runs) > 1)
      for runs, mean in groups
  ]  # fmt: skip


def _finish_scores(
    panels: Sequence[plotting.Axes],
    runs: Sequence[compare.Run],
    name: str,
    against: str,
) -> None:
  """Title and axis of the score, with chance where all runs share one."""
  kinds = {run.scores[name].kind for run in runs if name in run.scores}
  kind = kinds.pop() if len(kinds) == 1 else "score"
  unit = " (%)" if kind == "accuracy" else ""
  what = f"{_SCORES[name]} {reporting.words(kind)}"
  panels[0].set_ylabel(f"{what}{unit}")
  ways = {run.setting.get("episode.way") for run in runs}
  way = ways.pop() if len(ways) == 1 else None
  if kind == "accuracy":
    for axes in panels:
      axes.set_ylim(0, 100)
      if isinstance(way, int) and way > 1:
        axes.axhline(100 / way, label="chance", **plotting.REFERENCE)
  panels[0].set_title(
      f"{what.capitalize()} {against}\n95 % intervals: of a mean over its runs,"
      " of a run over its tasks",
      loc="left",
  )


def _finish_epsilon(
    axes: plotting.Axes, groups: Sequence[_Group], level: str
) -> None:
  values = [_epsilon(group, level) for group in groups]
  deltas = {run.stated[level].delta for runs, _ in groups for run in runs}
  at = f" at δ = {deltas.pop():g}" if len(deltas) == 1 else ""
  axes.set_xlabel(f"ε of one {level}{at}, of each run alone")
  low, high = min(values), max(values)
  if 0 < _WIDE_RANGE * low < high:
    axes.set_xscale("log")
    axes.set_xlim(low / 1.5, high * 1.5)
    plotting.plain_numbers(axes.xaxis)
  else:
    axes.set_xlim(0, 1.15 * high or 1.0)


def _legend(
    figure: plotting.Figure, panels: Sequence[plotting.Axes], groups: int
) -> None:
  if groups > _MOST_NAMED:
    return
  found: dict[str, Any] = {}
  for axes in panels:
    for handle, label in zip(*axes.get_legend_handles_labels()):
      found.setdefault(label, handle)
  figure.legend(
      [*found.values()], [*found], loc="outside lower center", ncols=2
  )
