"""What a fault came to, and the list of all faults."""

from collections.abc import Callable
import dataclasses
from typing import TypeAlias

from tests.faults import bench


class CannotTryError(Exception):
  """A fault that cannot be set up here; the text says why."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Outcome:
  """One row of the table.

  Attributes:
    tried: how many times, with what differs between them.
    ended: with which status, and within how long where that matters.
    says: what its user reads; "" where nothing has to be said.
    after: what the same command came to afterwards.
    problems: what was not safe or not clear; none in the end.
  """

  tried: str
  ended: str
  says: str
  after: str
  problems: tuple[str, ...] = ()

  @property
  def verdict(self) -> str:
    """Whether it was safe and clear."""
    if not self.tried:
      return "not tried"
    return "**no**" if self.problems else "yes"

  def cells(self) -> list[str]:
    """Of its row, but for the name."""
    return [
        self.tried or "-",
        self.ended,
        self.verdict,
        self.says.replace("|", "\\|"),
        self.after,
    ]


Make: TypeAlias = Callable[[bench.Bench], Outcome]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fault:
  """A fault by its name.

  Attributes:
    family: the file that it stands in.
    name: for the table.
    seconds: that it takes, about.
    make: sets it up, and says what it came to.
  """

  family: str
  name: str
  seconds: int
  make: Make

  def outcome(self, bench: bench.Bench) -> Outcome:
    """What it comes to; of one that cannot be set up here, why."""
    try:
      return self.make(bench)
    except CannotTryError as e:
      return Outcome(tried="", ended="-", says=str(e), after="-")


FAULTS: list[Fault] = []


def fault(name: str, *, seconds: int) -> Callable[[Make], Make]:
  """Decorates a function: it is a row of the table.

  Args:
    name: of the fault.
    seconds: that it takes, about.
  """

  def register(make: Make) -> Make:
    family = make.__module__.rpartition(".")[2]
    FAULTS.append(
        Fault(family=family, name=name, seconds=seconds, make=make)
    )
    return make

  return register


class Judge:
  """Collects what is wrong with a fault's ends."""

  def __init__(self) -> None:
    self.problems: list[str] = []

  def expect(self, right: object, problem: str) -> None:
    """Notes the problem, unless it is right."""
    if not right:
      self.problems.append(problem)

  def end(self, ended: bench.Ended, status: int, told: str) -> None:
    """A command that is to end so, with that in its one sentence."""
    self.expect(not ended.hung, "it hung")
    self.expect(
        ended.status == status,
        f"status {ended.status}, not {status}: {ended.error[-300:]}",
    )
    self.expect(ended.clean, f"a trace: {ended.error[-600:]}")
    self.expect(
        told in ended.sentence, f"it said '{ended.sentence}', not '{told}'"
    )

  def same(self, found: bench.Contents, expected: bench.Contents) -> str:
    """Notes what differs; how to say it in the table."""
    different = found.differences(expected)
    self.expect(not different, f"differs: {', '.join(different)}")
    return "the same bits" if not different else "OTHER BITS"
