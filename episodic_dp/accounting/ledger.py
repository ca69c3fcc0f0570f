"""Ledgers: the steps of one run or of several.

A ledger is a list of entries, each a number of equal steps. Steps with the same
description (hierarchy, plan and mechanism) are one entry. So the ledger of a
run that adds every step stays one entry long, and `spent` costs one inverse
transform: milliseconds. Different entries are composed as phases of one run,
adaptively: the sample and release of a later entry may depend on earlier
releases.

Entries have independent randomness. Steps of one pass of `RandomAllocation` do
not: they share the assignment of units. So `add` has an argument that says
whether steps of such a plan continue the pass of the last entry. Each length of
a pass has a different distribution, which takes up to a second; so `spent`
answers for the end of the next sixteenth of the pass, or sooner.

`compose` joins the ledgers of several runs on the same people. Privacy
statements name levels, not people. It checks that the levels have the same
names and the hierarchies the same tree (or that the caller names the levels
with equal units). The rest is assumed, and is stated with every guarantee.
"""

from collections.abc import Mapping, Sequence
import dataclasses
import math
from typing import Any

from episodic_dp import _validate
from episodic_dp import plain
from episodic_dp import plan as plan_lib
from episodic_dp.accounting import composition
from episodic_dp.accounting import report
from episodic_dp.accounting.guarantee import AnyAccountant
from episodic_dp.accounting.guarantee import compose_guarantee
from episodic_dp.accounting.guarantee import compose_guarantees
from episodic_dp.errors import PlanError

Entry = composition.Entry

# `spent` computes a pass for at least this many of its steps.
_RUNGS = 16


