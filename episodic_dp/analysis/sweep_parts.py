"""What all sweeps are made of: a run to vary, and panels of lines as data."""

from collections.abc import Callable, Iterable, Iterator, Sequence
import dataclasses
import math
from typing import Any

import numpy as np

from episodic_dp import accounting
from episodic_dp import plan as plan_lib
from episodic_dp.accounting.profiles import amplification
from episodic_dp.accounting.profiles import averaged
from episodic_dp.accounting.profiles import unit_profile
from episodic_dp.output import phases

_STEP_POINTS = 25


@dataclasses.dataclass(frozen=True)
class SweptRun:
  """A described config and what it costs.

  Attributes:
    release: what every step draws and releases.
    steps: how many.
    delta: of all guarantees.
    own: level -> the config's own epsilon, where that is finite.
  """

  release: plan_lib.Release
  steps: int
  delta: float
  own: dict[str, float]

  @property
  def hierarchy(self) -> plan_lib.Hierarchy:
    """Of the release."""
    return self.release.hierarchy

  @property
  def plan(self) -> plan_lib.SamplingPlan:
    """Of the release."""
    return self.release.plan

  @property
  def mechanism(self) -> plan_lib.Mechanism:
    """Of the release."""
    return self.release.mechanism

  def epsilon(
      self, level: str, steps: int | None = None, **parts: Any
  ) -> float | None:
    """Epsilon with other parts of the release, or other steps.

    None where that has no guarantee.
    """
    try:
      return accounting.guarantee(
          self.release.replace(**parts), steps=steps or self.steps,
          delta=self.delta, level=level,
      ).epsilon
    except (plan_lib.PlanError, plan_lib.UnsoundPlanError):
      return None


def level_lines(
    run: SweptRun, name: str, values: Sequence[Any],
    change: Callable[[Any], dict[str, Any]], own: Any,
) -> list[dict[str, Any]]:
  """One line per level: epsilon where `change(value)` is replaced in the run.

  The config's own epsilon is known and not computed again.
  """
  found: dict[str, list[float | None]] = {level: [] for level in run.own}
  asked = [(level, x) for x in values for level in run.own]
  for level, x in with_progress(asked, name):
    found[level].append(
        run.own[level] if x == own else run.epsilon(level, **change(x))
    )
  return [line(level, values, found[level], own) for level in run.own]


def line(
    label: str, xs: Iterable[Any], ys: Iterable[float | None],
    own: Any = None, style: str = "level",
) -> dict[str, Any]:
  """A line, JSON-able; `own` is the config's own x where the line meets it."""
  x_values = [float(x) if isinstance(x, float) else int(x) for x in xs]
  y_values = [_number(y) for y in ys]
  point = None if own is None else [own, y_values[x_values.index(own)]]
  return {
      "label": label, "style": style, "x": x_values, "y": y_values,
      "own": point,
  }


def _number(value: float | None) -> float | str | None:
  """A number for strict JSON; infinity is the string "inf"."""
  if value is None:
    return None
  return float(value) if math.isfinite(value) else "inf"


def panel(
    title: str, x_label: str, lines: list[dict[str, Any]], run: SweptRun
) -> dict[str, Any]:
  """A panel of epsilon with logarithmic axes, JSON-able."""
  return {
      "title": title,
      "x_label": x_label,
      "y_label": f"ε at δ = {run.delta:g}",
      "x_scale": "log",
      "y_scale": "log",
      "x_ticks": None,
      "y_range": None,
      "lines": lines,
  }


def steps_around(own: int) -> list[int]:
  """Steps from 1 to ten times `own`, evenly in the logarithm, and `own`."""
  numbers = np.geomspace(1, 10 * own, _STEP_POINTS).round().astype(int)
  return sorted({own, *numbers.tolist()})


def largest_sensitivity(
    profiles: unit_profile.UnitProfiles,
) -> float | None:
  """How far a unit of a tree moves the sum, in units of the noise's deviation.

  None for units that recur or bring random numbers: they have no one distance.
  """
  whole = (
      p.at_most if isinstance(p, averaged.Averaged) else p for p in profiles
  )
  trees = [p for p in whole if isinstance(p, amplification.Amplification)]
  if not trees or len(trees) < len(profiles):
    return None
  return max(tree.unit_sensitivity for tree in trees)


def with_progress(items: Iterable[Any], name: str) -> Iterator[Any]:
  """The items, with progress for people who wait over two seconds."""
  items = list(items)
  with (
      phases.phase(f"sweep {name}"),
      phases.progress(len(items), "curve") as progress,
  ):
    for item in items:
      yield item
      progress.update()
