"""Private visits: clients, their budgets, and their local private steps.

Formal guarantees
-----------------
A visit of client m is a number of steps of `private.step` on its own examples:
Poisson batches, gradients clipped one by one, Gaussian noise, with its own key
and step numbers. Everything that leaves the client is a function of the noised
sums, of the released posteriors that it received and of public constants. So
the guarantee that `accounting` gives for this number of steps of the client's
`Release` holds for each of its examples, whatever the server and all other
clients do. docs/pvi.md has the argument.

With client-level privacy (`WholeClients`) a visit is not private, and only the
noised sum of the clients' clipped changes leaves (`servers`).
"""

from collections.abc import Mapping, Sequence
import dataclasses
import functools
import math
from typing import Any, Literal, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import optax

from episodic_dp import _validate
from episodic_dp import accounting
from episodic_dp import backends
from episodic_dp import plan as plan_lib
from episodic_dp import private
from episodic_dp.accounting import report
from episodic_dp.data import dataset as dataset_lib
from episodic_dp.errors import DataError
from episodic_dp.plan import sampler_error
from episodic_dp.private import checks
from episodic_dp.private import step as step_lib
from episodic_dp.pvi import gaussian
from episodic_dp.pvi import likelihoods
from episodic_dp.pvi import servers
from episodic_dp.training import resume

# Folded into the run's secret key before a client's number. The steps of a
# client fold in other numbers (`private.keys`).
_CLIENTS = 64
LEVEL = "example"  # The unit that local privacy protects.
CLIENT = "client"  # That of client-level privacy.
Client: TypeAlias = dataset_lib.ArrayDataset
Server = Literal["synchronous", "sequential", "asynchronous"]
SERVERS: tuple[Server, ...] = ("synchronous", "sequential", "asynchronous")

# Clients of equal size have equal costs.
_guarantee = functools.lru_cache(maxsize=256)(accounting.guarantee)
_most_steps = functools.lru_cache(maxsize=256)(accounting.max_steps)


@functools.cache
def _examples(size: int) -> plan_lib.Hierarchy:
  return plan_lib.Hierarchy.regular((size,), levels=(LEVEL,))


def make_clients(
    inputs: np.ndarray, labels: np.ndarray, members: Mapping[str, np.ndarray]
) -> tuple[Client, ...]:
  """Make the data set of each client from the rows of one table.

  Args:
    inputs: numbers [rows, features], already scaled by public constants.
    labels: whole numbers [rows], the class of each row, from 0.
    members: name of a client -> int[n], the numbers of its rows.

  Returns:
    The clients in the order of `members`, each with `images` float32[n, 1, 1,
    features], `labels` int32[n] and a hierarchy of n examples.

  Raises:
    DataError: a row has two clients, for which their guarantees would not hold,
      or a client has no row.
  """
  values, counts = np.unique(
      np.concatenate([*members.values()]), return_counts=True
  )
  if counts.max() > 1:
    raise DataError(
        f"row {values[counts.argmax()]} belongs to {counts.max()} clients, but"
        " the guarantee of a client needs rows that no other has: give every"
        " row one client"
    )
  for name, rows in members.items():
    if not len(rows):
      raise DataError(
          f"client {name!r} has no examples: leave it out, or give it some"
      )
  return tuple(
      dataset_lib.ArrayDataset(
          name=name,
          images=np.asarray(inputs[rows], np.float32)[:, None, None, :],
          labels=np.asarray(labels[rows], np.int32),
          hierarchy=_examples(len(rows)),
      )
      for name, rows in members.items()
  )


def release(
    client: Client,
    *,
    batch_share: float,
    least_batch: int,
    clip_norm: float,
    noise_multiplier: float,
) -> plan_lib.Release:
  """Describe the sampling and the release of a client's local step.

  Args:
    client: the client's rows.
    batch_share: expected share of the client's examples in a batch (Poisson),
      rounded up to whole examples.
    least_batch: least expected examples of a batch.
    clip_norm: clip norm of an example's gradient (of the expected log
      likelihood).
    noise_multiplier: z; 0 for no privacy.
  """
  size = len(client.images)
  batch = max(least_batch, math.ceil(batch_share * size))
  stage = plan_lib.Poisson(min(1.0, batch / size))
  mechanism = plan_lib.Mechanism(
      clip_unit=LEVEL, clip_norm=clip_norm, noise_multiplier=noise_multiplier
  )
  return plan_lib.Release(
      client.hierarchy, plan_lib.SamplingPlan((stage,)), mechanism
  )


