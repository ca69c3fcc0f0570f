"""Several runs on the same people: one ledger, as far as they are the same.

Privacy statements and ledgers name levels, not people. What can be checked is
that the levels have the same names and the hierarchies the same tree (or that
the caller says at which levels units are the same); the rest is assumed, and
said with every guarantee.
"""

from collections.abc import Mapping, Sequence
import dataclasses
from typing import Any

from episodic_dp import plan as plan_lib
from episodic_dp.accounting import ledger as ledger_lib
from episodic_dp.accounting import privacy_statement
from episodic_dp.accounting import report
from episodic_dp.errors import shown


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Study:
  """What several runs and queries cost together.

  Attributes:
    parts: name -> the ledger of each.
    ledger: of all of them.
    levels: at which units are taken to be the same in all parts.
    fixed_seed: whether one of the runs follows from a seed in its config.
    deltas: name -> delta of the statements that have one.
    starts: names of the runs that begin with given weights.
    lineages: name of a run -> a number of each process that took part in it.
  """

  parts: Mapping[str, ledger_lib.Ledger]
  ledger: ledger_lib.Ledger
  levels: tuple[str, ...]
  fixed_seed: bool
  deltas: Mapping[str, float]
  starts: tuple[str, ...] = ()
  lineages: Mapping[str, Sequence[str]] = dataclasses.field(
      default_factory=dict
  )

  @property
  def delta(self) -> float | None:
    """That of all statements that have one, or None."""
    found = set(self.deltas.values())
    return found.pop() if len(found) == 1 else None

  @property
  def assumption(self) -> str:
    """What nothing in the statements shows."""
    begins = (
        f" {', '.join(self.starts)}: {privacy_statement.STARTED}"
        if self.starts
        else ""
    )
    return (
        f"In {', '.join(self.parts)} a level"
        f" ({', '.join(self.levels)}) means the same units: one unit is in or"
        " out of all of them, and every other release about these units is"
        f" among them. Each run has a secret key of its own.{begins}"
    )

  def guarantee(
      self, level: str, *, delta: float, group: int = 1
  ) -> report.Guarantee:
    """The guarantee of all parts together at a shared level.

    Raises:
      UnsoundPlanError: no guarantee is proved for the level.
      PlanError: a value is out of range, or the level is not shared.
    """
    if level not in self.levels:
      raise plan_lib.PlanError(
          f"level '{level}' is not said to be the same units in all runs"
          f" ({', '.join(self.levels)} are): name it with --same_level"
      )
    found = self.ledger.guarantee(level, delta=delta, group=group)
    found = dataclasses.replace(
        found,
        assumptions=tuple(dict.fromkeys([self.assumption, *found.assumptions])),
    )
    return privacy_statement.seeded(found) if self.fixed_seed else found


def compose(
    described: Mapping[str, Any], *, same_levels: Sequence[str] = ()
) -> Study:
  """Put the statements or ledgers of several runs together.

  Args:
    described: name -> a privacy statement, or what `Ledger.as_dict` gave; of a
      study with its "delta", "fixed_seed", "lineages", "starts" and "levels".
    same_levels: levels whose units are the same although the trees differ; by
      default all levels of trees that are equal.

  Raises:
    PlanError: something is no ledger, the trees differ and nothing says which
      levels are the same, or two runs may share their noise; one sentence.
  """
  if not described:
    raise plan_lib.PlanError("no run is named: give --ledger=DIR,DIR")
  parts, seeded, deltas = {}, [], {}
  for name, data in described.items():
    try:
      parts[name] = ledger_lib.Ledger.from_dict(data)
    except plan_lib.PlanError as e:
      raise type(e)(f"{name}: {e}") from e
    if data.get("fixed_seed"):
      seeded.append(name)
    if isinstance(data.get("delta"), float):
      deltas[name] = data["delta"]
  if len(seeded) > 1:
    raise plan_lib.PlanError(
        f"{' and '.join(seeded)} fix private_seed: with one seed their noise"
        " could be the same and cancel, so nothing is stated for them together;"
        " leave private_seed out for secret keys"
    )
  lineages = _lineages(described)
  _check_lineages(lineages)
  levels = _shared_levels(
      parts,
      {name: _levels(part, described[name]) for name, part in parts.items()},
      same_levels,
  )
  ledger = ledger_lib.Ledger()
  # Runs first: their tree orders the levels.
  for part in sorted(parts.values(), key=lambda p: not p.entries):
    ledger = ledger.joined(part)
  return Study(
      parts=parts,
      ledger=ledger,
      levels=levels,
      fixed_seed=bool(seeded),
      deltas=deltas,
      starts=tuple(
          run
          for name, data in described.items()
          for run in (
              [name] * ("start" in data)
              + [_within(name, run) for run in _list(data.get("starts"))]
          )
      ),
      lineages=lineages,
  )


