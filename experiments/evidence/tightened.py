"""Guarantees that version 0.1 reported too large, as they are computed now."""

from collections.abc import Sequence
import dataclasses
from typing import Any

from episodic_dp import accounting
from episodic_dp import plan as plan_lib
from experiments.evidence import pages

_ALL, _ONE = plan_lib.All(), plan_lib.FixedSize(1)
_CARE = ("hospital", "patient", "record")


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Case:
  """One release, its steps, and what 0.1 said.

  Attributes:
    what: in words.
    hierarchy: its sizes.
    stages: of the plan.
    clip: the clip unit.
    noise: the multiplier z.
    steps: T.
    delta: of the guarantees.
    before: level -> the epsilon that 0.1 reported.
    episode: of the plan, or None.
    options: of `accounting.guarantee`.
  """

  what: str
  hierarchy: plan_lib.Hierarchy
  stages: Sequence[plan_lib.Stage]
  clip: str
  noise: float
  steps: int
  before: dict[str, str]
  delta: float = 1e-6
  episode: plan_lib.Episode | None = None
  options: dict[str, Any] = dataclasses.field(default_factory=dict)

  @property
  def release(self) -> plan_lib.Release:
    return plan_lib.Release(
        self.hierarchy,
        plan_lib.SamplingPlan(tuple(self.stages), self.episode),
        plan_lib.Mechanism(clip_unit=self.clip, noise_multiplier=self.noise),
    )


def _examples(users: int, examples: int) -> plan_lib.Hierarchy:
  return plan_lib.Hierarchy.regular(
      (users, examples), levels=("user", "example")
  )


def _cases() -> tuple[_Case, ...]:
  tree = plan_lib.Hierarchy.from_sizes
  flat = plan_lib.Hierarchy.regular
  return (
      _Case(
          what="100 examples of a user, drawn and clipped one by one",
          hierarchy=_examples(1000, 100),
          stages=(plan_lib.Poisson(0.01), plan_lib.Poisson(0.05)),
          clip="example", noise=10.0, steps=500,
          before={"user": "inf", "example": "0.0481"},
      ),
      _Case(
          what="copies, one of each record at most",
          hierarchy=flat(
              (1000, 8, 20), levels=("task", "class", "image"), copies=True,
              most_copies={"class": 1, "image": 1},
          ),
          stages=(
              plan_lib.Poisson(0.02), plan_lib.FixedSize(5),
              plan_lib.FixedSize(6),
          ),
          clip="task", noise=1.0, steps=300,
          before={"class": "inf", "image": "20.97"},
      ),
      _Case(
          what="20 hospitals of one record, one of 50 x 100",
          hierarchy=tree([[1]] * 20 + [[100] * 50], levels=_CARE),
          stages=(plan_lib.Poisson(0.01), _ALL, _ONE),
          clip="patient", noise=1.0, steps=200, before={"record": "34.8"},
      ),
      _Case(
          what="users of 50 and of 2 records",
          hierarchy=tree([50] + [2] * 9, levels=("user", "record")),
          stages=(_ONE, _ALL), clip="record", noise=200.0, steps=50,
          delta=1e-5, before={"user": "1.65"},
      ),
      _Case(
          what="a stage that draws all there are",
          hierarchy=flat((10,), levels=("record",)),
          stages=(plan_lib.FixedSize(10),),
          clip="record", noise=8.0, steps=100, delta=1e-5,
          before={"record": "13.2"},
      ),
      _Case(
          what="patients that are mostly drawn empty",
          hierarchy=tree([[5] * 5] * 100, levels=_CARE),
          stages=(
              plan_lib.Poisson(0.05), plan_lib.Poisson(0.5),
              plan_lib.Poisson(0.05),
          ),
          clip="hospital", noise=1.0, steps=300, delta=1e-5,
          before={"patient": "4.07"},
      ),
      _Case(
          what="replace-one",
          hierarchy=flat((1000,), levels=("image",)),
          stages=(plan_lib.Poisson(0.004),), clip="image", noise=1.0,
          steps=250, before={"image": "refused"},
          options={"neighbours": "replace-one"},
      ),
      _Case(
          what="replace-one",
          hierarchy=flat((1000,), levels=("image",)),
          stages=(plan_lib.FixedSize(50),), clip="image", noise=4.0,
          steps=500, delta=1e-5, before={"image": "6.04"},
          options={"neighbours": "replace-one"},
      ),
  )


def tightened() -> pages.Table:
  """Epsilon now, and what it is at least, beside what 0.1 reported."""
  rows: list[tuple[pages.Cell, ...]] = []
  for case in _cases():
    for level, before in case.before.items():
      found = accounting.guarantee(
          case.release, steps=case.steps, level=level, delta=case.delta,
          **case.options,
      )
      stages = " > ".join(map(plan_lib.stage_text, case.stages))
      rows.append((
          f"{case.what}: {stages}, z = {case.noise:g}, {case.steps} steps,"
          f" δ = {case.delta:g}",
          level, before, found.lower or None, found.epsilon,
      ))
  return pages.Table(
      ("release", "level", "0.1", "ε at least", "ε at most"), tuple(rows)
  )


TABLES = {"tightened": tightened}
