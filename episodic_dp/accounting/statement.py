"""Privacy statements: everything needed to compute a run's epsilons again.

`run_statement` returns plain data for JSON: the ledger's entries (the releases
and their steps), delta, the accountant, and the results for every level.
`verify` computes all results again from the entries and names the differences.
It shows that the numbers and sentences belong to the entries, not that the
entries describe the run.

No key and no seed is ever part of a statement. A fixed seed is only mentioned,
since it voids the guarantee for those who know it.
"""

from collections.abc import Iterator, Mapping
import dataclasses
import json
import math
import os
from typing import Any

from episodic_dp import _validate
from episodic_dp import _version
from episodic_dp import plain
from episodic_dp.accounting import ledger as ledger_lib
from episodic_dp.accounting import report
from episodic_dp.accounting.guarantee import ACCOUNTANTS
from episodic_dp.accounting.guarantee import by_level
from episodic_dp.errors import PlanError
from episodic_dp.errors import shown
from episodic_dp.errors import UnsoundPlanError
from episodic_dp.output import files
from episodic_dp.output import quoting

SCHEMA = 3
FILE = "guarantee.json"  # In a work directory.
EXPORTED = "privacy_statement.json"  # In the folder of an exported model.
ADAPTED = "adaptation_statement.json"  # Beside it, if `adapt` gave another.

# A stated epsilon that is below the recomputed one by more than the first is
# false; one that is above it by more than the second has another origin.
_BELOW, _ROUNDING = 1e-9, 1e-6
# Far above a run of a million people; each entry takes up to a second.
_MOST_BYTES, _MOST_ENTRIES = 2**24, 1000
# Values and brackets of its guarantees, beyond any statement.
_MOST_LEAVES, _DEEPEST = 20_000, 8
_LONGEST = 1000  # Characters of a message about another's file.
_DIRECTIONS = ("remove", "add", "both")
# Fields of a level that are upper bounds.
_BOUNDS = (
    ("epsilon",), ("epsilons",), ("true_positive_rate",), ("gaussian_mu",)
)
# Fields that a statement leaves out if they are None.
_OPTIONAL = ("backbone", "classes", "attacks")
_REMEDY = "write the statement again with the run or with episodic-dp account"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Statement:
  """The privacy statement of a run: the terms, the run and its guarantees.

  Attributes:
    schema: version of the format.
    library: version that computed the guarantees.
    delta: in (0, 1).
    neighbours: the relation.
    accountant: composes the steps.
    fixed_seed: whether the configuration fixes the seed of sampling and noise;
      every level's caveat says so.
    steps: number of steps of all entries.
    planned_steps: the steps of the whole run, if the ledger may hold fewer.
    lineage: a random number for each process that took steps, in order.
    start: digest of the initial weights if they are not random ("" if it is
      unknown); every level's caveat says so.
    classes: the public names of the classes that a model was adapted to, whose
      assumptions every level then has; None for a training.
    backbone: digest of the network that made its features, None without any;
      every level's caveat says so.
    entries: those of `Ledger.as_dict`.
    guarantees: level -> `Guarantee.as_dict()`.
    no_guarantee: level -> the reason.
    attacks: level -> `Guarantee.attack().as_dict()`; None without.
  """

  schema: int = SCHEMA
  library: str = ""
  delta: plain.Fraction
  neighbours: report.Relation = "add-or-remove"
  accountant: str = "pld"
  fixed_seed: bool = False
  steps: plain.Count = 1
  planned_steps: plain.Count | None = None
  lineage: tuple[str, ...] = ()
  start: str | None = None
  classes: Any = None
  backbone: str | None = None
  entries: Any = ()
  guarantees: Mapping[str, Mapping[str, Any]] = dataclasses.field(
      default_factory=dict
  )
  no_guarantee: Mapping[str, str] = dataclasses.field(default_factory=dict)
  attacks: Mapping[str, Any] | None = None

  @classmethod
  def from_dict(cls, data: Mapping[str, Any]) -> "Statement":
    """Read plain data strictly; PlanError names the wrong field."""
    absent = {name: None for name in _OPTIONAL}
    return plain.from_plain(cls, absent | {**data}, name="statement")

  def as_dict(self) -> dict[str, Any]:
    """Return plain data for JSON, without `_OPTIONAL` fields that are None."""
    found: dict[str, Any] = plain.to_plain(self)
    for name in _OPTIONAL:
      if found[name] is None:
        del found[name]
    return found

  def guarantee(
      self, ledger: ledger_lib.Ledger, level: str
  ) -> report.Guarantee:
    """Compute the guarantee of a level of a ledger under these terms.

    Raises:
      UnsoundPlanError: no guarantee is proved for the level.
      PlanError: a term is out of range, or the ledger is empty.
    """
    return ledger.guarantee(
        level, delta=self.delta, accountant=self.accountant,
        neighbours=self.neighbours,
    ).of_run(
        seeded=self.fixed_seed,
        started=self.start is not None,
        embedded=self.backbone is not None,
        adapted=self.classes is not None,
    )

  def computed(
      self, ledger: ledger_lib.Ledger, *, attacks: bool
  ) -> "Statement":
    """Return the statement of a ledger under the same terms.

    Raises:
      PlanError: a term is out of range, or the ledger is empty.
    """
    _validate.one_of("accountant", self.accountant, ACCOUNTANTS)
    ledger.check_steps()

    def guarantee_of(level: str) -> report.Guarantee:
      if any(level not in e.release.levels for e in ledger.entries):
        raise UnsoundPlanError(
            f"'{level}' is not a level of every entry's hierarchy"
        )
      return self.guarantee(ledger, level)

    found, refused = by_level(guarantee_of, ledger.levels)
    attacked = None
    if attacks:
      attacked = {level: g.attack().as_dict() for level, g in found.items()}
    return dataclasses.replace(
        self,
        library=f"episodic_dp {_version.__version__}",
        steps=ledger.steps,
        entries=ledger.as_dict()["entries"],
        guarantees={level: g.as_dict() for level, g in found.items()},
        no_guarantee={level: str(e) for level, e in refused.items()},
        attacks=attacked,
    )


