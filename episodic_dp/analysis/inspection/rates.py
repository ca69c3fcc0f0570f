"""How often a step draws a unit: rates of every level, spread over its units.

For a unit at the end of a path the own rate p is that of its stage once the
unit above is chosen, the parent rate q that the unit above is chosen, and
eta = q p the probability that one step draws it.
"""

import dataclasses
import math

import numpy as np

from episodic_dp import plan as plan_lib
from episodic_dp.output import plotting


@dataclasses.dataclass(frozen=True, eq=False)
class Spread:
  """A value that units may differ in: distinct values, and how many have each.

  Attributes:
    values: float64[distinct], rising.
    units: int64[distinct].
  """

  values: np.ndarray
  units: np.ndarray

  @classmethod
  def from_groups(cls, values: np.ndarray, units: np.ndarray) -> "Spread":
    """From values (float64[n]) of groups of units (int64[n], 0 allowed)."""
    held = units > 0
    distinct, inverse = np.unique(values[held], return_inverse=True)
    return cls(
        distinct, np.bincount(inverse, units[held]).astype(np.int64)
    )

  @property
  def low(self) -> float:
    """The smallest value."""
    return float(self.values[0])

  @property
  def high(self) -> float:
    """The largest value."""
    return float(self.values[-1])

  @property
  def varies(self) -> bool:
    """Whether units differ by more than rounding."""
    return self.high - self.low > 1e-12 * self.high

  def __str__(self) -> str:
    if not self.varies:
      return f"{self.high:.4g}"
    return f"{self.low:.3g} – {self.high:.3g}"


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Rates:
  """The rates of one level; those of form "independent" are of one task.

  Attributes:
    level: its name.
    units: how many it has.
    parent: q, 1 for the primary level.
    own: p.
    inclusion: eta = q p.
    per_step: eta of a whole step: more than `inclusion` for tasks that are
      drawn independently of one another.
  """

  level: str
  units: int
  parent: Spread
  own: Spread
  inclusion: Spread
  per_step: Spread


def rates(
    hierarchy: plan_lib.Hierarchy, plan: plan_lib.SamplingPlan
) -> tuple[Rates, ...]:
  """The rates of every level, in tree order."""
  result = []
  tasks = 1
  if plan.episode is not None and plan.episode.form == "independent":
    tasks = plan.episode.tasks or 1
  parent = np.ones(1)
  for k, (level, stage) in enumerate(zip(hierarchy.levels, plan.stages)):
    children = hierarchy.child_counts(k)
    own = np.asarray(stage.rate(children), float)
    inclusion = parent * own
    # A regular level has one kind of unit, whatever their number.
    units = children
    if hierarchy.sizes is not None:
      units = np.asarray([hierarchy.num_units(k)])
    with np.errstate(divide="ignore"):
      step = -np.expm1(tasks * np.log1p(-inclusion)) if tasks > 1 else inclusion
    result.append(
        Rates(
            level=level,
            units=hierarchy.num_units(k),
            parent=Spread.from_groups(parent, units),
            own=Spread.from_groups(own, units),
            inclusion=Spread.from_groups(inclusion, units),
            per_step=Spread.from_groups(step, units),
        )
    )
    parent = inclusion
    if hierarchy.sizes is None and k < hierarchy.depth - 1:
      parent = np.repeat(inclusion, children)
  return tuple(result)


@plotting.styled
def draw(levels: tuple[Rates, ...]) -> bytes:
  """A PNG: q, p and eta of every level, and how eta spreads where it does."""
  spread = [r for r in levels if r.inclusion.varies]
  heights = [0.7 * len(levels) + 1.0] + [1.9] * len(spread)
  figure = plotting.figure(sum(heights) + 0.3)
  panels = figure.subplots(
      len(heights), 1, squeeze=False, height_ratios=heights
  )[:, 0]
  _dots(panels[0], levels)
  for axes, one in zip(panels[1:], spread):
    _histogram(axes, one, plotting.COLORS[levels.index(one) % 6])
  return plotting.png(figure)


def _dots(axes: plotting.Axes, levels: tuple[Rates, ...]) -> None:
  """One row per level, one marker per rate, a line from smallest to largest."""
  kinds = (
      ("parent rate q", "parent", "s", plotting.ORANGE, -0.22),
      ("own rate p", "own", "^", plotting.GREEN, 0.0),
      ("inclusion η = q p", "inclusion", "o", plotting.BLUE, 0.22),
  )
  for label, name, marker, color, shift in kinds:
    for row, one in enumerate(levels):
      found: Spread = getattr(one, name)
      y = row + shift
      axes.plot(
          [found.low, found.high], [y, y], color=color, linestyle="-",
          linewidth=3,
      )
      axes.plot(
          [found.high], [y], marker=marker, color=color, markersize=7,
          linestyle="", label=label if not row else None, clip_on=False,
      )
      axes.annotate(
          str(found), (found.low, y), xytext=(-8, 0), ha="right", va="center",
          textcoords="offset points",
      )
  lowest = min(one.inclusion.low for one in levels if one.inclusion.low > 0)
  axes.set_xscale("log")
  # Room for the numbers, which stand to the left of their markers: a third.
  room = max(1.0, 0.5 * math.log10(1 / lowest))
  axes.set_xlim(lowest / 10**room, 1.15)
  axes.set_ylim(len(levels) - 0.5, -0.5)
  axes.set_yticks(range(len(levels)), [one.level for one in levels])
  axes.set_xlabel("probability in one step (logarithmic)")
  axes.set_title(
      "How often a step draws one unit", fontsize=11, loc="left", pad=28
  )
  plotting.legend_above(axes, columns=3)


def _histogram(axes: plotting.Axes, one: Rates, color: str) -> None:
  found = one.inclusion
  axes.hist(
      found.values, bins=min(30, max(8, len(found.values))),
      weights=found.units, color=color, edgecolor="white", linewidth=0.5,
  )
  axes.set_title(f"η over the units of level '{one.level}'", loc="left")
  axes.set_ylabel("units")
  axes.set_xlabel("η")
