"""The first picture of README: one sampled branch, three guarantees.

Draw it again with `python -m experiments.evidence.picture`.
"""

import pathlib
from typing import Any

import numpy as np

from episodic_dp import accounting
from episodic_dp import plan
from episodic_dp.accounting import report
from episodic_dp.output import plotting

FILE = pathlib.Path(__file__).parents[2] / "docs" / "pictures" / "branch.png"

RELEASE = plan.Release(  # The release of `make train`.
    plan.Hierarchy.regular((12_000, 8, 5), levels=("person", "class", "image")),
    plan.SamplingPlan(
        (plan.Poisson(0.02), plan.FixedSize(5), plan.FixedSize(3)),
        episode=plan.Episode(way=5, shot=1, query=2),
    ),
    plan.Mechanism(clip_unit="person", noise_multiplier=1.0),
)
_LEVELS = (  # Title, what a step samples, nodes, sampled nodes.
    ("12 000 people", "each sampled with\nprobability 0.02", 13, (3, 10)),
    ("8 classes of each", "5 sampled:\na 5-way task", 8, (5, 0, 2, 3, 6)),
    ("5 images of each", "3 sampled: 1 support,\n2 query images", 5, (1, 2, 4)),
)


@plotting.styled
def branch() -> Any:
  """Plot people, classes and images, a sampled branch, and each level's ε."""
  found = accounting.guarantees(RELEASE, steps=60, delta=1e-5)
  drawn = plotting.figure(4.0, width=plotting.WIDE)
  axes = drawn.subplots()
  axes.set(xlim=(0, 1), ylim=(0, 1))
  axes.set_axis_off()
  parent: tuple[float, float] | None = None
  for row, (level, guarantee) in enumerate(found.items()):
    title, sampling, count, sampled = _LEVELS[row]
    y = 0.88 - 0.35 * row
    places = np.linspace(0.3 + 0.05 * row, 0.75 - 0.05 * row, count)
    for k, x in enumerate(places):
      color = plotting.VERMILLION if k in sampled else plotting.PALE
      shape = "s" if level == "image" else "o"
      axes.plot(x, y, shape, color=color, markersize=13, zorder=3)
      if parent is not None:
        axes.plot((parent[0], x), (parent[1], y), "-", color=color)
    small: dict[str, Any] = dict(
        color=plotting.SOFT, va="center", fontsize=12
    )
    axes.text(0, y + 0.06, title, weight="bold", fontsize=14)
    axes.text(0, y - 0.06, sampling, **small)
    axes.text(
        0.8, y, f"ε = {report.rounded_up(guarantee.epsilon)}", fontsize=17,
        color=plotting.BLUE,
    )
    axes.text(0.8, y - 0.08, f"for one {level}", **small)
    parent = (places[sampled[0]], y)
  axes.plot((0.95, 0.96, 0.96, 0.95), (0.93, 0.93, 0.1, 0.1), "-",
            color=plotting.SOFT, linewidth=1.2)
  axes.text(0.985, 0.51, "one run, one noise", rotation=270,
            horizontalalignment="center", **small)
  return drawn


if __name__ == "__main__":
  FILE.write_bytes(plotting.png(branch(), dpi=80))