def round_release(
    clients: int, *, share: float, clip_norm: float, noise_multiplier: float
) -> plan_lib.Release:
  """Describe a round of client-level privacy.

  Args:
    clients: M.
    share: rate at which clients are sampled (Poisson); 1 takes all of them.
    clip_norm: clip norm of a client's change of its factor.
    noise_multiplier: z; 0 for no privacy.
  """
  stage = plan_lib.All() if share == 1 else plan_lib.Poisson(share)
  return plan_lib.Release(
      plan_lib.Hierarchy.regular((clients,), levels=(CLIENT,)),
      plan_lib.SamplingPlan((stage,)),
      plan_lib.Mechanism(
          clip_unit=CLIENT, clip_norm=clip_norm,
          noise_multiplier=noise_multiplier,
      ),
  )


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Spec:
  """Everything that determines a run of `run`.

  Attributes:
    unit: the privacy unit: "example", a row, or "client", a client with all of
      its rows.
    learner: likelihood and prior.
    optimizer: an Optax transformation for the steps of a visit; its state stays
      with the client.
    clients: the examples of each client, from `make_clients`.
    releases: sampling and mechanism of a local step of each client, from
      `release`; or the single one of a round, from `round_release`.
    deltas: delta of the guarantee of each release, above 0 and below 1.
    local_steps: number of steps of a visit, at least 1.
    target_epsilon: the most that a client may spend; None for no limit.
    damping: damping of every factor's change, above 0 and at most 1.
    rounds: largest number of rounds.
    server: the order in which clients update.
    validation: public examples to monitor the run.
    seed: public seed of the asynchronous server's order.
    private_seed: None for a secret key; an integer makes the run reproducible
      and its guarantee void for anyone who knows the number.
    evaluate_every: rounds between validations.
    checkpoint_every: rounds between checkpoints.
    config: JSON-able description, compared when the run is resumed.

  Raises:
    PlanError: on construction, a value is out of range, or the budget allows no
      visit of any client.
    UnsoundPlanError: on construction, clients are the unit without rounds.
  """

  unit: Literal["example", "client"] = "example"
  learner: likelihoods.VariationalLearner
  optimizer: optax.GradientTransformation
  clients: tuple[Client, ...]
  releases: tuple[plan_lib.Release, ...]
  deltas: tuple[float, ...]
  local_steps: int
  target_epsilon: float | None = None
  damping: float
  rounds: int
  server: Server = "synchronous"
  validation: likelihoods.Examples
  seed: int = 0
  private_seed: int | None = None
  evaluate_every: int = 10
  checkpoint_every: int = 10
  config: Mapping[str, Any] = dataclasses.field(default_factory=dict)

  def __post_init__(self) -> None:
    for name in ("local_steps", "rounds", "evaluate_every", "checkpoint_every"):
      _validate.count(name, getattr(self, name), 1)
    _validate.one_of("server", self.server, SERVERS)
    if not 0 < self.damping <= 1:
      raise _validate.refusal(
          "damping", self.damping,
          "a number above 0 and at most 1, such as"
          f" {1 / len(self.clients):.2g} for {len(self.clients)} clients",
      )
    if self.unit == CLIENT and self.server != "synchronous":
      raise plan_lib.UnsoundPlanError(
          f"unit='client' with server={self.server!r}: the proof is for sums"
          " over the clients of a round; use server='synchronous'"
      )
    if not any(self.most_visits):
      one_visit = max(
          self.guarantee(m, 1).epsilon for m in range(len(self.releases))
      )
      raise plan_lib.PlanError(
          f"target_epsilon={self.target_epsilon:g} is exceeded in the first"
          f" round, by {self.charged} steps: raise visit.noise_multiplier, take"
          " fewer visit.local_steps (for unit='example'), or set"
          f" target_epsilon={report.rounded_up(one_visit)}"
      )

  @property
  def charged(self) -> int:
    """Return the releases of a visit: its steps, or 1 for a whole round."""
    if self.unit == CLIENT:
      return 1
    return self.local_steps

  @functools.cached_property
  def most_visits(self) -> tuple[float, ...]:
    """Return the most visits by each release; infinity without a limit."""
    if self.target_epsilon is None:
      return (math.inf,) * len(self.releases)
    return tuple(
        _most_steps(
            release, target_epsilon=self.target_epsilon, delta=delta,
            level=self.unit,
        )
        // self.charged
        for release, delta in zip(self.releases, self.deltas)
    )

  def guarantee(self, number: int, visits: int) -> accounting.Guarantee:
    """Return the guarantee of a release after at least one visit."""
    return _guarantee(
        self.releases[number], steps=visits * self.charged,
        delta=self.deltas[number], level=self.unit,
    ).of_run(seeded=self.private_seed is not None)


