"""What has been spent: the steps of a run, or of several, and their guarantee.

A ledger is a list of entries, each a number of equal steps. Steps of the same
description (hierarchy, plan and mechanism) are one entry, so that a ledger to
which a run adds every step stays one entry long, and asking it what was `spent`
costs one inverse transform: milliseconds. Different entries are composed as
phases of one run, adaptively: what a later entry samples and releases may
depend on what earlier ones released.

Entries draw independent randomness. A pass of `RandomAllocation` does not: its
steps share the order in which the units are used, so that `add` must be told
whether steps of such a plan go on with the pass of the last entry.
Every length of a pass is another distribution, up to a second of work: there
`spent` answers for the end of the next sixteenth of the pass, or sooner.
"""

from collections.abc import Iterator, Mapping, Sequence
import dataclasses
import math
from typing import Any

from episodic_dp import plan as plan_lib
from episodic_dp.accounting import foreign as foreign_lib
from episodic_dp.accounting import queries
from episodic_dp.accounting import report
from episodic_dp.accounting import run_phases
from episodic_dp.accounting.guarantee import AnyAccountant
from episodic_dp.accounting.guarantee import compose_guarantee
from episodic_dp.accounting.guarantee import compose_guarantees
from episodic_dp.errors import shown

Entry = run_phases.Entry

# More steps than any run takes; larger numbers would leave exact arithmetic.
MAX_STEPS = 10**12
# `spent` computes a pass at so many of its steps, at least.
_RUNGS = 16


@dataclasses.dataclass(frozen=True, eq=False)
class Ledger:
  """Steps that were taken; `add` gives a new ledger, none is ever changed.

  Formal guarantees: `guarantee` and `epsilon` are upper bounds for everything
  that the entries released together, under the assumptions that the guarantee
  lists. A level means the same units in every entry: one unit is in or out of
  all of them.

  Attributes:
    entries: in the order in which they were first added.
    foreign: queries and selections among runs, in the order of adding.
  """

  entries: tuple[Entry, ...] = ()
  foreign: tuple[queries.Foreign, ...] = ()

  @property
  def steps(self) -> int:
    """The steps of all entries."""
    return sum(entry.steps for entry in self.entries)

  @property
  def levels(self) -> tuple[str, ...]:
    """The levels of the first entry, or those that queries name."""
    return foreign_lib.levels_of(self.entries, self.foreign)

  @property
  def sampler_variation(self) -> float:
    """How far all that is drawn is from the plans, in total variation."""
    error = run_phases.sampler_error(self.entries)
    return (error + foreign_lib.sampler_error(self.foreign)).variation

  def add_foreign(self, *mechanisms: queries.Foreign) -> "Ledger":
    """The ledger after queries, or selections among runs; see `foreign`."""
    return dataclasses.replace(self, foreign=(*self.foreign, *mechanisms))

  def joined(self, other: "Ledger") -> "Ledger":
    """The ledger after all that another one holds, in passes of its own."""
    result = self
    for entry in other.entries:
      result = result.add(entry.release, entry.steps, continued=False)
    return result.add_foreign(*other.foreign)

  def add(
      self,
      release: plan_lib.Release,
      steps: int = 1,
      *,
      continued: bool | None = None,
  ) -> "Ledger":
    """The ledger after some more steps.

    Args:
      release: what each of them sampled and released.
      steps: how many, at least 1.
      continued: whether they go on with the passes of the last entry, which is
        of the same plan: True for the next steps of the same run, under the
        same key, False for passes that start anew. Plans with
        `RandomAllocation` must say it, for others it changes nothing.

    Formal guarantees: T steps of one pass use every unit for certain, T first
    steps of a pass each may never use it and so cost less: counting the former
    as the latter would claim less than the truth.

    Raises:
      PlanError: steps out of range, or nothing of this plan to continue, or a
        plan with passes and no word on whether they go on.
    """
    new = _entry(release, steps)
    if _in_passes(release.plan) and continued is None:
      raise plan_lib.PlanError(
          f"{release.plan.stages[0]} uses every unit once in a pass, and"
          " nothing says whether these steps go on with the pass of the last"
          " entry: write add(release, steps, continued=True) if they do, and"
          " continued=False if they start a new one"
      )
    at = None
    if not _in_passes(release.plan):
      same = (i for i, e in enumerate(self.entries) if same_description(e, new))
      at = next(same, None)
    elif continued and self.entries:
      at = len(self.entries) - 1
      if not same_description(self.entries[at], new):
        raise plan_lib.PlanError(
            "continued=True adds steps to the passes of the last entry, which"
            " is of another plan: use continued=False, and start a new pass"
        )
    if at is None:
      return dataclasses.replace(self, entries=(*self.entries, new))
    old = self.entries[at]
    total = _entry(old.release, old.steps + steps)
    entries = (*self.entries[:at], total, *self.entries[at + 1 :])
    return dataclasses.replace(self, entries=entries)

  def guarantee(self, level: str, **options: Any) -> report.Guarantee:
    """The guarantee of one level for all entries together.

    Args:
      level: the privacy unit, a level of every entry's hierarchy.
      **options: as `accounting.guarantee` has them: delta or epsilon,
        accountant, neighbours.

    Raises:
      UnsoundPlanError: no guarantee is proved for an entry.
      PlanError: a value is out of range, or the ledger is empty.
    """
    self._not_empty()
    return compose_guarantee(
        self.entries, self.foreign, level=level, **options
    )

  def guarantees(self, **options: Any) -> dict[str, report.Guarantee]:
    """Level -> Guarantee, for every level that has one, in tree order.

    Raises:
      UnsoundPlanError: no level has one; the text is the first level's.
      PlanError: as for `guarantee`.
    """
    self._not_empty()
    return compose_guarantees(self.entries, self.foreign, **options)

  def epsilon(
      self,
      level: str,
      delta: float,
      accountant: AnyAccountant = "pld",
  ) -> float:
    """Epsilon of all entries at a level: 0 for an empty ledger."""
    if not self.entries and not self.foreign:
      return 0.0
    return self.guarantee(level, delta=delta, accountant=accountant).epsilon

  def spent(
      self,
      level: str,
      delta: float,
      accountant: AnyAccountant = "pld",
  ) -> float:
    """`epsilon`, to be asked after every step: quick, and never below it.

    The two are equal but within a pass of `RandomAllocation`, which counts as
    if it had come to the end of its current sixteenth, or less.
    """
    rounded = tuple(
        dataclasses.replace(e, steps=_rounded_up(e)) for e in self.entries
    )
    return dataclasses.replace(self, entries=rounded).epsilon(
        level, delta, accountant
    )

  def _not_empty(self) -> None:
    if not self.entries and not self.foreign:
      raise plan_lib.PlanError("the ledger has no steps: add some first")

  def as_dict(self) -> dict[str, Any]:
    """Plain data for JSON: "entries", each of `plan.to_dict` and "steps".

    Where there is any, "foreign" holds what else was released.
    """
    result: dict[str, Any] = {
        "entries": [
            {**plan_lib.to_dict(e.release), "steps": e.steps}
            for e in self.entries
        ]
    }
    if self.foreign:
      result["foreign"] = [queries.to_dict(m) for m in self.foreign]
    return result

  @classmethod
  def from_dict(cls, data: Any) -> "Ledger":
    """The ledger that `as_dict` wrote; fields beside its own are not read.

    Raises:
      PlanError: a field is missing, unknown or wrong; one sentence.
      UnsoundPlanError: a plan that no ledger can hold.
    """
    if not isinstance(data, Mapping) or not isinstance(
        data.get("entries"), list
    ):
      raise plan_lib.PlanError(
          f"the ledger is {shown(data)}: it must be an object with a list of"
          " entries, as Ledger.as_dict writes it"
      )
    more = data.get("foreign", [])
    if not isinstance(more, list):
      raise plan_lib.PlanError(
          f"the ledger's foreign is {shown(more)}: it must be a list of queries"
          " and selections, as Ledger.as_dict writes it"
      )
    return cls(
        tuple(_read(data["entries"])),
        tuple(queries.from_dict(m, cls.from_dict) for m in more),
    )


