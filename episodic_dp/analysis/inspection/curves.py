"""Epsilon of every level over the steps, with that of the whole run marked."""

from episodic_dp.accounting import report
from episodic_dp.analysis.inspection import facts as facts_lib
from episodic_dp.analysis.inspection import style


def draw(facts: facts_lib.Facts) -> bytes:
  """A PNG of the curves; call it only where there is one."""
  figure = style.figure(3.9, layout="constrained")
  axes = figure.subplots()
  for level, curve in facts.curves.items():
    k = facts.hierarchy.level_index(level) % 6
    text = report.rounded_up(facts.guarantees[level].epsilon)
    axes.plot(
        facts.curve_steps, curve, color=style.LEVELS[k],
        linestyle=style.LINES[k], linewidth=2, label=f"{level}: ε = {text}",
    )
    axes.plot(
        facts.curve_steps[-1:], curve[-1:], color=style.LEVELS[k],
        marker=style.MARKERS[k], markersize=8, clip_on=False,
    )
  axes.set_xlim(0, facts.steps)
  axes.set_ylim(bottom=0)
  axes.set_xlabel("steps")
  axes.set_ylabel(f"ε at δ = {facts.delta:g}")
  style.tidy(axes)
  axes.legend(
      loc="lower left", bbox_to_anchor=(0, 1.0), ncols=2, frameon=False,
      fontsize=9.5, borderaxespad=0.2,
  )
  return style.png(figure)