@dataclasses.dataclass(frozen=True, eq=False)
class Ledger:
  """The steps taken so far; `add` returns a new ledger, and none changes.

  Formal guarantees: `guarantee` and `epsilon` are upper bounds for everything
  that the entries released together, under the assumptions that the guarantee
  lists. A level has the same units in every entry: one unit is in all of them,
  or in none.

  Attributes:
    entries: in the order in which they were first added.
  """

  entries: tuple[Entry, ...] = ()

  @property
  def steps(self) -> int:
    """Count the steps of all entries."""
    return sum(entry.steps for entry in self.entries)

  @property
  def levels(self) -> tuple[str, ...]:
    """Return the levels of the first entry."""
    return self.entries[0].release.levels if self.entries else ()

  def joined(self, other: "Ledger") -> "Ledger":
    """Return the ledger after all entries of another, in separate passes."""
    result = self
    for entry in other.entries:
      result = result.add(entry.release, entry.steps, continued=False)
    return result

  def add(
      self,
      release: plan_lib.Release,
      steps: int = 1,
      *,
      continued: bool | None = None,
  ) -> "Ledger":
    """Return the ledger after some more steps.

    Args:
      release: the release of each step.
      steps: number of steps, at least 1.
      continued: whether they continue the passes of the last entry, which must
        have the same plan: True for the next steps of the same run and key,
        False for passes that start again. It is required for plans with
        `RandomAllocation`, and changes nothing for others.

    Formal guarantees: T steps of one pass surely use every unit. T first steps
    of T passes may never use it, and so cost less. Counting the former as the
    latter would claim less than the truth.

    Raises:
      PlanError: steps out of range, or no steps of this plan to continue, or a
        plan with passes without `continued`.
    """
    new = Entry(release, steps)
    in_passes = release.plan.pass_steps is not None
    if in_passes and continued is None:
      raise PlanError(
          f"{release.plan.stages[0]} uses every unit once in a pass, and it is"
          " not given whether these steps continue the pass of the last"
          " entry: write add(release, steps, continued=True) if they do, and"
          " continued=False if they start a new one"
      )
    same = [old for old in self.entries if old.same_description(new)]
    if in_passes:
      same = [*self.entries[-1:]] if continued else []
      if same and not same[0].same_description(new):
        raise PlanError(
            "continued=True adds steps to the passes of the last entry, which"
            " has another plan: use continued=False to start a new pass"
        )
    if not same:
      return Ledger((*self.entries, new))
    old = same[0]
    entries = [*self.entries]
    entries[entries.index(old)] = Entry(old.release, old.steps + steps)
    return Ledger(tuple(entries))

  def guarantee(self, level: str, **options: Any) -> report.Guarantee:
    """Compute the guarantee of one level for all entries together.

    Args:
      level: the privacy unit, a level of every entry's hierarchy.
      **options: as in `accounting.guarantee`: delta or epsilon, accountant,
        neighbours.

    Raises:
      UnsoundPlanError: no guarantee is proved for an entry.
      PlanError: a value is out of range, or the ledger is empty.
    """
    self.check_steps()
    return compose_guarantee(self.entries, level=level, **options)

  def guarantees(self, **options: Any) -> dict[str, report.Guarantee]:
    """Compute level -> Guarantee for every level that has one, in tree order.

    Raises:
      UnsoundPlanError: no level has a guarantee; the message is the first
        level's.
      PlanError: as for `guarantee`.
    """
    self.check_steps()
    return compose_guarantees(self.entries, **options)

  def epsilon(
      self,
      level: str,
      delta: float,
      accountant: AnyAccountant = "pld",
  ) -> float:
    """Compute epsilon of all entries at a level: 0 for an empty ledger."""
    if not self.entries:
      return 0.0
    return self.guarantee(level, delta=delta, accountant=accountant).epsilon

  def spent(self, level: str, delta: float) -> float:
    """Compute `epsilon` or slightly more, fast, after every step.

    The two are equal except within a pass of `RandomAllocation`, which counts
    as if it had reached the end of its current sixteenth, or less.
    """
    rounded = (Entry(e.release, _rounded_up(e)) for e in self.entries)
    return Ledger(tuple(rounded)).epsilon(level, delta)

  def check_steps(self) -> None:
    """Raise PlanError for a ledger without steps."""
    if not self.entries:
      raise PlanError("the ledger has no steps: add some first")

  def as_dict(self) -> dict[str, Any]:
    """Return plain data for JSON: entries of `plan.to_dict` and "steps"."""
    return {"entries": plain.to_plain(self.entries)}

  @classmethod
  def from_dict(cls, data: Any) -> "Ledger":
    """Read plain data from `as_dict`; other fields are ignored.

    Raises:
      PlanError: a field is missing, unknown or wrong; one sentence.
      UnsoundPlanError: a plan that a ledger cannot hold.
    """
    fields = plain.read(Mapping[str, Any], data, name="ledger")
    return cls(plain.read(
        tuple[Entry, ...], fields.get("entries"), name="entries"
    ))


