"""Epsilon of every level over the steps, with that of the whole run marked."""

from episodic_dp.accounting import report
from episodic_dp.analysis.inspection import summary as summary_lib
from episodic_dp.output import plotting


@plotting.styled
def draw(summary: summary_lib.PlanSummary) -> bytes:
  """A PNG of the curves; call it only where there is one."""
  figure = plotting.figure(3.9)
  axes = figure.subplots()
  for level, curve in summary.curves.items():
    k = summary.release.hierarchy.level_index(level) % 6
    text = report.rounded_up(summary.guarantees[level].epsilon)
    axes.plot(
        summary.curve_steps, curve, color=plotting.COLORS[k],
        linestyle=plotting.LINES[k], linewidth=2, label=f"{level}: ε = {text}",
    )
    axes.plot(
        summary.curve_steps[-1:], curve[-1:], color=plotting.COLORS[k],
        marker=plotting.MARKERS[k], markersize=8, clip_on=False,
    )
  axes.set_xlim(0, summary.steps)
  axes.set_ylim(bottom=0)
  axes.set_xlabel("steps")
  axes.set_ylabel(f"ε at δ = {summary.delta:g}")
  plotting.legend_above(axes)
  return plotting.png(figure)
