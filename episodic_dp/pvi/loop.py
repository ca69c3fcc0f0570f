"""A private run of partitioned variational inference, in a work directory.

Rounds of visits until each client has spent its budget, or all rounds are done.
All randomness of a visit follows from the run's secret key, the client and the
client's own step number, so a run that is killed at any time and resumed gives
the same posterior bit for bit, and no visit is paid for twice. The folder, the
key and its binding, and the checkpoints are those of `training`.
"""

from collections.abc import Iterator, Mapping
import contextlib
import dataclasses
import itertools
import math
import os
import time
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import optax

from episodic_dp import accounting
from episodic_dp import errors
from episodic_dp.accounting import report
from episodic_dp.output import files
from episodic_dp.output import phases
from episodic_dp.pvi import beginning as beginning_lib
from episodic_dp.pvi import clients as clients_lib
from episodic_dp.pvi import factors
from episodic_dp.pvi import federation as federation_lib
from episodic_dp.pvi import learner as learner_lib
from episodic_dp.pvi import likelihoods
from episodic_dp.pvi import servers
from episodic_dp.pvi import spending
from episodic_dp.training import checkpoint as checkpoint_lib
from episodic_dp.training import metrics as metrics_lib
from episodic_dp.training import processes
from episodic_dp.training import run_log
from episodic_dp.training import signals
from episodic_dp.training import workdir as workdir_lib