def _rounded_up(entry: Entry) -> int:
  """Round the entry's steps up to the next sixteenth of a pass."""
  length = entry.release.plan.pass_steps
  if length is None:
    return entry.steps
  whole, rest = divmod(entry.steps, length)
  # A power of two: the sum for one rung more consists of two others, which a
  # pass has already requested (`allocation.copies`).
  rung = 1 << max(length // _RUNGS, 1).bit_length() - 1
  return whole * length + min(math.ceil(rest / rung) * rung, length)


# Several runs ---------------------------------------------------------------


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Combined:
  """Several runs on the same people.

  Attributes:
    parts: name -> the ledger of each run.
    ledger: the ledger of all of them.
    levels: levels whose units are assumed to be the same in all parts.
    sentences: assumptions that the statements cannot show, and caveats.
  """

  parts: Mapping[str, Ledger]
  ledger: Ledger
  levels: tuple[str, ...]
  sentences: tuple[str, ...]

  def guarantee(
      self, level: str, *, delta: float, group: int = 1
  ) -> report.Guarantee:
    """Compute the guarantee of all parts together at a shared level.

    Raises:
      UnsoundPlanError: no guarantee is proved for the level.
      PlanError: a value is out of range, or the level is not shared.
    """
    if level not in self.levels:
      raise PlanError(
          f"level '{level}' is not known to have the same units in all runs"
          f" ({', '.join(self.levels)} are): name it in same_levels (in a"
          " command --same_level)"
      )
    found = self.ledger.guarantee(level, delta=delta, group=group).of_run(
        seeded=report.SEEDED in self.sentences
    )
    sentences = dict.fromkeys((*self.sentences, *found.assumptions))
    return dataclasses.replace(found, assumptions=tuple(sentences))


def compose(
    statements: Mapping[str, Any], *, same_levels: Sequence[str] = ()
) -> Combined:
  """Join the ledgers of several runs.

  Args:
    statements: name -> a privacy statement, or the result of `Ledger.as_dict`.
    same_levels: levels whose units are the same although the trees differ; by
      default all levels of trees that are equal.

  Returns:
    The joint ledger and its assumptions, `Combined`.

  Raises:
    PlanError: an input is not a ledger, the trees differ and the equal levels
      are not named, or two runs may share their noise; one sentence.
  """
  parts = {}
  for name, data in statements.items():
    try:
      parts[name] = Ledger.from_dict(data)
      parts[name].check_steps()
    except PlanError as e:
      raise PlanError(f"{name}: {e}") from e
  seeded = [name for name, data in statements.items() if data.get("fixed_seed")]
  if len(seeded) > 1:
    raise PlanError(
        f"{' and '.join(seeded)} fix private_seed: with one seed their noise"
        " could be the same and cancel, so nothing is stated for them together;"
        " leave private_seed out for secret keys"
    )
  _check_lineages(statements)
  levels = _shared_levels(parts, same_levels)
  ledger = Ledger()
  for part in parts.values():
    ledger = ledger.joined(part)
  sentences = [
      f"{', '.join(parts)} have the same units at every level"
      f" ({', '.join(levels)}): a unit is in all of these runs or in none, and"
      " it has the same place in equal trees. There is no other release about"
      " these units. Each run has a separate secret key."
  ]
  given = {"start": report.STARTED, "backbone": report.EMBEDDED}
  for name, data in statements.items():
    for field, sentence in given.items():
      if data.get(field) is not None:
        sentences.append(f"{name}: {sentence}")
    if data.get("classes") is not None:
      sentences += [f"{name}: {sentence}" for sentence in report.ADAPTED]
  if seeded:
    sentences.insert(0, report.SEEDED)
  return Combined(
      parts=parts, ledger=ledger, levels=levels, sentences=tuple(sentences)
  )


def _check_lineages(statements: Mapping[str, Any]) -> None:
  """Reject statements of one run, and of copies of its work directory.

  These have numbers of processes in common.
  """
  known: dict[str, str] = {}
  for name, data in statements.items():
    lineage = data.get("lineage") or ()
    if not plain.is_list(lineage):
      raise _validate.refusal(f"lineage of {name}", lineage, "a list")
    for process in lineage:
      other = known.setdefault(str(process), name)
      if other != name:
        raise PlanError(
            f"{other} and {name} are of one run, or of copies of it: the steps"
            " of one run are counted once, and those of copies may share noise,"
            " which could cancel; name only the later one, and publish no"
            " other copy"
        )


def _shared_levels(
    parts: Mapping[str, Ledger], same_levels: Sequence[str]
) -> tuple[str, ...]:
  """List the levels at which all parts have the same units."""
  first, *others = parts
  order = parts[first].levels
  common = [x for x in order if all(x in p.levels for p in parts.values())]
  if not common:
    raise PlanError(
        f"no level of {first} has the same name in all of"
        f" {', '.join(others)}: account for each separately"
    )
  for level in same_levels:
    if level not in common:
      raise PlanError(
          f"same_levels=['{level}'] (in a command --same_level={level}) is not"
          f" a level of every run: name one of {', '.join(common)}"
      )
  if same_levels:
    return tuple(level for level in order if level in same_levels)
  tree = parts[first].entries[0].release.hierarchy
  for name, part in parts.items():
    if all(tree.same_tree(e.release.hierarchy) for e in part.entries):
      continue
    which = f"{first} and {name} have"
    if name == first:  # The ledger of several runs.
      which = f"the runs in {name} have"
    raise PlanError(
        f"{which} different hierarchies, so their units may"
        " differ: if they are the same, name the level,"
        f" such as same_levels=['{common[0]}'] (in a command"
        f" --same_level={common[0]})"
    )
  return tuple(common)
