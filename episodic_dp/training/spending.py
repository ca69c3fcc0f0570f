"""What the steps of a run cost: ledger, guarantees, statement, curves."""

from collections.abc import Mapping, Sequence
import math
import pathlib

import numpy as np

from episodic_dp import accounting
from episodic_dp.accounting import report
from episodic_dp.training import plots
from episodic_dp.training import reporting
from episodic_dp.training import spec as spec_lib

_CURVE_POINTS = 20


def ledger_after(spec: spec_lib.TrainingSpec, steps: int) -> accounting.Ledger:
  """The ledger of the run after so many steps."""
  if not steps:
    return accounting.Ledger()
  return accounting.Ledger().add(spec.release, steps, continued=False)


class Spending:
  """The privacy cost of a run, step by step.

  Args:
    spec: the run.
    steps: the steps that earlier processes have done.
    lineage: of the processes that took part, this one last.

  Attributes:
    ledger: of the steps done.
    guarantees: level -> Guarantee: of the whole run until `finish` was called,
      then of the steps done.
  """

  def __init__(
      self, spec: spec_lib.TrainingSpec, steps: int, lineage: Sequence[str]
  ):
    self._spec = spec
    self._lineage = lineage
    self._planned = ledger_after(spec, spec.steps)
    self.ledger = ledger_after(spec, steps)
    self._whole = self.guarantees = self._guarantees_of(self._planned)

  def add_step(self) -> None:
    """Accounts for one more step."""
    self.ledger = self.ledger.add(self._spec.release, continued=True)

  def finish(self, folder: pathlib.Path) -> None:
    """States the guarantees of the steps done, where there are any."""
    if self.ledger.steps:
      self.guarantees = self._guarantees_of(self.ledger)
      self._write_statement(folder, self.ledger)

  def write_planned_statement(self, folder: pathlib.Path) -> None:
    """Writes guarantee.json for the whole run, before its first step."""
    self._write_statement(folder, self._planned)

  @property
  def told_level(self) -> str | None:
    """The level whose epsilon is told while the run lasts.

    The privacy unit; where none is named, or it has no guarantee, the first
    with one; None where no level has.
    """
    unit = self._spec.privacy_unit
    for level in sorted(self._whole, key=lambda level: level != unit):
      if math.isfinite(self._whole[level].epsilon):
        return level
    return None

  def epsilon(self) -> float:
    """Epsilon of `told_level` for the steps done, or inf."""
    level = self.told_level
    if level is None:
      return math.inf
    return self._spent(self.ledger, level) if self.ledger.steps else 0.0

  def _spent(self, ledger: accounting.Ledger, level: str) -> float:
    """Epsilon of the first steps, and at most that of the whole run.

    What the first steps released is a part of what the whole run does, so that
    its epsilon, which is within the budget, holds for them too: quick bounds
    for the middle of a pass may be above it.
    """
    return min(
        ledger.spent(level, self._spec.delta), self._whole[level].epsilon
    )

  def epsilon_curves(self) -> list[plots.Curve]:
    """Epsilon of every level that has one, over the steps of the whole run."""
    spec = self._spec
    # Denser where the curve bends: epsilon grows about as the square root.
    roots = np.linspace(1, spec.steps**0.5, min(spec.steps, _CURVE_POINTS))
    points = sorted({int(round(root**2)) for root in roots})
    curves = []
    for level, guarantee in self._whole.items():
      if math.isfinite(guarantee.epsilon):
        values = [self._spent(ledger_after(spec, t), level) for t in points]
        curves.append(plots.Curve(label=level, steps=points, values=values))
    return curves

  def _guarantees_of(
      self, ledger: accounting.Ledger
  ) -> Mapping[str, accounting.Guarantee]:
    found = ledger.guarantees(delta=self._spec.delta)
    # In the guarantee itself, so that it is said wherever epsilon is.
    if self._spec.learner.model.start is not None:
      found = {k: g.with_caveat(report.STARTED) for k, g in found.items()}
    if self._spec.private_seed is not None:
      found = {k: g.with_caveat(report.SEEDED) for k, g in found.items()}
    return found

  def _write_statement(
      self, folder: pathlib.Path, ledger: accounting.Ledger
  ) -> None:
    reporting.write_statement(
        folder / reporting.GUARANTEE,
        ledger,
        delta=self._spec.delta,
        fixed_seed=self._spec.private_seed is not None,
        planned_steps=self._spec.steps,
        lineage=self._lineage,
        start=self._spec.learner.model.start,
    )
