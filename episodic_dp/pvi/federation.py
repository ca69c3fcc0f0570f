"""Private visits: local differentially private optimisation of each client.

Formal guarantees
-----------------
A visit of client m is a number of steps of `private.step` on its own
examples: Poisson batches, gradients clipped one by one, Gaussian noise, under a
key and a step number of its own. What leaves the client is a function of the
noised sums, of the released posteriors that it was sent and of public
constants; so what `accounting` says of that many steps of the client's
`Release` holds for each of its examples, whatever the server and all other
clients do. docs/pvi.md has the argument.
"""

from collections.abc import Sequence
import dataclasses
import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from episodic_dp import backends
from episodic_dp import plan as plan_lib
from episodic_dp import private
from episodic_dp.data import dataset as dataset_lib
from episodic_dp.plan import sampler_error
from episodic_dp.private import checks
from episodic_dp.private import step as step_lib
from episodic_dp.pvi import factors
from episodic_dp.pvi import likelihoods
from episodic_dp.pvi import servers

# What the run's secret key is folded with before a client's number; the steps
# of a client fold in purposes of their own (`private.keys`).
_CLIENTS = 64
LEVEL = "example"  # The unit that local privacy protects.


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Client:
  """One client's examples, as the private step reads them (`data.Dataset`).

  Attributes:
    name: of the client, for messages and reports.
    inputs: float32[n, features].
    labels: int32[n], classes from 0.
    hierarchy: the examples, of which there are n; clients of one size share it.
  """

  name: str
  inputs: np.ndarray
  labels: np.ndarray
  hierarchy: plan_lib.Hierarchy

  rows = staticmethod(dataset_lib.identity)
  rotate = False
  targets = 0
  resident = True

  @property
  def images(self) -> np.ndarray:
    """The inputs as float32[n, 1, 1, features]."""
    return self.inputs[:, None, None, :]

  @property
  def image_shape(self) -> tuple[int, int, int]:
    """(1, 1, features)."""
    return 1, 1, self.inputs.shape[1]

  @property
  def size(self) -> int:
    """n, which is public."""
    return len(self.labels)


def make_clients(
    inputs: np.ndarray, labels: np.ndarray, members: dict[str, np.ndarray]
) -> tuple[Client, ...]:
  """Make clients of some rows each.

  Args:
    inputs: [rows, features].
    labels: [rows], classes from 0.
    members: name -> rows of the client.

  Raises:
    PlanError: a row has two clients: their guarantees would not hold for it;
      or a client has none.
  """
  held = np.concatenate([np.asarray(rows) for rows in members.values()])
  values, counts = np.unique(held, return_counts=True)
  if counts.max() > 1:
    raise plan_lib.PlanError(
        f"row {values[counts.argmax()]} belongs to {counts.max()} clients: the"
        " guarantee of one client holds for rows that no other has; give every"
        " row one client"
    )
  trees: dict[int, plan_lib.Hierarchy] = {}
  made = []
  for name, rows in members.items():
    size = len(rows)
    if not size:
      raise plan_lib.PlanError(
          f"client {name!r} has no examples: leave it out, or give it some"
      )
    if size not in trees:
      trees[size] = plan_lib.Hierarchy.regular((size,), levels=(LEVEL,))
    made.append(
        Client(
            name=name,
            inputs=np.ascontiguousarray(inputs[rows], np.float32),
            labels=np.ascontiguousarray(labels[rows], np.int32),
            hierarchy=trees[size],
        )
    )
  return tuple(made)


def releases(
    members: Sequence[Client],
    *,
    batch_share: float,
    least_batch: int,
    clip_norm: float,
    noise_multiplier: float,
) -> tuple[plan_lib.Release, ...]:
  """Describe what a local step of each client samples and releases.

  Args:
    members: the clients.
    batch_share: of a client's examples that a step draws (Poisson), rounded up
      to whole examples.
    least_batch: and at least so many.
    clip_norm: of the gradient of one example's expected log likelihood.
    noise_multiplier: z; 0 for no privacy.
  """
  mechanism = plan_lib.Mechanism(
      clip_unit=LEVEL, clip_norm=clip_norm, noise_multiplier=noise_multiplier
  )
  made: dict[int, plan_lib.Release] = {}
  for client in members:
    if client.size not in made:
      batch = max(least_batch, math.ceil(batch_share * client.size))
      rate = min(1.0, batch / client.size)
      made[client.size] = plan_lib.Release(
          client.hierarchy,
          plan_lib.SamplingPlan((plan_lib.Poisson(rate),)),
          mechanism,
      )
  return tuple(made[client.size] for client in members)