class Group(NamedTuple):
  """Clients with the same release, whose visits are one program.

  Attributes:
    members: numbers of the clients.
    settings: settings of a local step.
    data: images float32[members, n, 1, 1, features], labels int32[members, n].
  """

  members: tuple[int, ...]
  settings: step_lib.Settings
  data: tuple[jax.Array, jax.Array]

  def __repr__(self) -> str:
    return f"Group(members={self.members}, {self.settings.release})"


class Federation:
  """All clients, and the programs of their visits.

  Attributes:
    groups: see `Group`.
    clients: M.
  """

  def __init__(self, spec: Spec):
    """Check the clients and describe their programs; compile nothing.

    Raises:
      PlanError, UnsoundPlanError: the private step refuses them.
    """
    alike: dict[plan_lib.Release, list[int]] = {}
    for number, release in enumerate(spec.releases):
      alike.setdefault(release, []).append(number)
    self._spec, self.clients = spec, len(spec.clients)
    self.groups = tuple(
        _group(spec, release, numbers) for release, numbers in alike.items()
    )
    self._jitted = backends.jit(self._visits, static_argnums=0)

  def start(self) -> servers.Posterior:
    """Return the posterior before the first visit."""
    return servers.begin(self._spec.learner.prior, self.clients)

  def begin(self, key: jax.Array) -> tuple[private.State, ...]:
    """Return the clients before their first visit: a state for each group.

    Args:
      key: the run's secret key, from `private.secret_key`.
    """
    base = jax.random.fold_in(key, _CLIENTS)

    def one(group: Group, number: jax.Array) -> private.State:
      # The release's mechanism has a fixed clip norm, which has no state.
      return private.init(
          jax.random.key(0, impl=jax.random.key_impl(key)),
          self._spec.learner, group.settings.optimizer,
          group.settings.release.mechanism,
          params=self._spec.learner.init(key),
      )._replace(key=jax.random.fold_in(base, number))

    return tuple(
        jax.vmap(functools.partial(one, group))(
            jnp.asarray(group.members, jnp.uint32)
        )
        for group in self.groups
    )

  def visit(
      self,
      posterior: gaussian.Tree,
      states: gaussian.Tree,
      clients: Sequence[int],
      sent: gaussian.Tree,
  ) -> tuple[servers.Posterior, tuple[private.State, ...]]:
    """Visit some clients at once; the others neither compute nor spend.

    Args:
      posterior: the posterior when they answer.
      states: states of all clients, by group.
      clients: numbers of the visited clients.
      sent: natural parameters of the posterior that each client received, with
        a first axis of length M.
    """
    moved = list(states)
    for at, group in enumerate(self.groups):
      places = [i for i, m in enumerate(group.members) if m in clients]
      if places:
        posterior, moved[at] = self._jitted(
            at, posterior, moved[at], jnp.asarray(places), sent, group.data
        )
    return posterior, tuple(moved)

  def lowered(
      self, posterior: gaussian.Tree, states: gaussian.Tree
  ) -> list[str]:
    """Return the programs of visits of all clients as lowered for XLA."""
    sent = servers.everyone(posterior.natural, self.clients)
    return [
        resume.program_text(self._jitted.lower(
            at, posterior, states[at], jnp.arange(len(group.members)), sent,
            group.data,
        ))
        for at, group in enumerate(self.groups)
    ]

  def _visits(
      self, at: int, posterior: gaussian.Tree, states: gaussian.Tree,
      places: Any, sent: Any, data: Any,
  ) -> Any:
    """Visit the clients at these positions of a group."""
    group = self.groups[at]

    def visit(client: Any, start: Any, cavity: Any) -> tuple[Any, Any]:
      state, images, labels = client

      def step(state: private.State, _: None) -> tuple[private.State, None]:
        settings = group.settings
        taken = step_lib.take(
            settings, state, settings.noise_multiplier, images, labels
        )
        return taken[0], None

      state, _ = jax.lax.scan(
          step, likelihoods.visiting(state, start, cavity),
          length=self._spec.local_steps,
      )
      return state, likelihoods.to_gaussian(state.params)

    posterior, moved = servers.answer(
        visit, posterior, servers.rows((states, *data), places),
        jnp.asarray(group.members)[places], sent, self._spec.damping,
    )
    return posterior, servers.put(states, places, moved)


class Memory(NamedTuple):
  """The memory of the clients of `WholeClients`; it is not released.

  Attributes:
    key: the run's secret key.
    factors: t_m of all clients, with a first axis of length M.
    optimizer: states of the clients' optimizers, with the same first axis.
    step: int32 scalar, rounds done.
  """

  key: jax.Array
  factors: Any
  optimizer: optax.OptState
  step: jax.Array

  def __repr__(self) -> str:
    return f"Memory(step={self.step}, key=<secret>)"