def _levels(
    part: ledger_lib.Ledger, data: Mapping[str, Any]
) -> tuple[str, ...]:
  """Those of a ledger; of a study, at which its own runs are the same."""
  said = data.get("levels")
  same = part.levels if said is None else _list(said)
  return tuple(level for level in part.levels if level in same)


def _list(value: object) -> list[str]:
  return list(map(str, value)) if isinstance(value, list) else []


def _within(study: str, run: str) -> str:
  return f"{run} (in {study})"


def _lineages(described: Mapping[str, Any]) -> dict[str, list[str]]:
  """Those that are stated, also of the runs that a study holds."""
  stated = {}
  for name, data in described.items():
    stated[name] = _list(data.get("lineage"))
    held = data.get("lineages")
    for run, lineage in held.items() if isinstance(held, dict) else ():
      stated[_within(name, run)] = _list(lineage)
  return {name: lineage for name, lineage in stated.items() if lineage}


def _check_lineages(lineages: Mapping[str, list[str]]) -> None:
  """Refuses statements of one run, and of copies of its work directory.

  The numbers of the processes that took part begin alike then.
  """
  # The first number of a run -> who names the run, and all its numbers.
  known: dict[str, tuple[str, list[str]]] = {}
  for name, lineage in lineages.items():
    other, before = known.setdefault(lineage[0], (name, lineage))
    if other == name:
      continue
    shorter, longer = sorted([before, lineage], key=len)
    if longer[: len(shorter)] == shorter:
      raise plan_lib.PlanError(
          f"{other} and {name} are of one run, which is counted once: name the"
          " later one of them"
      )
    raise plan_lib.PlanError(
        f"{other} and {name} are copies of one run that were both continued:"
        " their steps may share noise, which could cancel, so nothing is stated"
        " for them together; name one of them, and publish no other"
    )


def _shared_levels(
    parts: Mapping[str, ledger_lib.Ledger],
    levels: Mapping[str, tuple[str, ...]],
    same_levels: Sequence[str],
) -> tuple[str, ...]:
  """The levels at which all parts are about the same units, or an error."""
  trees = {
      name: _tree(part.entries[0].release)
      for name, part in parts.items()
      if part.entries
  }
  order = levels[next(iter(trees), next(iter(parts)))]
  common = [x for x in order if all(x in levels[name] for name in trees)]
  alone = (
      "no level has one name in all of them, so account for each alone, as"
      f" --ledger={next(iter(parts))}"
  )
  for level in same_levels:
    missing = [
        name
        for name, part in parts.items()
        if part.entries and level not in levels[name]
    ]
    if missing or level not in order:
      raise plan_lib.PlanError(
          f"--same_level={level} is not a level of"
          f" {', '.join(missing) or 'any run'}:"
          f" {'name one of ' + ', '.join(common) if common else alone}"
      )
  if same_levels:
    return tuple(level for level in order if level in same_levels)
  first = next(iter(trees), "")
  for name in trees:
    if trees[name] != trees[first]:
      where = "where they are, name the level, such as --same_level="
      raise plan_lib.PlanError(
          f"{first} and {name} have different hierarchies"
          f" ({_difference(trees[first], trees[name])}), and nothing says that"
          " they are about the same units:"
          f" {where + common[0] if common else alone}"
      )
  return tuple(common)


def _tree(release: plan_lib.Release) -> dict[str, Any]:
  return plan_lib.to_dict(release)["hierarchy"]


def _difference(one: dict[str, Any], other: dict[str, Any]) -> str:
  """The first field in which two trees differ, in words."""
  for name in {**one, **other}:
    if one.get(name) != other.get(name):
      return f"{name} {shown(one.get(name))} and {shown(other.get(name))}"
  return "the same"
