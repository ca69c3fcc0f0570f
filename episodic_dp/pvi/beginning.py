"""Where a run begins: its key, its last checkpoint, and what that cost."""

from collections.abc import Mapping
import dataclasses
import hashlib
import json
import pathlib
import secrets
from typing import Any, NamedTuple, Protocol

from absl import logging
import jax
import jax.numpy as jnp

from episodic_dp import errors
from episodic_dp import plan as plan_lib
from episodic_dp import private
from episodic_dp.accounting import report
from episodic_dp.private import sections
from episodic_dp.pvi import clients as clients_lib
from episodic_dp.pvi import factors
from episodic_dp.pvi import federation as federation_lib
from episodic_dp.pvi import learner as learner_lib
from episodic_dp.pvi import servers
from episodic_dp.pvi import spending
from episodic_dp.training import binding
from episodic_dp.training import checkpoint as checkpoint_lib
from episodic_dp.training import data_digest
from episodic_dp.training import environment
from episodic_dp.training import identity as identity_lib
from episodic_dp.training import keys
from episodic_dp.training import same_run
from episodic_dp.training import workdir


class Spec(Protocol):
  """What is read of `loop.Spec`."""

  @property
  def learner(self) -> learner_lib.VariationalLearner:
    """Likelihood and prior."""

  @property
  def clients(self) -> tuple[clients_lib.Client, ...]:
    """Who holds which examples."""

  @property
  def budgets(self) -> spending.Budgets:
    """What each samples and releases."""

  @property
  def damping(self) -> float:
    """Of every factor's change."""

  @property
  def server(self) -> str:
    """In which order clients update."""

  @property
  def absences(self) -> tuple[clients_lib.Absence, ...]:
    """Who does not answer when."""

  @property
  def seed(self) -> int:
    """Of what is public."""

  @property
  def private_seed(self) -> int | None:
    """See `loop.Spec`."""

  @property
  def config(self) -> Mapping[str, Any]:
    """Compared when a run is resumed."""


class Held(NamedTuple):
  """What a run carries from round to round.

  Attributes:
    posterior: the server's.
    states: of the clients, by group.
    sent: what each client was last sent, along a first axis (asynchronous).
  """

  posterior: factors.Posterior
  states: tuple[private.State, ...]
  sent: Any


@dataclasses.dataclass(frozen=True, kw_only=True)
class Beginning:
  """What a process goes on with.

  Attributes:
    held: before its first round.
    rounds: done by earlier processes.
    ledgers: of what these released.
    key: the secret of the run, bound to it.
    environment: what the last bits depend on.
    lineage: a random number for each process that took the run on.
  """

  held: Held
  rounds: int
  ledgers: spending.Ledgers
  key: keys.RunKey
  environment: Mapping[str, str]
  lineage: tuple[str, ...]

  def seal(self, step: int, digests: Mapping[str, str]) -> dict[str, Any]:
    """What a checkpoint holds about the run that wrote it."""
    return {
        "seal": self.key.seal(step, digests),
        "lineage": list(self.lineage),
        "environment": dict(self.environment),
    }


def begin(
    spec: Spec,
    folder: pathlib.Path,
    checkpoints: checkpoint_lib.Checkpoints,
    federation: federation_lib.Federation,
) -> Beginning:
  """What to go on from; writes nothing but the key of the run.

  Raises:
    RunError: the folder holds another run, or one that cannot be gone on with.
  """
  place = binding.place_of(folder, checkpoints.latest() or 0)
  same_run.check_config(folder, spec.config, clean=place.logged <= place.step)
  key = None
  if place.step or place.logged or keys.path(folder).exists():
    key = keys.load(folder)
    binding.check_seed(key, spec.private_seed)
  fresh = _fresh(spec, federation, private.secret_key(bytes(8)))
  identity = _identify(spec, federation, fresh)
  lineage: tuple[str, ...] = ()
  held, ledgers = None, spending.Ledgers.empty(spec.budgets)
  if key is None:
    key = keys.create(
        folder, identity.parts, identity.conditions,
        private_seed=spec.private_seed,
    )  # fmt: skip
  else:
    before = key
    key = binding.bound(
        before, identity, place, spec.budgets.releases[0].plan
    )
    if place.step:
      held, lineage = _restored(checkpoints, before, identity, place, fresh)
      ledgers = _spent(spec, checkpoints, place.step, held, federation)
      _check_budgets(spec, place, ledgers)
    workdir.warn_without_config(folder)
    if key is not before:
      keys.write(folder, key)
  drawn = federation.begin(key.jax_key())
  held = held or fresh
  states = tuple(
      state._replace(key=new.key) for state, new in zip(held.states, drawn)
  )
  return Beginning(
      held=held._replace(states=states),
      rounds=place.step,
      ledgers=ledgers,
      key=key,
      environment=identity.environment,
      lineage=(*lineage, secrets.token_hex(8)),
  )


def released(held: Held) -> Any:
  """What a checkpoint holds as its model: prior and factors."""
  return held.posterior