def run_statement(
    ledger: ledger_lib.Ledger, *, attacks: bool = False, **terms: Any
) -> dict[str, Any]:
  """Return the statement of a ledger as plain data for JSON.

  Args:
    ledger: the steps of the run.
    attacks: whether to add `attacks`.
    **terms: `delta`, and perhaps `accountant`, `neighbours`, `fixed_seed`,
      `planned_steps`, `lineage`, `start`, `backbone` and `classes`: fields of
      `Statement`.

  Returns:
    The fields of `Statement`, with guarantees for the levels of the first
    entry's hierarchy.

  Raises:
    PlanError: a value is out of range, or the ledger is empty.
  """
  return Statement(**terms).computed(ledger, attacks=attacks).as_dict()


def guarantee_of(data: Mapping[str, Any], level: str) -> report.Guarantee:
  """Compute the guarantee of a level of a statement again."""
  ledger = ledger_lib.Ledger.from_dict(data)
  return Statement.from_dict(data).guarantee(ledger, level)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Difference:
  """A field on which a statement and its entries disagree.

  Attributes:
    where: the path to the field, such as ("guarantees", "class", "epsilon").
    stated: its value in the statement; None if it is missing.
    recomputed: its value computed again; None if there is none.
    false: whether the statement promises more than its entries give.
  """

  where: tuple[str, ...]
  stated: Any
  recomputed: Any
  false: bool = False

  def __str__(self) -> str:
    text = (
        f"{shown('.'.join(self.where))[1:-1]} is stated as"
        f" {shown(self.stated)} and recomputed as {shown(self.recomputed)}"
    )
    if self.false:
      text += ", so the statement promises more than its entries give"
    return text


