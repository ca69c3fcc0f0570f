"""A run's privacy statement: everything needed to compute its epsilons again.

`run_statement` gives plain data for JSON: the ledger's entries (what was
sampled and released, how often), delta, the accountant, and for every level
what follows from them. `verify` computes all of it again from the entries and
names what differs. It shows that the numbers and sentences belong to the
entries, not that the entries are what was run: that only the run can tell.

No key and no seed is ever part of a statement; a fixed seed is only said to be
one, since it voids the guarantee for those who know it.
"""

from collections.abc import Mapping, Sequence
import dataclasses
import json
from typing import Any

from episodic_dp import _version
from episodic_dp import plan as plan_lib
from episodic_dp.accounting import checks
from episodic_dp.accounting import ledger as ledger_lib
from episodic_dp.accounting import report
from episodic_dp.accounting import statement_differences
from episodic_dp.accounting.accountants import base
from episodic_dp.accounting.accountants import registry
from episodic_dp.accounting.guarantee import AnyAccountant
from episodic_dp.errors import shown

SCHEMA = 2
SEEDED = (
    "Reproducible; no guarantee against anyone who knows the seed (the"
    " configuration fixes private_seed: leave it out for a secret key)."
)
# Said of a run that begins with weights of another network.
STARTED = (
    "The run begins with given weights, which are taken for public: they were"
    " not made from the private data, or what they cost is added (episodic-dp"
    " account --ledger)."
)

_FIELDS = (
    "schema", "library", "delta", "neighbours", "accountant", "fixed_seed",
    "steps", "planned_steps", "lineage", "entries", "guarantees",
    "no_guarantee",
)
_OPTIONAL = ("foreign", "start")  # Only where there is any.
_REMEDY = "write the statement again with the run or with episodic-dp account"


def run_statement(
    ledger: ledger_lib.Ledger,
    *,
    delta: float,
    accountant: AnyAccountant = "pld",
    neighbours: checks.Relation = "add-or-remove",
    fixed_seed: bool = False,
    planned_steps: int | None = None,
    lineage: Sequence[str] = (),
    start: str | None = None,
) -> dict[str, Any]:
  """Write the statement of a ledger as plain data for JSON.

  Args:
    ledger: what was run.
    delta: in (0, 1).
    accountant: how steps are composed.
    neighbours: the relation.
    fixed_seed: sampling and noise follow from a seed that the configuration
      fixes; every level's caveat says so.
    planned_steps: the steps of the whole run, where the ledger may hold fewer.
    lineage: a random number for each process that took steps, in order.
    start: digest of the weights that the run begins with, where these are no
      random ones ("" where it is not known); every level's caveat says so.

  Returns:
    `guarantees`, level -> `Guarantee.as_dict()`, and `no_guarantee`, level ->
    the reason, cover the levels of the first entry's hierarchy; the other
    fields are what they were computed from.

  Raises:
    PlanError: a value is out of range, or the ledger is empty.
  """
  chosen = registry.get(accountant)
  if not ledger.levels:
    raise plan_lib.PlanError("the ledger has no steps: add some first")
  checks.check(max(ledger.steps, 1), delta, None)
  found, refused = {}, {}
  for level in ledger.levels:
    if any(level not in e.release.levels for e in ledger.entries):
      refused[level] = f"'{level}' is not a level of every entry's hierarchy"
      continue
    try:
      guarantee = ledger.guarantee(
          level, delta=delta, accountant=chosen, neighbours=neighbours
      )
    except plan_lib.UnsoundPlanError as e:
      refused[level] = str(e)
      continue
    if fixed_seed:
      guarantee = seeded(guarantee)
    if start is not None:
      guarantee = started(guarantee)
    found[level] = guarantee.as_dict()
  return {
      "schema": SCHEMA,
      "library": f"episodic_dp {_version.__version__}",
      "delta": float(delta),
      "neighbours": neighbours,
      "accountant": {"name": chosen.name, "options": chosen.options()},
      "fixed_seed": fixed_seed,
      "steps": ledger.steps,
      "planned_steps": planned_steps,
      "lineage": list(lineage),
      **({} if start is None else {"start": start}),
      **ledger.as_dict(),
      "guarantees": found,
      "no_guarantee": refused,
  }


def seeded(guarantee: report.Guarantee) -> report.Guarantee:
  """Mark the guarantee of a run whose seed is fixed: it says so first."""
  return dataclasses.replace(
      guarantee,
      caveat=f"{SEEDED} {guarantee.caveat}".strip(),
      assumptions=(SEEDED, *guarantee.assumptions),
  )


def started(guarantee: report.Guarantee) -> report.Guarantee:
  """Mark the guarantee of a run that begins with given weights."""
  return dataclasses.replace(
      guarantee,
      caveat=f"{guarantee.caveat} {STARTED}".strip(),
      assumptions=(*guarantee.assumptions, STARTED),
  )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Verification:
  """A statement beside what its entries give.

  Attributes:
    stated: the statement.
    recomputed: the same fields, computed from its entries.
    differences: what does not agree, what is false first; empty for a statement
      that holds.
  """

  stated: Mapping[str, Any]
  recomputed: Mapping[str, Any]
  differences: tuple[statement_differences.Difference, ...]

  def rows(self) -> list[tuple[str, str, str, str]]:
    """Per level: level, stated epsilon, recomputed epsilon, verdict."""
    result = []
    fresh, stated = (s["guarantees"] for s in (self.recomputed, self.stated))
    for level in {**fresh, **stated}:
      where = ("guarantees", level)
      own = [d for d in self.differences if d.where[:2] == where]
      verdict = "holds"
      if own:
        verdict = "FALSE" if any(d.false for d in own) else "differs"
      result.append((
          shown(level).strip("'"),
          _epsilon_text(self.stated, level),
          _epsilon_text(self.recomputed, level),
          verdict,
      ))
    return result


