"""What every client has spent, and whether its next visit is within budget."""

from collections.abc import Sequence
import dataclasses
import functools
import math
from typing import Any

from episodic_dp import accounting
from episodic_dp import plan as plan_lib
from episodic_dp.accounting import report


@dataclasses.dataclass(frozen=True, kw_only=True)
class Budgets:
  """What clients may spend.

  Attributes:
    releases: what a local step of each client samples and releases.
    deltas: of each client's guarantee.
    local_steps: of a visit.
    target_epsilon: the most that a client may come to; None for no limit.
    level: the unit that is protected.
  """

  releases: tuple[plan_lib.Release, ...]
  deltas: tuple[float, ...]
  local_steps: int
  target_epsilon: float | None = None
  level: str = "example"

  @functools.cached_property
  def most_visits(self) -> tuple[int | None, ...]:
    """How often each client may be visited; None for no limit."""
    if self.target_epsilon is None:
      return (None,) * len(self.releases)
    found: dict[tuple[int, float], int] = {}
    result = []
    for release, delta in zip(self.releases, self.deltas):
      if (id(release), delta) not in found:
        most = accounting.max_steps(
            release,
            target_epsilon=self.target_epsilon,
            delta=delta,
            level=self.level,
        )
        found[id(release), delta] = most // self.local_steps
      result.append(found[id(release), delta])
    return tuple(result)

  def check(self) -> None:
    """PlanError where no client may be visited even once."""
    if not any(most is None or most for most in self.most_visits):
      z = self.releases[0].mechanism.noise_multiplier
      one_visit = max(
          _epsilon(release, self.local_steps, self.level, delta)
          for release, delta in zip(self.releases, self.deltas)
      )
      raise plan_lib.PlanError(
          f"target_epsilon {self.target_epsilon:g} is passed in the first visit"
          f" of {self.local_steps} steps of every client: raise"
          f" visit.noise_multiplier (now {z}), take fewer visit.local_steps, or"
          " raise target_epsilon, such as"
          f" --config.target_epsilon={report.rounded_up(one_visit)}"
      )

  def may_visit(self, client: int, visits: int) -> bool:
    """Whether a client that was visited so often may be visited once more."""
    most = self.most_visits[client]
    return most is None or visits < most


@dataclasses.dataclass(frozen=True)
class Ledgers:
  """One ledger a client; `add` gives new ones, none is ever changed.

  Formal guarantees: clients hold disjoint examples, so an example's guarantee
  is that of its own client's ledger, and that of all examples together the
  largest of them (`worst`): parallel composition, adaptive as it is
  (docs/pvi.md). It is for one example added to, or removed from, its client.

  Attributes:
    budgets: what is added by a visit.
    ledgers: of each client.
  """

  budgets: Budgets
  ledgers: tuple[accounting.Ledger, ...]

  @classmethod
  def empty(cls, budgets: Budgets) -> "Ledgers":
    """Before the first visit."""
    return cls(budgets, (accounting.Ledger(),) * len(budgets.releases))

  def visits(self, client: int) -> int:
    """How often a client was visited."""
    return self.ledgers[client].steps // self.budgets.local_steps

  def may_visit(self, client: int) -> bool:
    """Whether one visit more is within the client's budget."""
    return self.budgets.may_visit(client, self.visits(client))

  def add(self, visited: Sequence[int]) -> "Ledgers":
    """After one visit more of each of these clients."""
    ledgers = list(self.ledgers)
    for client in visited:
      ledgers[client] = ledgers[client].add(
          self.budgets.releases[client], self.budgets.local_steps
      )
    return dataclasses.replace(self, ledgers=tuple(ledgers))

  def epsilon(self, client: int) -> float:
    """Of what a client has released so far."""
    ledger = self.ledgers[client]
    if not ledger.steps:
      return 0.0
    return _epsilon(
        self.budgets.releases[client], ledger.steps,
        self.budgets.level, self.budgets.deltas[client],
    )  # fmt: skip

  def worst(self) -> tuple[float, float]:
    """(epsilon, delta) of every example, whichever client holds it."""
    return (
        max(self.epsilon(m) for m in range(len(self.ledgers))),
        max(self.budgets.deltas),
    )

  def statement(self, client: int, **said: Any) -> dict[str, Any] | None:
    """A client's privacy statement; None where it has released nothing.

    Args:
      client: its number.
      **said: as `accounting.run_statement` has them.
    """
    ledger = self.ledgers[client]
    if not ledger.steps:
      return None
    return accounting.run_statement(
        ledger, delta=self.budgets.deltas[client], **said
    )

  def guarantees(
      self, *, seeded: bool = False
  ) -> tuple[accounting.Guarantee | None, ...]:
    """Of each client; None where it has released nothing.

    Args:
      seeded: whether samples and noise follow from a fixed seed.
    """
    found: list[accounting.Guarantee | None] = []
    for client, ledger in enumerate(self.ledgers):
      if not ledger.steps:
        found.append(None)
        continue
      guarantee = _guarantee(
          self.budgets.releases[client], ledger.steps,
          self.budgets.level, self.budgets.deltas[client],
      )  # fmt: skip
      found.append(
          guarantee.with_caveat(report.SEEDED) if seeded else guarantee
      )
    return tuple(found)

  def as_dict(self) -> dict[str, Any]:
    """Plain data for JSON: the ledger of each client."""
    return {"clients": [ledger.as_dict() for ledger in self.ledgers]}


def _epsilon(
    release: plan_lib.Release, steps: int, level: str, delta: float
) -> float:
  if not release.mechanism.noise_multiplier:
    return math.inf
  return _guarantee(release, steps, level, delta).epsilon


@functools.lru_cache(maxsize=256)  # Clients of one size cost the same.
def _guarantee(
    release: plan_lib.Release, steps: int, level: str, delta: float
) -> accounting.Guarantee:
  return accounting.guarantee(
      release, steps=steps, delta=delta, level=level
  )