@dataclasses.dataclass(frozen=True, kw_only=True)
class Verification:
  """A statement and its recomputation.

  Attributes:
    stated: the statement.
    recomputed: the same fields, computed from its entries.
    differences: the disagreements, false promises first; empty for a statement
      that holds.
  """

  stated: Mapping[str, Any]
  recomputed: Mapping[str, Any]
  differences: tuple[Difference, ...]

  def rows(self) -> list[tuple[str, str, str, str]]:
    """List level, stated epsilon, recomputed epsilon and verdict."""
    result = []
    fresh, stated = (s["guarantees"] for s in (self.recomputed, self.stated))
    for level in {**fresh, **stated}:
      own = [
          d.false
          for d in self.differences
          if d.where[0] in ("guarantees", "attacks")
          and d.where[1:2] == (level,)
      ]
      verdict = "FALSE" if any(own) else "differs" if own else "holds"
      result.append((
          shown(level).strip("'"),
          _epsilon_text(stated.get(level, {})),
          _epsilon_text(fresh.get(level, {})),
          verdict,
      ))
    return result

  def check(self, path: str | os.PathLike[str]) -> None:
    """Raise PlanError, naming the file, unless the statement holds."""
    if not self.differences:
      return
    raise PlanError(
        f"{path} does not hold: {self.differences[0]} (differences:"
        f" {len(self.differences)}); it was written by"
        f" {shown(self.stated['library'])} and computed again by"
        f" {self.recomputed['library']}"
    )


def _epsilon_text(data: Mapping[str, Any]) -> str:
  return shown(data["epsilon"]).strip("'") if "epsilon" in data else "-"


def verify_file(
    path: str | os.PathLike[str], content: bytes | None = None
) -> Verification:
  """Compute the statement of a file again; `content` is the file's, if read.

  Raises:
    PlanError: the file cannot be read or is not a statement; one sentence.
  """
  try:
    return verify(read(path) if content is None else loads(content))
  except OSError as e:
    raise PlanError(
        f"{e.filename or path}: it cannot be read ({e.strerror}): give a work"
        f" directory with a {FILE}, the folder of an exported model, or the"
        " JSON file of a privacy statement"
    ) from e
  except (PlanError, UnsoundPlanError) as e:
    text = quoting.printable(str(e))[:_LONGEST]
    raise PlanError(f"{path}: {text}") from e


def verify(data: Any) -> Verification:
  """Compute a statement again from its entries.

  Args:
    data: the result of `run_statement`, perhaps through JSON (`loads`).

  Returns:
    The statement, its recomputation and their differences, `Verification`.

  Raises:
    PlanError: the data are not a statement, have another schema, or are
      damaged, so that nothing can be computed; one sentence.
  """
  if not isinstance(data, Mapping) or "schema" not in data:
    raise PlanError(
        f"{shown(data)} is not a privacy statement: give a guarantee.json, a"
        " file in guarantees/ of a run of episodic-dp pvi, or the output of"
        " episodic-dp account"
    )
  if data["schema"] != SCHEMA:
    raise PlanError(
        f"the statement has schema {shown(data['schema'])}, but this version"
        f" reads {SCHEMA}: verify it with the version that wrote it"
        f" ({shown(data.get('library'))})"
    )
  said = Statement.from_dict(data)
  if plain.is_list(said.entries) and len(said.entries) > _MOST_ENTRIES:
    raise PlanError(
        f"the statement has {len(said.entries)} entries, more than the"
        f" {_MOST_ENTRIES} that are verified: {_REMEDY}"
    )
  fresh = said.computed(
      ledger_lib.Ledger.from_dict(data), attacks=said.attacks is not None
  ).as_dict()
  return Verification(
      stated=data, recomputed=fresh,
      differences=tuple(
          sorted(_differences(data, fresh), key=lambda d: not d.false)
      ),
  )


