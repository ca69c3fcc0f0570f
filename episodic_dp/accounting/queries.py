"""What else was asked of the same people, to be composed with the runs.

A study is more than one training run: a count was published, a mean was looked
at, and the run that was kept is the best of several. Each is a mechanism of its
own in a ledger (`Ledger.add`):

  GaussianQuery   Gaussian noise on a sum of known l2 sensitivity;
  LaplaceQuery    Laplace noise on a sum of known l1 sensitivity;
  Selection       the best of a random number of runs, each of a candidate's
                  cost (`private_selection`).

A query is about the units of one level. For a unit inside one of these,
neighbours differ in what one such unit holds: out and in again, so that the sum
moves by at most twice the sensitivity. Nothing follows for the levels above.
"""

from collections.abc import Callable, Mapping, Sequence
import dataclasses
from typing import Any, Protocol

from episodic_dp import plan as plan_lib
from episodic_dp.accounting import run_counts
from episodic_dp.accounting import run_phases
from episodic_dp.errors import shown

# More releases than this are not told apart from a mistake.
MAX_TIMES = 10**12


class Part(Protocol):
  """What a candidate of a selection costs: a ledger."""

  @property
  def entries(self) -> tuple[run_phases.Entry, ...]:
    """The steps of its runs."""

  @property
  def foreign(self) -> "tuple[Foreign, ...]":
    """What else was released."""

  def as_dict(self) -> dict[str, Any]:
    """Plain data for JSON."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Query:
  """What queries share."""

  level: str
  sensitivity: float
  noise_scale: float
  times: int = 1

  def __post_init__(self) -> None:
    if not isinstance(self.level, str) or not self.level:
      raise plan_lib.PlanError(
          f"a query's level {shown(self.level)} must be the name of a level"
      )
    for name in ("sensitivity", "noise_scale"):
      value = getattr(self, name)
      number = isinstance(value, (int, float)) and not isinstance(value, bool)
      if not number or not 1e-30 <= value <= 1e30:
        raise plan_lib.PlanError(
            f"a query's {name} {shown(value)} must be a number from 1e-30 to"
            " 1e30 such as 1.0"
        )
    _check_times(self.times)

  def distance(self, level: str, levels: Sequence[str]) -> float:
    """How far a unit of a level moves the sum, over the noise's scale.

    Raises:
      UnsoundPlanError: the query says nothing about the level.
    """
    moved = self.sensitivity / self.noise_scale
    if level == self.level:
      return moved
    order = list(levels)
    if {level, self.level} <= set(order) and (
        order.index(self.level) < order.index(level)
    ):
      return 2 * moved
    raise plan_lib.UnsoundPlanError(
        f"no guarantee for level '{level}': a query of level '{self.level}'"
        " says how far one of its own units moves it, and nothing about level"
        f" '{level}'; state its sensitivity at level '{level}'"
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class GaussianQuery(_Query):
  """A sum with Gaussian noise.

  Attributes:
    level: the level whose units the sensitivity is about.
    sensitivity: how far adding or removing one unit of the level can move the
      sum, whatever the data, in the l2 norm; above 0.
    noise_scale: standard deviation of the noise on each number; above 0.
    times: how often, with fresh noise.
  """


@dataclasses.dataclass(frozen=True, kw_only=True)
class LaplaceQuery(_Query):
  """A sum with Laplace noise.

  Attributes:
    level: the level whose units the sensitivity is about.
    sensitivity: how far adding or removing one unit of the level can move the
      sum, whatever the data, in the l1 norm; above 0.
    noise_scale: scale of the noise on each number; above 0.
    times: how often, with fresh noise.
  """


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Selection:
  """The best of a random number of runs, of which only it is released.

  Attributes:
    candidates: what one run can cost, a ledger each; where hyperparameters are
      drawn that change it, one for each choice.
    runs: how many are made.
    times: how often such a selection was made, with fresh randomness.
  """

  candidates: tuple[Part, ...]
  runs: run_counts.RunCount
  times: int = 1

  def __post_init__(self) -> None:
    object.__setattr__(self, "candidates", tuple(self.candidates))
    _check_times(self.times)
    if not self.candidates or not all(
        part.entries or part.foreign for part in self.candidates
    ):
      raise plan_lib.PlanError(
          "a selection needs the ledger of at least one candidate, and none of"
          " them empty"
      )
    if any(
        isinstance(mechanism, Selection)
        for part in self.candidates
        for mechanism in part.foreign
    ):
      raise plan_lib.PlanError(
          "a selection among selections is not accounted: give every candidate"
          " the ledger of one run"
      )


Foreign = GaussianQuery | LaplaceQuery | Selection
KINDS: dict[str, type[Foreign]] = {
    "gaussian_query": GaussianQuery,
    "laplace_query": LaplaceQuery,
    "selection": Selection,
}


def to_dict(mechanism: Foreign) -> dict[str, Any]:
  """Plain data for JSON; `from_dict` reads it."""
  (kind,) = (k for k, v in KINDS.items() if isinstance(mechanism, v))
  if isinstance(mechanism, Selection):
    return {
        "kind": kind,
        "candidates": [part.as_dict() for part in mechanism.candidates],
        "runs": run_counts.to_dict(mechanism.runs),
        "times": mechanism.times,
    }
  return {"kind": kind, **dataclasses.asdict(mechanism)}


def from_dict(data: Any, read_part: Callable[[Any], Part]) -> Foreign:
  """What `to_dict` wrote.

  Args:
    data: perhaps through JSON.
    read_part: reads the ledger of a candidate.

  Raises:
    PlanError: a field is missing, unknown or wrong; one sentence.
  """
  if not isinstance(data, Mapping) or data.get("kind") not in KINDS:
    raise plan_lib.PlanError(
        f"the ledger holds {shown(data)}: a mechanism beside the runs must be"
        f" an object whose kind is one of {', '.join(KINDS)}"
    )
  kind = KINDS[data["kind"]]
  names = {field.name for field in dataclasses.fields(kind)}
  if set(data) != {"kind", *names}:
    raise plan_lib.PlanError(
        f"a mechanism of kind {data['kind']} has the fields {sorted(names)},"
        f" not {sorted(set(data) - {'kind'})}"
    )
  values = {name: data[name] for name in names}
  if kind is Selection:
    if not isinstance(values["candidates"], list):
      raise plan_lib.PlanError(
          f"a selection's candidates are {shown(values['candidates'])}: they"
          " must be a list of ledgers"
      )
    values["candidates"] = tuple(map(read_part, values["candidates"]))
    values["runs"] = run_counts.from_dict(values["runs"])
  return kind(**values)


def _check_times(times: Any) -> None:
  whole = isinstance(times, int) and not isinstance(times, bool)
  if not whole or not 1 <= times <= MAX_TIMES:
    raise plan_lib.PlanError(
        f"times {shown(times)} must be a whole number from 1 to {MAX_TIMES}"
    )