def usual_delta(size: int) -> float:
  """10^floor(log10(1 / size)): the published choice, at most 1 / size."""
  return 10.0 ** math.floor(-math.log10(size))


@dataclasses.dataclass(frozen=True)
class Absence:
  """Rounds in which a client does not answer, by a public rule.

  Attributes:
    client: its number.
    first: the first such round, from 1.
    last: the last one; None for a client that never answers again.
  """

  client: int
  first: int = 1
  last: int | None = None

  def covers(self, client: int, round_: int) -> bool:
    """Return whether the client is absent in a round."""
    return (
        client == self.client
        and self.first <= round_
        and (self.last is None or round_ <= self.last)
    )


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Group:
  """Clients of one size, whose visits are one program.

  Attributes:
    members: their numbers.
    program: of a local step.
    images: float32[members, n, 1, 1, features].
    labels: int32[members, n].
  """

  members: tuple[int, ...]
  program: step_lib.Program
  images: jax.Array
  labels: jax.Array


class Federation:
  """All clients, and the programs of their visits.

  Attributes:
    groups: see `Group`.
    clients: M.
  """

  def __init__(
      self,
      learner: likelihoods.VariationalLearner,
      optimizer: optax.GradientTransformation,
      members: Sequence[Client],
      releases: Sequence[plan_lib.Release],
      *,
      local_steps: int,
      damping: float,
  ):
    """Check the clients and describes their programs; compiles nothing.

    Args:
      learner: whose loss is minus the expected log likelihood.
      optimizer: of a visit; its state stays with the client.
      members: the clients.
      releases: of each; clients of one size have the same.
      local_steps: of a visit.
      damping: of every factor's change.

    Raises:
      PlanError, UnsoundPlanError: what the private step refuses.
    """
    sizes: dict[int, list[int]] = {}
    for number, (client, release) in enumerate(zip(members, releases)):
      servers.check_release(release)
      first = sizes.setdefault(client.size, [])
      if first and release != releases[first[0]]:
        raise plan_lib.PlanError(
            f"clients {first[0]} and {number} have {client.size} examples each"
            " and not the same release: give them one and the same"
        )
      if not first:
        checks.check(learner, client, release)
      first.append(number)
    self.clients = len(members)
    self.groups = tuple(
        _group(learner, optimizer, members, releases, numbers)
        for numbers in sizes.values()
    )
    self._learner, self._optimizer = learner, optimizer
    self._local_steps, self._damping = local_steps, damping
    self._round = backends.jit(self._all_visits)
    self._single = backends.jit(self._one_visit, static_argnums=0)

  def begin(self, key: jax.Array) -> tuple[private.State, ...]:
    """Return the clients before their first visit: a state for each group.

    Args:
      key: the run's secret key, from `private.secret_key`.
    """
    base = jax.random.fold_in(key, _CLIENTS)

    def one(number: jax.Array, group: Group) -> private.State:
      # The release's mechanism has a fixed clip norm: no state of it.
      return private.init(
          jax.random.key(0, impl=jax.random.key_impl(key)),
          self._learner, group.program.optimizer,
          group.program.release.mechanism,
          params=self._learner.init(key),
      )._replace(key=jax.random.fold_in(base, number))

    return tuple(
        jax.vmap(functools.partial(one, group=group))(
            jnp.asarray(group.members, jnp.uint32)
        )
        for group in self.groups
    )

  def round(
      self,
      posterior: factors.Posterior,
      states: tuple[private.State, ...],
      answered: jax.Array,
  ) -> tuple[factors.Posterior, tuple[private.State, ...]]:
    """Take one round of the synchronous server.

    Args:
      posterior: before.
      states: of the clients, by group.
      answered: bool[M], who answers; the others neither compute nor spend.
    """
    return self._round(posterior, states, answered, self._data())

  def visit(
      self,
      posterior: factors.Posterior,
      states: tuple[private.State, ...],
      number: int,
      sent: Any,
  ) -> tuple[factors.Posterior, tuple[private.State, ...]]:
    """Take one visit of the sequential or asynchronous server.

    Args:
      posterior: as it is when the client answers.
      states: of the clients, by group.
      number: of the client.
      sent: the posterior that it was sent, as natural parameters.
    """
    at = next(i for i, g in enumerate(self.groups) if number in g.members)
    place = self.groups[at].members.index(number)
    posterior, state = self._single(
        at, posterior, states[at], place, number, sent, self._data()[at]
    )
    return posterior, (*states[:at], state, *states[at + 1 :])

  def lowered(
      self,
      posterior: factors.Posterior,
      states: tuple[private.State, ...],
  ) -> str:
    """Return the program of a round as XLA is given it."""
    everyone = jnp.ones(self.clients, bool)
    return self._round.lower(
        posterior, states, everyone, self._data()
    ).as_text()

  def _data(self) -> tuple[tuple[jax.Array, jax.Array], ...]:
    """Return the arguments of the programs, so that none is compiled in."""
    return tuple((group.images, group.labels) for group in self.groups)

  def _local(
      self, group: Group, client: Any, sent: Any, cavity: Any
  ) -> tuple[Any, Any]:
    """Make a visit as in `servers`; the client is (state, images, labels)."""
    state, images, labels = client
    state = likelihoods.visiting(state, sent, cavity)

    def step(state: private.State, _: None) -> tuple[private.State, None]:
      program = group.program
      taken = step_lib.take(
          program, state, program.noise_multiplier, images, labels
      )
      return taken[0], None

    state, _ = jax.lax.scan(step, state, length=self._local_steps)
    return (state, images, labels), likelihoods.to_gaussian(state.params)

  def _all_visits(
      self, posterior: Any, states: Any, answered: jax.Array, data: Any
  ) -> Any:
    def visits(states: Any, sent: Any, cavities: Any) -> tuple[Any, Any]:
      moved, found = [], []
      for group, state, arrays in zip(self.groups, states, data):
        at = jnp.asarray(group.members)
        own = jax.tree.map(lambda a, at=at: a[at], cavities)
        visit = functools.partial(self._local, group)
        (new, *_), local = jax.vmap(visit, in_axes=(0, None, 0))(
            (state, *arrays), sent, own
        )
        moved.append(_kept(new, state, answered[at]))
        found.append(local)
      order = jnp.argsort(
          jnp.asarray([m for group in self.groups for m in group.members])
      )
      together = jax.tree.map(lambda *a: jnp.concatenate(a)[order], *found)
      return tuple(moved), together

    return servers.together(
        visits, posterior, states, answered=answered, damping=self._damping
    )

  def _one_visit(
      self, at: int, posterior: Any, states: Any, place: Any, number: Any,
      sent: Any, data: Any,
  ) -> Any:
    client = jax.tree.map(lambda a: a[place], (states, *data))
    (state, *_), posterior = servers.visited(
        functools.partial(self._local, self.groups[at]),
        posterior, number, client, sent, self._damping,
    )
    one = jnp.arange(len(self.groups[at].members)) == place
    spread = jax.tree.map(
        lambda new, old: jnp.broadcast_to(new, old.shape), state, states
    )
    return posterior, _kept(spread, states, one)


def _group(
    learner: likelihoods.VariationalLearner,
    optimizer: optax.GradientTransformation,
    members: Sequence[Client],
    releases: Sequence[plan_lib.Release],
    numbers: Sequence[int],
) -> Group:
  first, release = members[numbers[0]], releases[numbers[0]]
  (slots,) = sampler_error.capacities(release.hierarchy, release.plan)
  return Group(
      members=tuple(numbers),
      program=step_lib.make_program(
          learner,
          likelihoods.with_divergence(optimizer, first.size),
          first,
          release,
          # All that a step draws at once: rows of tables are small.
          private.Compute(mesh=None, microbatch_size=slots),
      ),
      images=jnp.stack([members[m].images for m in numbers]),
      labels=jnp.stack([members[m].labels for m in numbers]),
  )


def _kept(
    new: private.State, old: private.State, answered: jax.Array
) -> private.State:
  """Keep the new states of clients that answered, old ones of others."""
  chosen = factors.where(answered, without_key(new), without_key(old))
  return chosen._replace(key=old.key)  # The same in all steps.


def without_key(state: private.State) -> private.State:
  """Return the state with nothing in the place of its key."""
  return private.State(**(state._asdict() | {"key": ()}))