def _read(entries: Sequence[Any]) -> Iterator[Entry]:
  """The entries of a ledger from plain data."""
  for i, described in enumerate(entries):
    if not isinstance(described, Mapping) or "steps" not in described:
      raise plan_lib.PlanError(
          f"entry {i} is {shown(described)}: it must be an object with"
          " hierarchy, plan, mechanism and steps"
      )
    rest = {k: v for k, v in described.items() if k != "steps"}
    yield _entry(plan_lib.from_dict(rest), described["steps"])


def same_description(a: Entry, b: Entry) -> bool:
  """Whether two entries sample and release alike; their steps may differ."""
  if a.release == b.release:  # The very same hierarchy.
    return True
  first, second = (plan_lib.to_dict(e.release) for e in (a, b))
  return first == second


def _entry(release: plan_lib.Release, steps: Any) -> Entry:
  whole = isinstance(steps, int) and not isinstance(steps, bool)
  if not whole or not 1 <= steps <= MAX_STEPS:
    raise plan_lib.PlanError(
        f"steps {shown(steps)} must be a whole number from 1 to"
        f" {MAX_STEPS}"
    )
  return Entry(release, steps)


def _rounded_up(entry: Entry) -> int:
  """The entry's steps, or the end of the sixteenth of a pass they lie in."""
  if not _in_passes(entry.release.plan):
    return entry.steps
  pass_of = max(
      stage.steps
      for stage in entry.release.plan.stages
      if isinstance(stage, plan_lib.RandomAllocation)
  )
  whole, rest = divmod(entry.steps, pass_of)
  # A power of two: the sum over one rung more is that of two others, which a
  # pass has asked for before (`lognormal_sum.copies`).
  rung = 1 << max(pass_of // _RUNGS, 1).bit_length() - 1
  return whole * pass_of + min(math.ceil(rest / rung) * rung, pass_of)


def _in_passes(plan: plan_lib.SamplingPlan) -> bool:
  """Whether steps of the plan share the order in which they use the units."""
  return any(
      isinstance(stage, plan_lib.RandomAllocation) for stage in plan.stages
  )
