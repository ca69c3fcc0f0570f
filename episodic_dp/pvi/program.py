"""Partitioned variational inference as a program of the training loop.

A round visits every client once. The asynchronous server makes the same number
of visits in a random order. Rounds end when each client has spent its budget,
or all are done. All randomness of a visit follows from the run's secret key,
the client and the client's own step number.

Formal guarantees: clients hold disjoint examples, so an example has the
guarantee of its client, and all examples together have the largest of these
(`worst`). This is parallel composition, although visits are adaptive
(docs/pvi.md). It is for one example added to, or removed from, its client. With
whole clients as the unit there is one guarantee, of all rounds.
"""

from collections.abc import Sequence
import dataclasses
import itertools
import math
import os
from typing import Any, NamedTuple

from etils import epath
import jax
import jax.numpy as jnp
import numpy as np

from episodic_dp import accounting
from episodic_dp import plan as plan_lib
from episodic_dp import private
from episodic_dp.accounting import report
from episodic_dp.output import files
from episodic_dp.pvi import federation as federation_lib
from episodic_dp.pvi import likelihoods
from episodic_dp.pvi import servers
from episodic_dp.training import loop
from episodic_dp.training import resume
from episodic_dp.training.checkpoint import Arrays

STATEMENTS = "guarantees"
SUMMARY = "guarantees.json"
POSTERIOR = "posterior.json"
_NEIGHBOURS = {
    federation_lib.LEVEL: (
        "add or remove one example of one client; clients hold disjoint"
        " examples (parallel composition)"
    ),
    federation_lib.CLIENT: "add or remove one client with all of its examples",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Learned:
  """The outcome of `run`.

  Attributes:
    posterior: the prior and the clients' factors, or their noised sum; its
      `natural` is the released Gaussian.
    rounds: rounds done in all, including earlier processes.
    stopped: "done", "budget" (no client may be visited again), or the name of a
      signal.
    visits: number of visits of each client, or one number of rounds.
    guarantees: guarantee of each client, or the one of all rounds; None if
      nothing was released.
    seconds: wall-clock seconds of this process inside `run`; see
      `training.Result`.
  """

  posterior: servers.Posterior | servers.Released
  rounds: int
  stopped: str
  visits: tuple[int, ...]
  guarantees: tuple[accounting.Guarantee | None, ...]
  seconds: float


def worst(
    guarantees: Sequence[accounting.Guarantee | None],
) -> tuple[float, float]:
  """Return (epsilon, delta) of every example, whichever client holds it."""
  found = [(g.epsilon, g.delta) for g in guarantees if g is not None]
  epsilons, deltas = zip((0.0, 0.0), *found)
  return max(epsilons), max(deltas)


def run(
    spec: federation_lib.Spec,
    workdir: str | os.PathLike,
    *,
    federation: federation_lib.Federation | None = None,
    **options: Any,
) -> Learned:
  """Learn a posterior from all clients, from the last checkpoint if any.

  Partitioned variational inference: Algorithm 2 of Sharma, "Differential
  Privacy & Approximate Bayesian Inference", after Bui et al., "Partitioned
  Variational Inference" (2018).

  Args:
    spec: the run.
    workdir: receives config.json, metrics.jsonl, posterior.json (means and
      variances), guarantees.json, guarantees/ (a privacy statement for each
      client, or of all rounds), checkpoints/ and private/. With whole clients
      as the unit the checkpoints are in private/, with the clients' factors.
    federation: compiled functions of an earlier run with the same clients,
      releases and visits; None compiles them.
    **options: "resume", "key_file", "deadline" and "callbacks" of
      `training.run`.

  Returns:
    `Learned`: the posterior (float arrays), the rounds done, and each client's
    guarantee.

  Raises:
    RunError: the folder cannot be used, or holds another run.
    PlanError: no client may be visited within the budget.
  """
  return loop.run(Inference(spec, federation), workdir, **options)


class Held(NamedTuple):
  """The state of a run.

  Attributes:
    posterior: the server's posterior, released.
    states: states of the clients, by group.
    sent: the posterior that each client last received, with a first axis of
      clients.
  """

  posterior: servers.Posterior | servers.Released
  states: tuple[private.State, ...] | tuple[federation_lib.Memory]
  sent: Any


class Inference:
  """A `training.Program` of rounds."""

  unit = "round"
  diagnostics = False

  def __init__(
      self,
      spec: federation_lib.Spec,
      federation: federation_lib.Federation | None = None,
  ):
    self.spec = spec
    self.remembers = spec.unit == federation_lib.CLIENT
    self.privacy_unit = "client" if self.remembers else "row"
    self._federation: (
        federation_lib.Federation | federation_lib.WholeClients
    )
    if self.remembers:
      self._federation = federation_lib.WholeClients(spec)
    else:
      self._federation = federation or federation_lib.Federation(spec)
    self.steps = spec.rounds
    self._visits = [0] * len(spec.releases)
    self._planned = [*self._visits]
    self._done = self._released = 0
    self._natural = spec.learner.prior

  def init(self) -> Held:
    """See `training.Program`."""
    clients = self._federation.clients
    posterior = self._federation.start()
    sent = servers.everyone(posterior.natural, clients)
    key = private.secret_key(bytes(8))  # Replaced by the run's key.
    return Held(posterior, self._federation.begin(key), sent)

  def parts(self, state: Held) -> dict[str, str]:
    """See `training.Program`."""
    spec = self.spec
    rules = [spec.local_steps, float(spec.damping), spec.server, spec.seed]
    described = [plan_lib.to_dict(release) for release in spec.releases]
    return {
        "release": resume.json_digest([described, rules]),
        "data": resume.json_digest(
            [resume.data_digest(client) for client in spec.clients]
        ),
        "learner": resume.json_digest(
            resume.shapes(spec.learner.prior)
        ),
        # Who visits in a round, on which later rounds depend.
        "budget": f"{[*spec.most_visits]} visits",
        "start": resume.digest(self.saved(state)),
        "program": resume.json_digest(
            self._federation.lowered(state.posterior, state.states)
        ),
    }

  def saved(self, state: Held) -> tuple[Any, Any]:
    """See `training.Program`; everything but the keys."""
    states = [s._asdict() | {"key": ()} for s in state.states]
    return state.posterior, {"clients": states, "sent": state.sent}

  def restored(
      self, state: Held, params: Arrays, rest: Arrays, key: jax.Array
  ) -> Held:
    """See `training.Program`."""
    begun: tuple[Any, ...] = self._federation.begin(key)
    states = tuple(
        new._replace(**(fields | {"key": new.key}))
        for fields, new in zip(rest["clients"], begun)
    )
    self._natural = params.natural
    return Held(params, states, rest["sent"])

  def charge(self, ranges: Sequence[range], done: int) -> None:
    """See `training.Program`; the order of visits is public."""
    *others, present = ranges
    for number in itertools.chain(*others, range(present.start, done)):
      self._pay(number + 1, self._visits)
    self._done = self.steps = done
    self._released = present.stop
    planned = [*self._visits]
    while self.steps < self.spec.rounds and any(
        v < m for v, m in zip(planned, self.spec.most_visits)
    ):
      self.steps += 1
      self._pay(self.steps, planned)
    self._planned = planned

  def compile(self, state: Held) -> None:
    """See `training.Program`: the first round compiles."""

  def step(self, state: Held) -> tuple[Held, dict[str, Any]]:
    """See `training.Program`."""
    self._done += 1
    paid = self._pay(self._done, self._visits)
    server = self.spec.server
    turns = [[m] for m in paid]
    if server == "synchronous":
      turns = [paid]
    posterior, states, sent = state
    for clients in turns:
      posterior, states = self._federation.visit(
          posterior, states, clients, sent
      )
      if server == "asynchronous":
        now = servers.everyone(posterior.natural, len(clients))
        sent = servers.put(sent, jnp.asarray(clients), now)
      else:
        sent = servers.everyone(posterior.natural, self._federation.clients)
    self._natural = posterior.natural
    return Held(posterior, states, sent), {}

  def spent(self) -> dict[str, float]:
    """See `training.Program`."""
    epsilon, delta = worst(self._guarantees(self._visits))
    return {"epsilon": epsilon, "delta": delta}

  def ledger(self) -> dict[str, Any]:
    """See `training.Program`."""
    return {"visits": self._charged()}

  def validate(self, state: Held) -> loop.Validated:
    """See `training.Program`."""
    examples = self.spec.validation
    if not len(examples.labels):
      return loop.NOT_VALIDATED
    accuracy, log_likelihood = score(
        self.spec.learner, state.posterior, examples
    )
    numbers = {
        "validation_accuracy": accuracy,
        "validation_log_likelihood": log_likelihood,
    }
    return numbers, accuracy, f"accuracy {100 * accuracy:.1f} %"

  def write(
      self, folder: epath.Path, lineage: Sequence[str], *, ended: bool
  ) -> None:
    """See `training.Program`; statements, and at the end the posterior."""
    spec, visits, rows = self.spec, self._charged(), []
    if not ended:  # A kill may come after any of the planned visits.
      visits = [*map(max, visits, self._planned)]
    guarantees = self._guarantees(visits)
    moments = {"mean": self._natural.mean, "variance": self._natural.variance}
    if ended:
      files.write_json(
          folder / POSTERIOR,
          jax.tree.map(lambda a: np.asarray(a).tolist(), moments),
      )
    for m, guarantee in enumerate(guarantees):
      if self.remembers:  # Who took part, and how often, is not released.
        name = "clients"
        row: dict[str, Any] = {"rounds": visits[m]}
      else:
        name, client = f"client_{m}", spec.clients[m]
        row = {
            "client": client.name,
            "examples": len(client.images),
            "visits": visits[m],
        }
      if guarantee is not None:
        row["statement"] = f"{STATEMENTS}/{name}.json"
        row["guarantee"] = guarantee.as_dict()
        statement = accounting.run_statement(
            accounting.Ledger().add(spec.releases[m], guarantee.steps),
            delta=spec.deltas[m],
            fixed_seed=self.spec.private_seed is not None,
            lineage=lineage,
        )
        files.write_json(folder / row["statement"], statement)
      rows.append(row)
    epsilon, delta = worst(guarantees)
    every = {
        "epsilon": epsilon if math.isfinite(epsilon) else "inf",
        "delta": delta,
        "neighbours": _NEIGHBOURS[spec.unit],
    }
    files.write_json(
        folder / SUMMARY, {f"every_{spec.unit}": every, "clients": rows}
    )

  def result(
      self, state: Held, done: int, stopped: str, seconds: float
  ) -> Learned:
    """See `training.Program`."""
    if stopped == "done" and done < self.spec.rounds:
      stopped = "budget"
    return Learned(
        posterior=state.posterior,
        rounds=done,
        stopped=stopped,
        visits=tuple(self._charged()),
        guarantees=self._guarantees(self._charged()),
        seconds=seconds,
    )

  def _guarantees(
      self, visits: Sequence[int]
  ) -> tuple[accounting.Guarantee | None, ...]:
    """Return the guarantee of each release; None if it was not used."""
    return tuple(
        self.spec.guarantee(m, number) if number else None
        for m, number in enumerate(visits)
    )

  def _charged(self) -> list[int]:
    """Return the visits of each client that may have been released."""
    visits = [*self._visits]
    for number in range(self._done, self._released):
      self._pay(number + 1, visits)
    return visits

  def _pay(self, number: int, visits: list[int]) -> list[int]:
    """Add the visits of a round; return the visited clients in order."""
    spec, count = self.spec, len(self.spec.releases)
    order: Sequence[int] = range(count)
    if spec.server == "asynchronous":
      key = jax.random.fold_in(jax.random.key(spec.seed), number)
      order = jax.random.randint(key, (count,), 0, count).tolist()
    paid = []
    for client in order:
      if visits[client] < spec.most_visits[client]:
        visits[client] += 1
        paid.append(client)
    return paid


def score(
    learner: likelihoods.VariationalLearner,
    posterior: servers.Posterior | servers.Released,
    examples: likelihoods.Examples,
) -> tuple[float, float]:
  """Return (accuracy, mean log likelihood) of public examples."""
  logs = learner.likelihood.predict(posterior.natural, examples.inputs)
  chosen = jnp.take_along_axis(logs, examples.labels[:, None], axis=1)
  right = jnp.argmax(logs, axis=1) == examples.labels
  return float(right.mean()), float(chosen.mean())


def summary(spec: federation_lib.Spec, result: Learned) -> str:
  """Describe the run and its cost, with a line for each size of client."""
  heads = {
      "done": "done",
      "budget": "done: every client has spent its budget",
  }
  head = heads.get(
      result.stopped,
      f"stopped by {result.stopped}; the same command resumes from there",
  )
  lines = [f"{head}, after round {result.rounds}"]
  if spec.unit == federation_lib.CLIENT:
    (guarantee,) = result.guarantees
    return "\n".join([*lines, f"  {guarantee or 'nothing released'}"])
  alike: dict[str, list[str]] = {}
  for client, visits, guarantee in zip(
      spec.clients, result.visits, result.guarantees
  ):
    text = f"rows {len(client.images)}, visits {visits}: "
    text += str(guarantee or "nothing released")
    alike.setdefault(text, []).append(client.name)
  lines += [f"  {', '.join(names)}: {text}" for text, names in alike.items()]
  epsilon, delta = worst(result.guarantees)
  if math.isfinite(epsilon):
    lines.append(
        "  every row, whichever client holds it: epsilon"
        f" {report.rounded_up(epsilon)} at delta"
        f" {report.rounded_delta(delta)}"
    )
  return "\n".join(lines)
