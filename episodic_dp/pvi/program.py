"""Partitioned variational inference as a program of the training loop.

A round is a visit of every client, or as many visits as there are clients where
they come in a random order. Rounds go on until each client has spent its
budget, or all are done. All randomness of a visit follows from the run's secret
key, the client and the client's own step number.
"""

from collections.abc import Iterator, Mapping, Sequence
import dataclasses
import functools
import itertools
import math
import os
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from episodic_dp import _validate
from episodic_dp import accounting
from episodic_dp import errors
from episodic_dp import plan as plan_lib
from episodic_dp import private
from episodic_dp.accounting import report
from episodic_dp.output import files
from episodic_dp.pvi import factors
from episodic_dp.pvi import federation as federation_lib
from episodic_dp.pvi import likelihoods
from episodic_dp.pvi import servers
from episodic_dp.training import loop
from episodic_dp.training import resume

Server = Literal["synchronous", "sequential", "asynchronous"]
SERVERS: tuple[Server, ...] = ("synchronous", "sequential", "asynchronous")
STATEMENTS = "guarantees"
SUMMARY = "guarantees.json"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Budgets:
  """Budgets of clients.

  Attributes:
    releases: what a local step of each client samples and releases.
    deltas: of each client's guarantee.
    local_steps: of a visit.
    target_epsilon: the most that a client may spend; None for no limit.
    level: the unit that is protected.
  """

  releases: tuple[plan_lib.Release, ...]
  deltas: tuple[float, ...]
  local_steps: int
  target_epsilon: float | None = None
  level: str = "example"

  @functools.cached_property
  def most_visits(self) -> tuple[float, ...]:
    """Most visits of each client; infinity for no limit."""
    if self.target_epsilon is None:
      return (math.inf,) * len(self.releases)
    return tuple(
        _most_steps(release, self.target_epsilon, self.level, delta)
        // self.local_steps
        for release, delta in zip(self.releases, self.deltas)
    )

  def check(self) -> None:
    """Raise PlanError where no client may be visited even once."""
    if any(self.most_visits):
      return
    one_visit = max(
        _guarantee(release, self.local_steps, self.level, delta).epsilon
        for release, delta in zip(self.releases, self.deltas)
    )
    raise plan_lib.PlanError(
        f"target_epsilon {self.target_epsilon:g} is passed in the first visit"
        f" of {self.local_steps} steps of every client: raise"
        " visit.noise_multiplier, take fewer visit.local_steps, or set"
        f" --config.target_epsilon={report.rounded_up(one_visit)}"
    )


@dataclasses.dataclass(frozen=True)
class Ledgers:
  """One ledger a client; `add` gives new ones, none is ever changed.

  Formal guarantees: clients hold disjoint examples, so an example's guarantee
  is that of its own client's ledger, and that of all examples together the
  largest of them (`worst`): parallel composition, adaptive as it is
  (docs/pvi.md). It is for one example added to, or removed from, its client.

  Attributes:
    budgets: what is added by a visit.
    visits: of each client.
  """

  budgets: Budgets
  visits: tuple[int, ...]

  def may_visit(self, client: int) -> bool:
    """Return whether one visit more is within the client's budget."""
    return self.visits[client] < self.budgets.most_visits[client]

  def add(self, client: int) -> "Ledgers":
    """Return the ledgers after one visit more of a client."""
    visits = list(self.visits)
    visits[client] += 1
    return dataclasses.replace(self, visits=tuple(visits))

  def ledger(self, client: int) -> accounting.Ledger:
    """Return the ledger of a client."""
    budgets, visits = self.budgets, self.visits[client]
    if not visits:
      return accounting.Ledger()
    return accounting.Ledger().add(
        budgets.releases[client], visits * budgets.local_steps
    )

  def guarantee(
      self, client: int, *, seeded: bool = False
  ) -> accounting.Guarantee | None:
    """Return the guarantee of a client; None if it has released nothing.

    Args:
      client: its number.
      seeded: whether samples and noise follow from a fixed seed.
    """
    budgets = self.budgets
    steps = self.visits[client] * budgets.local_steps
    if not steps:
      return None
    found = _guarantee(
        budgets.releases[client], steps, budgets.level, budgets.deltas[client]
    )
    return found.with_caveat(report.SEEDED) if seeded else found

  def worst(self) -> tuple[float, float]:
    """Return (epsilon, delta) of every example, whichever client holds it."""
    found = [self.guarantee(m) for m in range(len(self.visits))]
    epsilon = max((g.epsilon for g in found if g is not None), default=0.0)
    return epsilon, max(self.budgets.deltas)