def beside(held: Held) -> dict[str, Any]:
  """What a checkpoint holds beside it: all but keys."""
  return {
      "clients": [federation_lib.without_key(s) for s in held.states],
      "sent": held.sent,
  }


def _fresh(
    spec: Spec, federation: federation_lib.Federation, key: jax.Array
) -> Held:
  posterior = factors.begin(spec.learner.prior, federation.clients)
  return Held(
      posterior,
      federation.begin(key),
      servers.everyone(posterior.natural, federation.clients),
  )


def _restored(
    checkpoints: checkpoint_lib.Checkpoints,
    key: keys.RunKey,
    identity: identity_lib.Identity,
    place: binding.Place,
    fresh: Held,
) -> tuple[Held, tuple[str, ...]]:
  """What the last checkpoint holds, and its lineage."""
  posterior, rest = checkpoints.restore(
      place.step, released(fresh), beside(fresh)
  )
  digests, run = checkpoints.run_of(place.step)
  binding.check_seal(key, place, digests, run.get("seal"))
  different = environment.differences(run["environment"], identity.environment)
  if different:
    logging.warning(
        "the run in %s goes on elsewhere: %s; its noise is the same, its sums"
        " are equal up to rounding (%s)",
        place.folder,
        ", ".join(different),
        environment.reproducible_remedy(identity.environment["backend"]),
    )
  logging.info("resumed from round %d in %s", place.step, place.folder)
  rest = jax.tree.map(jnp.asarray, rest)
  return (
      Held(
          jax.tree.map(jnp.asarray, posterior),
          tuple(
              state._replace(key=old.key)
              for state, old in zip(rest["clients"], fresh.states)
          ),
          rest["sent"],
      ),
      tuple(run["lineage"]),
  )


def _spent(
    spec: Spec,
    checkpoints: checkpoint_lib.Checkpoints,
    step: int,
    held: Held,
    federation: federation_lib.Federation,
) -> spending.Ledgers:
  """What the clients have spent, by the steps that they have done.

  Raises:
    RunError: the checkpoint's own ledgers say something else.
  """
  ledgers = spending.Ledgers.empty(spec.budgets)
  for group, state in zip(federation.groups, held.states):
    for member, steps in zip(group.members, state.step.tolist()):
      visits = steps // spec.budgets.local_steps
      for _ in range(visits):
        ledgers = ledgers.add([member])
  if checkpoints.ledger(step) != json.loads(json.dumps(ledgers.as_dict())):
    raise errors.RunError(
        f"the ledgers of the checkpoint of round {step} in"
        f" {checkpoints.folder} are not those of the steps that its clients"
        " have done: resume it with the data and the configuration that it was"
        " started with, or choose another --workdir"
    )
  return ledgers


def _check_budgets(
    spec: Spec, place: binding.Place, ledgers: spending.Ledgers
) -> None:
  """RunError where a client has released more than it may."""
  budgets = spec.budgets
  for number, (client, most) in enumerate(
      zip(spec.clients, budgets.most_visits)
  ):
    visits = ledgers.visits(number)
    if most is not None and visits > most:
      least = report.rounded_up(ledgers.worst()[0])
      raise errors.RunError(
          f"client {client.name} of the run in {place.folder} was visited"
          f" {visits} times already, and target_epsilon"
          f" {budgets.target_epsilon:g} at delta {budgets.deltas[number]:g}"
          f" allows {most}: choose another --workdir, or resume with"
          f" --config.target_epsilon={least}"
      )


def _identify(
    spec: Spec, federation: federation_lib.Federation, fresh: Held
) -> identity_lib.Identity:
  """What determines the visits of a run, under the names of `identity`."""
  found = sections.section_digests(
      [federation.traced(fresh.posterior, fresh.states)]
  )
  rules = [
      spec.budgets.local_steps, float(spec.damping), spec.server, spec.seed,
      [dataclasses.asdict(absence) for absence in spec.absences],
  ]  # fmt: skip
  described = [plan_lib.to_dict(r) for r in spec.budgets.releases]
  prior = [a.tolist() for a in jax.tree.leaves(spec.learner.prior)]
  data = [data_digest.data_digest(client) for client in spec.clients]
  return identity_lib.Identity(
      parts={
          identity_lib.RELEASE: _digest([described, rules]),
          identity_lib.DATA: _digest(data),
          identity_lib.STREAM: identity_lib.stream_digest(),
          identity_lib.SAMPLER: found[sections.SAMPLER],
          identity_lib.LEARNER: found[sections.LEARNER],
          identity_lib.START: _digest([spec.learner.seed, prior]),
          identity_lib.NOISE: found[sections.NOISE],
          identity_lib.OPTIMIZER: found[sections.OPTIMIZER],
      },
      # A client's batch is one microbatch, on one device.
      environment=environment.describe(
          devices=1, microbatch_size=0, resident=True
      ),
  )


def _digest(value: object) -> str:
  text = json.dumps(value, sort_keys=True)
  return hashlib.sha256(text.encode()).hexdigest()