class WholeClients:
  """All clients as units of privacy; a `Federation` with one release.

  Attributes:
    clients: M.
  """

  def __init__(self, spec: Spec):
    """Describe the round; compile nothing.

    Raises:
      UnsoundPlanError: no proof covers it.
    """
    (release,) = spec.releases
    self._spec, self.clients = spec, len(spec.clients)
    self._examples = _padded(spec.clients)
    self._round = servers.make_client_level_round(
        self._visit, release, damping=spec.damping
    )

  def start(self) -> servers.Released:
    """See `Federation`."""
    prior = self._spec.learner.prior
    return servers.Released(prior, prior, jnp.zeros(()))

  def begin(self, key: jax.Array) -> tuple[Memory]:
    """See `Federation`."""
    spec = self._spec
    optimizer = spec.optimizer.init(spec.learner.init(key))
    return (
        Memory(
            key,
            servers.begin(spec.learner.prior, self.clients).factors,
            servers.everyone(optimizer, self.clients),
            jnp.zeros((), jnp.int32),
        ),
    )

  def visit(
      self, posterior: gaussian.Tree, states: gaussian.Tree, *unused: Any
  ) -> tuple[servers.Released, tuple[Memory]]:
    """Take a round."""
    (memory,) = states
    new = self._round(*self._arguments(posterior, memory))
    memory = Memory(memory.key, new.factors, new.clients[1], new.step)
    return new.released, (memory,)

  def lowered(
      self, posterior: gaussian.Tree, states: gaussian.Tree
  ) -> list[str]:
    """Return the program of a round as lowered for XLA."""
    arguments = self._arguments(posterior, *states)
    return [resume.program_text(self._round.lower(*arguments))]

  def _arguments(
      self, posterior: servers.Released, memory: Memory
  ) -> tuple[jax.Array, servers.ClientLevelState, jax.Array]:
    clients = self._examples, memory.optimizer
    state = servers.ClientLevelState(
        posterior, memory.factors, clients, memory.step
    )
    return memory.key, state, jnp.ones(self.clients, bool)

  def _visit(
      self, client: Any, start: gaussian.MeanField, cavity: gaussian.MeanField
  ) -> tuple[Any, gaussian.MeanField]:
    """Ascend the local free energy of all examples of a client."""
    examples, optimizer = client
    spec = self._spec

    def loss(params: likelihoods.Params) -> jax.Array:
      q = likelihoods.to_gaussian(params)
      each = spec.learner.likelihood.expected(
          q, examples.inputs, examples.labels
      )
      energy = each @ examples.weight - gaussian.divergence(q, cavity)
      return -energy / examples.weight.sum()

    def step(carry: Any, _: None) -> tuple[Any, None]:
      params, optimizer = carry
      updates, optimizer = spec.optimizer.update(
          jax.grad(loss)(params), optimizer, params
      )
      return (optax.apply_updates(params, updates), optimizer), None

    (params, optimizer), _ = jax.lax.scan(
        step, (likelihoods.to_params(start), optimizer),
        length=spec.local_steps,
    )
    return (examples, optimizer), likelihoods.to_gaussian(params)


def _padded(clients: Sequence[Client]) -> likelihoods.Examples:
  """Return the examples of all clients along a first axis."""
  most = max(len(client.images) for client in clients)

  def pad(client: Client) -> likelihoods.Examples:
    size = len(client.images)
    lacking = (0, most - size)
    return likelihoods.Examples(
        jnp.pad(client.images[:, 0, 0], (lacking, (0, 0))),
        jnp.pad(jnp.asarray(client.labels), lacking),
        jnp.pad(jnp.ones(size), lacking),
    )

  return jax.tree.map(lambda *a: jnp.stack(a), *map(pad, clients))


def _group(
    spec: Spec, release: plan_lib.Release, numbers: Sequence[int]
) -> Group:
  clients = [spec.clients[m] for m in numbers]
  servers.check_release(release)
  checks.check(spec.learner, clients[0], release)
  (slots,) = sampler_error.capacities(release.hierarchy, release.plan)
  settings = step_lib.Settings(
      spec.learner,
      likelihoods.with_divergence(spec.optimizer, len(clients[0].images)),
      clients[0],
      release,
      # Everything that a step samples at once: rows of tables are small.
      private.Compute(mesh=None, microbatch_size=slots),
  )
  images = jnp.stack([client.images for client in clients])
  labels = jnp.stack([np.asarray(client.labels) for client in clients])
  return Group(tuple(numbers), settings, (images, labels))