def read(path: str | os.PathLike[str]) -> Any:
  """Parse the strict JSON of a file, a run or a model; see `loads`.

  Raises:
    OSError: the file cannot be read.
    PlanError: one sentence.
  """
  if "://" in os.fspath(path):
    raise PlanError(
        "statements are read from this machine: download it, and give the path"
        " of the file"
    )
  place = files.path_of(path)
  if place.is_dir():
    names = (FILE, EXPORTED, ADAPTED)
    held = [name for name in names if (place / name).exists()] or [FILE]
    if len(held) > 1:
      raise PlanError(f"it holds {' and '.join(held)}: give one of these files")
    place = place / held[0]
  with place.open("rb") as file:
    return loads(file.read(_MOST_BYTES + 1))


def loads(content: bytes | str) -> Any:
  """Parse strict JSON: no NaN, no Infinity, and no field twice.

  With a field twice, a reader that takes the first and one that takes the last
  would see different statements.

  Raises:
    PlanError: one sentence.
  """
  if len(content) > _MOST_BYTES:
    raise PlanError(
        f"the statement has more than {_MOST_BYTES} bytes: {_REMEDY}"
    )
  try:
    return json.loads(
        content, parse_constant=_no_constant, object_pairs_hook=_once
    )
  except PlanError:
    raise
  except (ValueError, RecursionError) as e:
    raise PlanError(
        f"the statement is not JSON ({str(e)[:100]}), perhaps cut short:"
        f" {_REMEDY}"
    ) from e


def _no_constant(name: str) -> None:
  raise PlanError(
      f"the statement holds the number {name}, which is not JSON: {_REMEDY}"
  )


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
  result = dict(pairs)
  if len(result) < len(pairs):
    raise PlanError(
        f"the statement has a field twice in one object, among"
        f" {shown(list(result))}: {_REMEDY}"
    )
  return result


# Differences ----------------------------------------------------------------


def _leaves(value: Mapping[str, Any]) -> dict[tuple[str, ...], Any]:
  """List the single values of plain data by their paths.

  Raises:
    PlanError: they are more, or deeper, than those of any statement.
  """
  found: dict[tuple[str, ...], Any] = {}
  left: list[tuple[tuple[str, ...], Any]] = [((), value)]
  while left:
    where, part = left.pop()
    inner: list[tuple[str, Any]] = []
    holds = isinstance(part, (Mapping, list)) and len(part)
    if len(where) > _DEEPEST or len(found) + len(left) + holds > _MOST_LEAVES:
      raise PlanError(
          f"the statement's guarantees have more than {_MOST_LEAVES} values, or"
          f" more than {_DEEPEST} levels of brackets: {_REMEDY}"
      )
    if isinstance(part, Mapping):
      inner = list(part.items())
    elif isinstance(part, list):
      inner = [(str(i), own) for i, own in enumerate(part)]
    if not inner:
      found[where] = part
    left += [((*where, name), own) for name, own in reversed(inner)]
  return found


def _differences(
    stated: Mapping[str, Any], fresh: Mapping[str, Any]
) -> Iterator[Difference]:
  """Yield the single values on which two statements differ."""
  parts = ("steps", "guarantees", "no_guarantee", "attacks")
  first, second = (
      _leaves({name: data[name] for name in parts if name in data})
      for data in (stated, fresh)
  )
  for where in {**second, **first}:
    a, b = first.get(where), second.get(where)
    is_bound = where[2:3] in _BOUNDS
    x, y = _number(a), _number(b)
    # No finite epsilon is proved where there is none.
    least = math.inf if y is None else y
    false = is_bound and x is not None and x < least * (1 - _BELOW)
    same = type(a) is type(b) and a == b
    if x is not None and y is not None:
      allowed = _ROUNDING if is_bound else _BELOW
      same = math.isclose(x, y, rel_tol=allowed)
    # Rounding may change which of two directions is the larger.
    if where[2:] == ("direction",):
      same = a in _DIRECTIONS and b in _DIRECTIONS
    if false or not same or (where in first) != (where in second):
      yield Difference(where=where, stated=a, recomputed=b, false=false)


def _number(value: Any) -> float | None:
  """Return a number or "inf" as a float, and None for other values."""
  try:
    return plain.read(float, value, name="number")
  except PlanError:
    return None