Server = Literal["synchronous", "sequential", "asynchronous"]
SERVERS: tuple[Server, ...] = ("synchronous", "sequential", "asynchronous")
STATEMENTS = "guarantees"
SUMMARY = "guarantees.json"


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Spec:
  """Everything that determines a run.

  Attributes:
    learner: likelihood and prior.
    optimizer: of a visit.
    clients: who holds which examples.
    budgets: what each samples and releases, and may spend.
    damping: of every factor's change.
    rounds: at most so many; a round is a visit of every client, or as many
      visits as there are clients where they come in a drawn order.
    server: in which order clients update.
    absences: who does not answer when; by a public rule.
    validation: public examples, to watch the run by.
    seed: public; of the order of the asynchronous server.
    private_seed: None for a secret key; an integer makes the run reproducible
      and its guarantee void for whoever knows the number.
    evaluate_every: rounds between validations.
    checkpoint_every: rounds between checkpoints.
    config: JSON-able description, compared when the run is resumed.

  Raises:
    RunError: on construction, a value out of range.
  """

  learner: learner_lib.VariationalLearner
  optimizer: optax.GradientTransformation
  clients: tuple[clients_lib.Client, ...]
  budgets: spending.Budgets
  damping: float
  rounds: int
  server: Server = "synchronous"
  absences: tuple[clients_lib.Absence, ...] = ()
  validation: likelihoods.Examples
  seed: int = 0
  private_seed: int | None = None
  evaluate_every: int = 10
  checkpoint_every: int = 10
  config: Mapping[str, Any] = dataclasses.field(default_factory=dict)

  def __post_init__(self) -> None:
    for name in ("rounds", "evaluate_every", "checkpoint_every"):
      value = getattr(self, name)
      if not isinstance(value, int) or value < 1:
        raise errors.RunError(
            f"{name}={value!r} must be a whole number of at least 1: set"
            f" --config.{name}=1 or more"
        )
    if not 0 < self.damping <= 1:
      raise errors.RunError(
          f"damping={self.damping!r} must lie above 0 and be at most 1, such as"
          f" {1 / len(self.clients):.2g} for {len(self.clients)} clients"
      )
    if self.server not in SERVERS:
      raise errors.RunError(
          f"server={self.server!r} must be one of {', '.join(SERVERS)}"
      )
    for absence in self.absences:
      if not 0 <= absence.client < len(self.clients):
        raise errors.RunError(
            f"absent client {absence.client} does not exist: the clients are 0"
            f" to {len(self.clients) - 1}"
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Result:
  """What `run` did.

  Attributes:
    posterior: the prior and the clients' factors.
    rounds: done in all, earlier processes included.
    visits: of each client.
    stopped: "done", "budget" (no client may be visited again), or the name of
      a signal.
    ledgers: what each client has spent.
    seconds: wall-clock seconds of this process inside `run`.
  """

  posterior: factors.Posterior
  rounds: int
  visits: tuple[int, ...]
  stopped: str
  ledgers: spending.Ledgers
  seconds: float


def make_federation(spec: Spec) -> federation_lib.Federation:
  """The visits of a run; others of equal clients and visits may share it."""
  return federation_lib.Federation(
      spec.learner, spec.optimizer, spec.clients, spec.budgets.releases,
      local_steps=spec.budgets.local_steps, damping=spec.damping,
  )  # fmt: skip


def run(
    spec: Spec,
    workdir: str | os.PathLike,
    *,
    federation: federation_lib.Federation | None = None,
) -> Result:
  """Runs in a work directory, from its last checkpoint where it has one.

  Args:
    spec: what to run.
    workdir: takes config.json, metrics.jsonl, guarantees.json, guarantees/ (a
      privacy statement a client), checkpoints/ and private/.
    federation: of an earlier run with the same clients, releases and visits.

  Raises:
    RunError: the folder cannot be used, or holds another run.
    PlanError: no client may be visited within the budget.
  """
  spec.budgets.check()  # Before the folder is touched.
  made = federation or make_federation(spec)
  with (
      workdir_lib.opened(workdir) as place,
      signals.StopSignals() as stop,
      contextlib.ExitStack() as opened,
  ):
    return _Run(spec, made, place, opened).go(stop)


class _Run:
  """The state of a run in this process."""

  def __init__(
      self,
      spec: Spec,
      federation: federation_lib.Federation,
      place: workdir_lib.WorkDirectory,
      opened: contextlib.ExitStack,
  ):
    self._began = time.monotonic()
    self._spec, self._federation, self._place = spec, federation, place
    self._checkpoints = checkpoint_lib.Checkpoints(place.folder)
    opened.callback(self._checkpoints.close)
    with phases.phase("preparing the run"):
      begun = beginning_lib.begin(
          spec, place.folder, self._checkpoints, federation
      )
    self._begun, self._held = begun, begun.held
    self._done = begun.rounds
    self._ledgers = begun.ledgers
    self._told = ""  # The last validation, in words.
    files.write_json(place.folder / workdir_lib.CONFIG, dict(spec.config))
    self._lines = metrics_lib.Lines(
        place.folder / metrics_lib.FILE, keep=self._done
    )
    opened.callback(self._lines.close)
    self._score = jax.jit(
        lambda q, x, y: _score(spec.learner.likelihood.predict(q, x), y)
    )
    # The key is safe before anything that follows from it can be seen.
    place.publish()

  def go(self, stop: signals.StopSignals) -> Result:
    """Takes the rounds."""
    with run_log.ProgressBar(
        done=self._done, steps=self._most_rounds(), unit="round"
    ) as bar:
      stopped = self._take_rounds(stop, bar)
    self._save()
    self._write_statements()
    return Result(
        posterior=self._held.posterior,
        rounds=self._done,
        visits=tuple(map(self._ledgers.visits, range(len(self._spec.clients)))),
        stopped=stopped,
        ledgers=self._ledgers,
        seconds=time.monotonic() - self._began,
    )

  def _most_rounds(self) -> int:
    """Those asked for, or fewer that are known to spend every budget."""
    spec, most = self._spec, self._spec.budgets.most_visits
    every_round = spec.server != "asynchronous" and not spec.absences
    found = [visits for visits in most if visits is not None]
    if every_round and len(found) == len(most):
      return min(spec.rounds, max(found))
    return spec.rounds

  def _take_rounds(
      self, stop: signals.StopSignals, bar: run_log.ProgressBar
  ) -> str:
    """Why they ended."""
    while self._done < self._spec.rounds:
      if stop.code != processes.Code.CONTINUE:
        return stop.code.stopped
      if not any(map(self._ledgers.may_visit, range(len(self._spec.clients)))):
        return "budget"
      self._take_round(bar)
    return "done"

  def _take_round(self, bar: run_log.ProgressBar) -> None:
    """A round, its line, and a checkpoint where one is due."""
    spec, number = self._spec, self._done + 1
    if spec.server == "synchronous":
      self._synchronous(number)
    else:
      self._one_by_one(number)
    self._done = number
    epsilon, delta = self._ledgers.worst()
    line = {"step": number, "epsilon": epsilon, "delta": delta}
    quality = None
    due = number == spec.rounds or number % spec.evaluate_every == 0
    if due and len(spec.validation.labels):
      accuracy, log_likelihood = map(
          float,
          self._score(
              self._held.posterior.natural,
              spec.validation.inputs, spec.validation.labels,
          ),
      )  # fmt: skip
      line["validation_accuracy"] = accuracy
      line["validation_log_likelihood"] = log_likelihood
      quality = accuracy if math.isfinite(accuracy) else None
      self._told = f"accuracy {100 * accuracy:.1f} %"
    # The line is written before the checkpoint, as in `training.loop`.
    self._lines.add(line)
    if number % spec.checkpoint_every == 0:
      self._save(quality)
    bar.show(number, epsilon=epsilon, score=self._told, validated=due)

  def _synchronous(self, number: int) -> None:
    answered = [
        m
        for m in range(len(self._spec.clients))
        if self._present(m, number) and self._ledgers.may_visit(m)
    ]
    if not answered:
      return
    mask = np.zeros(len(self._spec.clients), bool)
    mask[answered] = True
    # Paid before it is released.
    self._ledgers = self._ledgers.add(answered)
    posterior, states = self._federation.round(
        self._held.posterior, self._held.states, jnp.asarray(mask)
    )
    self._held = self._held._replace(posterior=posterior, states=states)

  def _one_by_one(self, number: int) -> None:
    for client in self._order(number):
      if not self._present(client, number):
        continue
      if not self._ledgers.may_visit(client):
        continue
      self._ledgers = self._ledgers.add([client])
      held = self._held
      stale = self._spec.server == "asynchronous"
      sent = held.posterior.natural
      if stale:
        sent = jax.tree.map(lambda a, m=client: a[m], held.sent)
      posterior, states = self._federation.visit(
          held.posterior, held.states, client, sent
      )
      if stale:
        held = held._replace(
            sent=jax.tree.map(
                lambda a, new, m=client: a.at[m].set(new),
                held.sent, posterior.natural,
            )
        )  # fmt: skip
      self._held = held._replace(posterior=posterior, states=states)

  def _order(self, number: int) -> Iterator[int]:
    """Whose turn it is in a round."""
    count = len(self._spec.clients)
    if self._spec.server == "sequential":
      return iter(range(count))
    key = jax.random.fold_in(jax.random.key(self._spec.seed), number)
    return map(int, servers.drawn_order(key, count, count))

  def _present(self, client: int, number: int) -> bool:
    return not any(a.covers(client, number) for a in self._spec.absences)

  def _save(self, quality: float | None = None) -> None:
    if self._done == 0:
      return
    self._checkpoints.save(
        self._done,
        beginning_lib.released(self._held),
        beginning_lib.beside(self._held),
        ledger=self._ledgers.as_dict(),
        seal=self._begun.seal,
        quality=quality,
    )
    self._place.publish()

  def _write_statements(self) -> None:
    """A statement for each client that has released something."""
    folder = self._place.folder
    seeded = self._spec.private_seed is not None
    rows: list[dict[str, Any]] = []
    guarantees = self._ledgers.guarantees(seeded=seeded)
    for m, (client, guarantee) in enumerate(
        zip(self._spec.clients, guarantees)
    ):
      row: dict[str, Any] = {
          "client": client.name, "examples": client.size,
          "visits": self._ledgers.visits(m),
      }  # fmt: skip
      statement = self._ledgers.statement(
          m, fixed_seed=seeded, lineage=self._begun.lineage
      )
      if statement is not None and guarantee is not None:
        name = f"client_{m}.json"
        files.write_json(folder / STATEMENTS / name, statement)
        row |= {
            "statement": f"{STATEMENTS}/{name}",
            "guarantee": guarantee.as_dict(),
        }
      rows.append(row)
    epsilon, delta = self._ledgers.worst()
    files.write_json(
        folder / SUMMARY,
        {
            "every_example": {
                "epsilon": epsilon if math.isfinite(epsilon) else "inf",
                "delta": delta,
                "neighbours": (
                    "add or remove one example of one client; clients hold"
                    " disjoint examples (parallel composition)"
                ),
            },
            "clients": rows,
        },
    )


def score(
    learner: learner_lib.VariationalLearner,
    posterior: factors.Posterior,
    examples: likelihoods.Examples,
) -> tuple[float, float]:
  """(accuracy, mean log likelihood) of public examples."""
  logs = learner.likelihood.predict(posterior.natural, examples.inputs)
  accuracy, log_likelihood = _score(logs, examples.labels)
  return float(accuracy), float(log_likelihood)


def _score(
    logs: jax.Array, labels: jax.Array
) -> tuple[jax.Array, jax.Array]:
  chosen = jnp.take_along_axis(logs, labels[:, None], axis=1)
  return jnp.mean(jnp.argmax(logs, axis=1) == labels), chosen.mean()


def summary(spec: Spec, result: Result) -> str:
  """What a run did, in words."""
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
  guarantees = result.ledgers.guarantees(
      seeded=spec.private_seed is not None
  )
  rows = [
      (client.size, visits, guarantee, client.name)
      for client, visits, guarantee in zip(
          spec.clients, result.visits, guarantees
      )
  ]
  key = lambda row: (row[0], row[1])  # noqa: E731
  for (size, visits), alike in itertools.groupby(sorted(rows, key=key), key):
    held = list(alike)
    found: accounting.Guarantee | None = held[0][2]
    text = "nothing released" if found is None else str(found)
    names = ", ".join(row[3] for row in held)
    lines.append(
        f"  {_count(len(held), 'client')} of {_count(size, 'row')} ({names}),"
        f" {_count(visits, 'visit')} each: {text}"
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