@functools.lru_cache(maxsize=256)  # Clients of one size cost the same.
def _guarantee(
    release: plan_lib.Release, steps: int, level: str, delta: float
) -> accounting.Guarantee:
  return accounting.guarantee(release, steps=steps, delta=delta, level=level)


@functools.lru_cache(maxsize=256)
def _most_steps(
    release: plan_lib.Release, target: float, level: str, delta: float
) -> int:
  return accounting.max_steps(
      release, target_epsilon=target, delta=delta, level=level
  )


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Spec:
  """Everything that determines a run.

  Attributes:
    learner: likelihood and prior.
    optimizer: of a visit.
    clients: who holds which examples.
    budgets: what each samples and releases, and may spend.
    damping: of every factor's change.
    rounds: at most this many.
    server: in which order clients update.
    absences: who does not answer when; by a public rule.
    validation: public examples, to watch the run by.
    seed: public; of the order of the asynchronous server.
    private_seed: None for a secret key; an integer makes the run reproducible
      and its guarantee void for anyone who knows the number.
    evaluate_every: rounds between validations.
    checkpoint_every: rounds between checkpoints.
    config: JSON-able description, compared when the run is resumed.

  Raises:
    PlanError, RunError: on construction, a value out of range.
  """

  learner: likelihoods.VariationalLearner
  optimizer: optax.GradientTransformation
  clients: tuple[federation_lib.Client, ...]
  budgets: Budgets
  damping: float
  rounds: int
  server: Server = "synchronous"
  absences: tuple[federation_lib.Absence, ...] = ()
  validation: likelihoods.Examples
  seed: int = 0
  private_seed: int | None = None
  evaluate_every: int = 10
  checkpoint_every: int = 10
  config: Mapping[str, Any] = dataclasses.field(default_factory=dict)

  def __post_init__(self) -> None:
    for name in ("rounds", "evaluate_every", "checkpoint_every"):
      _validate.count(name, getattr(self, name), 1)
    if not 0 < self.damping <= 1:
      raise errors.RunError(
          f"damping={self.damping!r} must lie above 0 and be at most 1, such as"
          f" {1 / len(self.clients):.2g} for {len(self.clients)} clients"
      )
    _validate.one_of("server", self.server, SERVERS)
    for absence in self.absences:
      if not 0 <= absence.client < len(self.clients):
        raise errors.RunError(
            f"absent client {absence.client} does not exist: the clients are 0"
            f" to {len(self.clients) - 1}"
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Result:
  """Outcome of `run`.

  Attributes:
    posterior: the prior and the clients' factors.
    rounds: done in all, earlier processes included.
    stopped: "done", "budget" (no client may be visited again), or the name of
      a signal.
    ledgers: what each client has spent.
    seconds: wall-clock seconds of this process inside `run`.
  """

  posterior: factors.Posterior
  rounds: int
  stopped: str
  ledgers: Ledgers
  seconds: float

  @property
  def visits(self) -> tuple[int, ...]:
    """Visits of each client."""
    return self.ledgers.visits


def make_federation(spec: Spec) -> federation_lib.Federation:
  """Return the visits of a run; others of equal clients may share it."""
  return federation_lib.Federation(
      spec.learner,
      spec.optimizer,
      spec.clients,
      spec.budgets.releases,
      local_steps=spec.budgets.local_steps,
      damping=spec.damping,
  )


def run(
    spec: Spec,
    workdir: str | os.PathLike,
    *,
    federation: federation_lib.Federation | None = None,
    **options: Any,
) -> Result:
  """Run in a work directory, from its last checkpoint where it has one.

  Args:
    spec: what to run.
    workdir: takes config.json, metrics.jsonl, guarantees.json, guarantees/ (a
      privacy statement a client), checkpoints/ and private/.
    federation: of an earlier run with the same clients, releases and visits.
    **options: "resume", "key_file", "deadline" and "callbacks" of
      `training.run`.

  Raises:
    RunError: the folder cannot be used, or holds another run.
    PlanError: no client may be visited within the budget.
  """
  return loop.run(Inference(spec, federation), workdir, **options)


class Held(NamedTuple):
  """State of a run.

  Attributes:
    posterior: the server's.
    states: of the clients, by group.
    sent: what each client was last sent, along a first axis (asynchronous).
  """

  posterior: factors.Posterior
  states: tuple[private.State, ...]
  sent: Any


class Inference:
  """A `training.Program` of rounds.

  Attributes:
    ledgers: what each client has spent.
  """

  unit = "round"
  diagnostics = False

  def __init__(
      self, spec: Spec, federation: federation_lib.Federation | None = None
  ):
    spec.budgets.check()
    self._spec = spec
    self._federation = federation or make_federation(spec)
    self.steps = spec.rounds
    self.evaluate_every = spec.evaluate_every
    self.checkpoint_every = spec.checkpoint_every
    self.private_seed = spec.private_seed
    self.config = spec.config
    self.ledgers = Ledgers(spec.budgets, (0,) * len(spec.clients))
    self._done = 0
    self._score = jax.jit(
        lambda q, x, y: _score(spec.learner.likelihood.predict(q, x), y)
    )

  def init(self) -> Held:
    """See `training.Program`."""
    posterior = factors.begin(
        self._spec.learner.prior, self._federation.clients
    )
    sent = servers.everyone(posterior.natural, self._federation.clients)
    key = private.secret_key(bytes(8))  # Replaced by that of the run.
    return Held(posterior, self._federation.begin(key), sent)

  def parts(self, state: Held) -> dict[str, str]:
    """See `training.Program`."""
    spec = self._spec
    rules = [
        spec.budgets.local_steps,
        float(spec.damping),
        spec.server,
        spec.seed,
        [dataclasses.asdict(absence) for absence in spec.absences],
    ]
    described = [plan_lib.to_dict(r) for r in spec.budgets.releases]
    return {
        "release": resume.json_digest([described, rules]),
        "data": resume.json_digest(
            [resume.data_digest(client) for client in spec.clients]
        ),
        "learner": resume.json_digest(
            [spec.learner.seed, resume.shapes(spec.learner.prior)]
        ),
        "start": resume.digest(self.saved(state)),
        "program": resume.json_digest(
            self._federation.lowered(state.posterior, state.states)
        ),
    }

  def saved(self, state: Held) -> tuple[Any, Any]:
    """See `training.Program`."""
    states = [federation_lib.without_key(s) for s in state.states]
    return state.posterior, {"clients": states, "sent": state.sent}

  def restored(
      self, state: Held, params: Any, rest: Any, key: jax.Array
  ) -> Held:
    """See `training.Program`."""
    del state
    states = tuple(
        old._replace(key=new.key)
        for old, new in zip(rest["clients"], self._federation.begin(key))
    )
    return Held(params, states, rest["sent"])

  def charge(self, ranges: Sequence[range]) -> None:
    """See `training.Program`: who is visited when is public."""
    for taken in ranges:
      for number in taken:
        for _ in self._turns(number + 1):
          pass
    self._done = ranges[-1].stop
    spec, most = self._spec, self._spec.budgets.most_visits
    if spec.server != "asynchronous" and not spec.absences:
      left = max(m - v for m, v in zip(most, self.ledgers.visits))
      self.steps = int(min(spec.rounds, self._done + left))

  def compile(self, state: Held) -> None:
    """See `training.Program`: the first round compiles."""

  def affordable(self) -> bool:
    """See `training.Program`."""
    return any(map(self.ledgers.may_visit, range(len(self._spec.clients))))

  def step(self, state: Held) -> tuple[Held, dict[str, Any]]:
    """See `training.Program`; each visit is paid before it is released."""
    self._done += 1
    if self._spec.server == "synchronous":
      return self._synchronous(state), {}
    stale = self._spec.server == "asynchronous"
    for client in self._turns(self._done):
      posterior, states, sent = state
      received = posterior.natural
      if stale:
        received = jax.tree.map(lambda a, m=client: a[m], sent)
      posterior, states = self._federation.visit(
          posterior, states, client, received
      )
      if stale:
        sent = jax.tree.map(
            lambda a, new, m=client: a.at[m].set(new), sent, posterior.natural
        )
      state = Held(posterior, states, sent)
    return state, {}

  def spent(self) -> dict[str, float]:
    """See `training.Program`."""
    epsilon, delta = self.ledgers.worst()
    return {"epsilon": epsilon, "delta": delta}

  def ledger(self) -> dict[str, Any]:
    """See `training.Program`."""
    return {"visits": list(self.ledgers.visits)}

  def validate(self, state: Held) -> tuple[dict[str, Any], float, str] | None:
    """See `training.Program`."""
    examples = self._spec.validation
    if not len(examples.labels):
      return None
    accuracy, log_likelihood = map(
        float,
        self._score(state.posterior.natural, examples.inputs, examples.labels),
    )
    numbers = {
        "validation_accuracy": accuracy,
        "validation_log_likelihood": log_likelihood,
    }
    return numbers, accuracy, f"accuracy {100 * accuracy:.1f} %"

  def write(self, folder: Any, lineage: Sequence[str], *, ended: bool) -> None:
    """See `training.Program`; a statement for each client that has released."""
    if not ended:
      return
    seeded = self.private_seed is not None
    rows = []
    for m, client in enumerate(self._spec.clients):
      guarantee = self.ledgers.guarantee(m, seeded=seeded)
      row: dict[str, Any] = {
          "client": client.name,
          "examples": client.size,
          "visits": self.ledgers.visits[m],
      }
      if guarantee is not None:
        name = f"{STATEMENTS}/client_{m}.json"
        statement = accounting.run_statement(
            self.ledgers.ledger(m),
            delta=self.ledgers.budgets.deltas[m],
            fixed_seed=seeded,
            lineage=lineage,
        )
        files.write_json(folder / name, statement)
        row |= {"statement": name, "guarantee": guarantee.as_dict()}
      rows.append(row)
    epsilon, delta = self.ledgers.worst()
    every_example = {
        "epsilon": epsilon if math.isfinite(epsilon) else "inf",
        "delta": delta,
        "neighbours": (
            "add or remove one example of one client; clients hold disjoint"
            " examples (parallel composition)"
        ),
    }
    files.write_json(
        folder / SUMMARY, {"every_example": every_example, "clients": rows}
    )

  def result(
      self, state: Held, done: int, stopped: str, seconds: float
  ) -> Result:
    """See `training.Program`."""
    if stopped == "done" and done < self._spec.rounds:
      stopped = "budget"
    return Result(
        posterior=state.posterior,
        rounds=done,
        stopped=stopped,
        ledgers=self.ledgers,
        seconds=seconds,
    )

  def _synchronous(self, state: Held) -> Held:
    """Take a round in which all clients start from the same posterior."""
    answered = np.zeros(len(self._spec.clients), bool)
    answered[list(self._turns(self._done))] = True
    if not answered.any():
      return state
    posterior, states = self._federation.round(
        state.posterior, state.states, jnp.asarray(answered)
    )
    return state._replace(posterior=posterior, states=states)

  def _turns(self, number: int) -> Iterator[int]:
    """Yield the clients that are visited in a round, after paying for each."""
    spec, count = self._spec, len(self._spec.clients)
    order: Sequence[int] = range(count)
    if spec.server == "asynchronous":
      key = jax.random.fold_in(jax.random.key(spec.seed), number)
      order = servers.drawn_order(key, count, count).tolist()
    for client in order:
      absent = any(a.covers(client, number) for a in spec.absences)
      if not absent and self.ledgers.may_visit(client):
        self.ledgers = self.ledgers.add(client)
        yield client


def score(
    learner: likelihoods.VariationalLearner,
    posterior: factors.Posterior,
    examples: likelihoods.Examples,
) -> tuple[float, float]:
  """Return (accuracy, mean log likelihood) of public examples."""
  logs = learner.likelihood.predict(posterior.natural, examples.inputs)
  accuracy, log_likelihood = _score(logs, examples.labels)
  return float(accuracy), float(log_likelihood)


def _score(
    logs: jax.Array, labels: jax.Array
) -> tuple[jax.Array, jax.Array]:
  chosen = jnp.take_along_axis(logs, labels[:, None], axis=1)
  return jnp.mean(jnp.argmax(logs, axis=1) == labels), chosen.mean()


def summary(spec: Spec, result: Result) -> str:
  """Describe what a run did."""
  heads = {
      "done": "done",
      "budget": "done: every client has spent its budget",
  }
  head = heads.get(
      result.stopped,
      f"stopped by {result.stopped}; the same command goes on from there",
  )
  lines = [
      f"{head}, after {result.rounds} rounds"
      f" ({result.seconds:.0f} s in this process)"
  ]
  numbers = sorted(
      range(len(spec.clients)),
      key=lambda m: (spec.clients[m].size, result.visits[m]),
  )
  alike = itertools.groupby(
      numbers, lambda m: (spec.clients[m].size, result.visits[m])
  )
  for (size, visits), group in alike:
    members = list(group)
    guarantee = result.ledgers.guarantee(
        members[0], seeded=spec.private_seed is not None
    )
    text = "nothing released" if guarantee is None else str(guarantee)
    names = ", ".join(sorted(spec.clients[m].name for m in members))
    lines.append(
        f"  {_count(len(members), 'client')} of {_count(size, 'row')}"
        f" ({names}), {_count(visits, 'visit')} each: {text}"
    )
  epsilon, delta = result.ledgers.worst()
  if math.isfinite(epsilon):
    lines.append(
        "  every row, whichever client holds it: epsilon"
        f" {report.rounded_up(epsilon)} at delta {delta:g}"
    )
  return "\n".join(lines)


def _count(number: int, noun: str) -> str:
  return f"{number} {noun}{'s' * (number != 1)}"