def _epsilon_text(data: Mapping[str, Any], level: str) -> str:
  entry = data["guarantees"].get(level)
  value = entry.get("epsilon") if isinstance(entry, Mapping) else None
  return "-" if value is None else shown(value).strip("'")


def verify(data: Any) -> Verification:
  """Compute a statement again from its entries.

  Args:
    data: what `run_statement` gave, perhaps through JSON (`loads`).

  Raises:
    PlanError: the statement is not one, is of another schema, or is damaged:
      nothing can be computed from it; one sentence.
  """
  _check_fields(data)
  ledger = ledger_lib.Ledger.from_dict(data)
  fresh = run_statement(
      ledger,
      delta=data["delta"],
      accountant=_accountant(data["accountant"]),
      neighbours=data["neighbours"],
      fixed_seed=data["fixed_seed"],
      planned_steps=data["planned_steps"],
      lineage=data["lineage"],
      start=data.get("start"),
  )
  fresh = loads(json.dumps(fresh, allow_nan=False))
  found = [
      difference
      for name in ("steps", "guarantees", "no_guarantee")
      for difference in statement_differences.between(
          data[name], fresh[name], (name,)
      )
  ]
  found.sort(key=lambda d: not d.false)
  return Verification(
      stated=data, recomputed=fresh, differences=tuple(found)
  )


def loads(text: str) -> Any:
  """Parse strict JSON: no NaN, no Infinity, and no field twice.

  A reader that takes the first of two equal fields would see another statement
  than one that takes the last.

  Raises:
    PlanError: one sentence.
  """
  try:
    return json.loads(
        text, parse_constant=_no_constant, object_pairs_hook=_once
    )
  except (ValueError, RecursionError) as e:
    if isinstance(e, plan_lib.PlanError):
      raise
    raise plan_lib.PlanError(
        f"the statement is not JSON ({str(e)[:100]}), perhaps cut short:"
        f" {_REMEDY}"
    ) from e


def _no_constant(name: str) -> None:
  raise plan_lib.PlanError(
      f"the statement holds the number {name}, which is not JSON: {_REMEDY}"
  )


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
  result = dict(pairs)
  if len(result) < len(pairs):
    names = [name for name, _ in pairs]
    twice = next(name for name in names if names.count(name) > 1)
    raise plan_lib.PlanError(
        f"the statement has the field {shown(twice)} twice in one object:"
        f" {_REMEDY}"
    )
  return result


def _check_fields(data: Any) -> None:
  """PlanError unless the data has the form of a statement."""
  if not isinstance(data, Mapping) or "schema" not in data:
    raise plan_lib.PlanError(
        f"{shown(data)} is not a privacy statement: give a guarantee.json, a"
        " file in guarantees/ of a run of episodic-dp pvi, or what episodic-dp"
        " account writes"
    )
  if not _is_whole(data["schema"]) or data["schema"] != SCHEMA:
    raise plan_lib.PlanError(
        f"the statement has schema {shown(data['schema'])} and this version"
        f" reads {SCHEMA}: verify it with the version that wrote it"
        f" ({shown(data.get('library'))})"
    )
  for name in _FIELDS:
    if name not in data:
      raise plan_lib.PlanError(
          f"the statement has no field '{name}': {_REMEDY}"
      )
  for name in data:
    if name not in (*_FIELDS, *_OPTIONAL):
      raise plan_lib.PlanError(
          f"the statement has a field {shown(name)} that nothing reads:"
          f" {_REMEDY}"
      )
  kinds = {
      "library": str, "delta": float, "neighbours": str, "fixed_seed": bool,
      "guarantees": Mapping, "no_guarantee": Mapping, "lineage": list,
  }
  if "start" in data:
    kinds["start"] = str
  for name, kind in kinds.items():
    if not isinstance(data[name], kind):
      raise plan_lib.PlanError(
          f"the statement's {name} is {shown(data[name])}, which it cannot be:"
          f" {_REMEDY}"
      )
  planned, steps = data["planned_steps"], data["steps"]
  if not _is_whole(steps) or not (
      planned is None or _is_whole(planned) and planned >= steps
  ):
    raise plan_lib.PlanError(
        f"the statement has {shown(steps)} steps of {shown(planned)} planned"
        f" ones: {_REMEDY}"
    )


def _accountant(data: Any) -> base.Accountant:
  """The accountant with the stated options."""
  if not isinstance(data, Mapping) or set(data) != {"name", "options"}:
    raise plan_lib.PlanError(
        f"the statement's accountant is {shown(data)}: it must be an object"
        " with name and options"
    )
  chosen = registry.get(data["name"])
  options = data["options"]
  if options == chosen.options():
    return chosen
  if not isinstance(options, Mapping) or set(options) != set(chosen.options()):
    raise plan_lib.PlanError(
        f"the statement's accountant has the options {shown(options)}, and"
        f" '{chosen.name}' has {shown(chosen.options())}"
    )
  return dataclasses.replace(chosen, **options)  # type: ignore[type-var]


def _is_whole(value: Any) -> bool:
  return isinstance(value, int) and not isinstance(value, bool)
