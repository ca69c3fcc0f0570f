"""Data that reach the bounds where any can, for `exact` to enumerate."""

from collections.abc import Iterator

import numpy as np

from episodic_dp import plan as plan_lib
from tests.oracles import exact


def ancestor(
    hierarchy: plan_lib.Hierarchy, level: int, unit: int, above: int
) -> int:
  """The unit of level `above` that holds a unit of a level, or is it."""
  for k in range(level, above, -1):
    if hierarchy.sizes is not None:
      unit //= hierarchy.sizes[k]
    else:
      assert hierarchy.offsets is not None
      unit = int(np.searchsorted(hierarchy.offsets[k], unit, "right")) - 1
  return unit


def gradients(
    hierarchy: plan_lib.Hierarchy, level: int, unit: int
) -> Iterator[exact.Gradient]:
  """Gradients that reach the bounds where any can.

  With t the unit: +1 for a clip unit that holds t or lies in it, -1 for all
  else of t's parent, and -1, 0 or +1 elsewhere (for a primary unit: for all
  else). The first is the worst case of removal under replacement, the second
  that of either direction where clip units are absent when not drawn, the third
  that of addition under replacement. Further below the primary unit the rest of
  that one may be drawn along with t: there it also differs from all others.
  Last, siblings that come and go by themselves are best left at 0.
  """
  for elsewhere in (-1.0, 0.0, 1.0):
    yield by_place(hierarchy, level, unit, -1.0, elsewhere, elsewhere)
  if level > 1:
    for near in (1.0, -1.0):
      yield by_place(hierarchy, level, unit, -1.0, near, 0.0)
      yield by_place(hierarchy, level, unit, -1.0, near, -near)
  if level > 0:
    yield by_place(hierarchy, level, unit, 0.0, 0.0, 0.0)


def by_place(
    hierarchy: plan_lib.Hierarchy,
    level: int,
    unit: int,
    parent: float,
    near: float,
    far: float,
) -> exact.Gradient:
  """+1 for what holds t or lies in it, and one number for each place else.

  Args:
    hierarchy: the tree.
    level: of t, from 0.
    unit: t.
    parent: what lies in t's parent, or holds it and not t.
    near: what else lies in t's primary unit, or is it.
    far: all else.
  """

  def touches(node: exact.Node, at: int, wanted: int) -> bool:
    if at < 0:  # The parent of a primary unit is everything: nothing is else.
      return False
    if node[0] < at:
      return exact.holds(node, at, wanted)
    return ancestor(hierarchy, node[0], node[1], at) == wanted

  above = ancestor(hierarchy, level, unit, level - 1) if level else 0
  primary = ancestor(hierarchy, level, unit, 0)

  def gradient(node: exact.Node) -> float:
    if touches(node, level, unit):
      return 1.0
    if touches(node, level - 1, above):
      return parent
    return near if touches(node, 0, primary) else far

  return gradient
