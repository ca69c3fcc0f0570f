"""Three servers, by the order in which clients update their factors.

A client's visit is any pure function

  visit(client, start, cavity) -> (client, local posterior)

of what the client keeps (data and optimiser, a pytree), the posterior it was
sent and that posterior without its own factor. The servers are pure functions
of pytrees, to be jitted by whoever calls them.

| server | what a client is sent | order |
| --- | --- | --- |
| `synchronous` | the posterior after the last round | all at once (`vmap`) |
| `sequential` | the posterior after the last visit | as given (`scan`) |
| `asynchronous` | the posterior when it last answered | as given (`scan`) |

Formal guarantees
-----------------
In a round of `make_client_level_round` clients are drawn (Poisson, or all of
them). Each drawn client sends the change of its factor's natural parameters,
clipped to C. The server sees the sum of these changes plus N(0, (z C)^2 I) and
nothing else. `accounting` accounts for this at the level of the clients, given
the same `Release`. A client keeps its own factor, which depends on its data and
on the rounds in which it was drawn; docs/pvi.md shows that this costs nothing
more.

| edge case | contribution of a client |
| --- | --- |
| drawn, and does not answer | 0 |
| a change that is not finite | 0, and its factor stays |
| a change beyond C | scaled down; its factor moves by what was sent |
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from episodic_dp import plan as plan_lib
from episodic_dp import sampling
from episodic_dp.private import clipping
from episodic_dp.private import keys
from episodic_dp.private import noise
from episodic_dp.pvi import factors
from episodic_dp.pvi import gaussian

Visit = Callable[[Any, Any, Any], tuple[Any, Any]]


def synchronous(
    visit: Visit,
    posterior: factors.Posterior,
    clients: Any,
    *,
    damping: float = 1.0,
    answered: jax.Array | None = None,
) -> tuple[factors.Posterior, Any]:
  """Take a round in which every client starts from one posterior.

  Args:
    visit: see above.
    posterior: before the round.
    clients: what clients keep, along a first axis of length M.
    damping: of every factor's change; about 1 / M is always safe.
    answered: bool[M], who answers; None for all. What the others have done is
      dropped: it is as if they had not been asked.

  Returns:
    The posterior and the clients after the round.
  """
  if answered is None:
    answered = jnp.ones(posterior.clients, bool)

  def visits(clients: Any, sent: Any, cavities: Any) -> tuple[Any, Any]:
    moved, locals_ = jax.vmap(visit, in_axes=(0, None, 0))(
        clients, sent, cavities
    )
    return factors.where(answered, moved, clients), locals_

  return together(
      visits, posterior, clients, damping=damping, answered=answered
  )


def together(
    visits: Visit,
    posterior: factors.Posterior,
    clients: Any,
    *,
    damping: float,
    answered: jax.Array,
) -> tuple[factors.Posterior, Any]:
  """`synchronous`, of clients that compute their visits in a way of their own.

  Args:
    visits: (clients, sent, cavities of all M) -> (clients, local posteriors of
      all M), along first axes.
    posterior: before the round.
    clients: what `visits` takes.
    damping: of every factor's change.
    answered: bool[M], whose local posteriors are taken.
  """
  sent = posterior.natural
  cavities = gaussian.quotient(sent, posterior.factors)
  clients, locals_ = visits(clients, sent, cavities)
  new = jax.vmap(factors.new_factor, (0, 0, 0, None))(
      locals_, cavities, posterior.factors, damping
  )
  kept = factors.where(answered, new, posterior.factors)
  return posterior._replace(factors=kept), clients


def sequential(
    visit: Visit,
    posterior: factors.Posterior,
    clients: Any,
    order: jax.Array,
    *,
    damping: float = 1.0,
) -> tuple[factors.Posterior, Any]:
  """Take one visit after another: Algorithm 2 of [S] as it is printed.

  Args:
    visit: see above.
    posterior: before.
    clients: what clients keep, along a first axis of length M.
    order: int32[visits], whose turn it is.
    damping: of every factor's change.

  Returns:
    The posterior and the clients after all visits.
  """

  def one(carry: Any, number: jax.Array) -> tuple[Any, None]:
    posterior, clients = carry
    client = _client(clients, number)
    client, moved = visited(
        visit, posterior, number, client, posterior.natural, damping
    )
    return (moved, _with_client(clients, number, client)), None

  return jax.lax.scan(one, (posterior, clients), order)[0]


def asynchronous(
    visit: Visit,
    posterior: factors.Posterior,
    clients: Any,
    order: jax.Array,
    *,
    damping: float = 1.0,
    sent: Any = None,
) -> tuple[factors.Posterior, Any, Any]:
  """Take visits of clients that answer what they were last sent.

  Whoever answers gets the posterior as it is then, and works on it until it
  answers again; meanwhile others change it.

  Args:
    visit: see above.
    posterior: before.
    clients: what clients keep, along a first axis of length M.
    order: int32[visits], who answers, such as drawn by `drawn_order`.
    damping: of every factor's change.
    sent: the posterior that each client was last sent, along a first axis; None
      for the present one.

  Returns:
    The posterior, the clients and what each was sent last.
  """
  if sent is None:
    sent = everyone(posterior.natural, posterior.clients)

  def one(carry: Any, number: jax.Array) -> tuple[Any, None]:
    posterior, clients, sent = carry
    client, moved = visited(
        visit, posterior, number, _client(clients, number),
        _client(sent, number), damping,
    )
    sent = _with_client(sent, number, moved.natural)
    return (moved, _with_client(clients, number, client), sent), None

  return jax.lax.scan(one, (posterior, clients, sent), order)[0]


def visited(
    visit: Visit,
    posterior: factors.Posterior,
    number: jax.Array | int,
    client: Any,
    sent: Any,
    damping: float,
) -> tuple[Any, factors.Posterior]:
  """Return the client after a visit, and the posterior with its factor.

  Args:
    visit: see above.
    posterior: as it is when the client answers.
    number: of the client.
    client: what it keeps.
    sent: what it was sent, perhaps some time ago; its own factor has not
      changed since.
    damping: of the factor's change.
  """
  factor = posterior.factor(number)
  cavity = gaussian.quotient(sent, factor)
  client, local = visit(client, sent, cavity)
  new = factors.new_factor(local, cavity, factor, damping)
  return client, factors.replace_one(posterior, number, new)


def drawn_order(key: jax.Array, clients: int, visits: int) -> jax.Array:
  """Sample who answers: int32[visits], uniform; the key is public."""
  return jax.random.randint(key, (visits,), 0, clients, jnp.int32)


def everyone(natural: Any, clients: int) -> Any:
  """Return the same natural parameters for each client, along a first axis."""
  return jax.tree.map(
      lambda a: jnp.broadcast_to(a, (clients, *a.shape)), natural
  )


class ClientLevelState(NamedTuple):
  """State that a run of client-level privacy carries from round to round.

  Attributes:
    prior: p.
    posterior: q, natural parameters: the one thing that is released.
    factors: t_m along a first axis, each private and kept by its client; in a
      simulation, here.
    clients: what else clients keep, along a first axis; private.
    step: int32 scalar, rounds done.
  """

  prior: Any
  posterior: Any
  factors: Any
  clients: Any
  step: jax.Array


def begin_client_level(
    prior: gaussian.Natural, clients: Any, count: int
) -> ClientLevelState:
  """Return the state in which all factors are 1.

  Args:
    prior: p.
    clients: what each keeps, along a first axis of length `count`.
    count: M.
  """
  posterior = factors.begin(prior, count)
  return ClientLevelState(
      prior, prior, posterior.factors, clients,
      jnp.zeros((), jnp.int32),
  )


def check_release(
    release: plan_lib.Release, *, remembers: bool = False
) -> None:
  """Refuse releases for which the proofs of `docs/pvi.md` do not hold.

  Args:
    release: of a client's local steps, or of a round.
    remembers: whether each unit remembers what it sent before, as the clients
      of client-level privacy do.

  Raises:
    UnsoundPlanError: names the rule and the nearest sound setting.
  """
  stage, mechanism = release.plan.stages[-1], release.mechanism
  if len(release.levels) > 1 or release.plan.episode is not None:
    raise plan_lib.UnsoundPlanError(
        f"private inference with the levels {release.levels}: the proof takes"
        " single units of one level, without episodes; give a hierarchy of"
        " clients alone for client-level privacy, and one of examples alone for"
        " local privacy"
    )
  if not isinstance(stage, (plan_lib.Poisson, plan_lib.All)):
    raise plan_lib.UnsoundPlanError(
        f"private inference with {stage}: a visit may be cut off or come late,"
        " and clients remember earlier rounds, so the proof needs independent"
        " draws of units in every step; use Poisson(p) or All()"
    )
  if mechanism.clipping != "fixed":
    raise plan_lib.UnsoundPlanError(
        f"private inference with clipping={mechanism.clipping!r}: only a clip"
        " norm that stays the same was proved; use clipping='fixed'"
    )
  if remembers and mechanism.clip_by != "global":
    raise plan_lib.UnsoundPlanError(
        f"client-level privacy with clip_by={mechanism.clip_by!r}: a client"
        " remembers what was clipped off, with which no other clipping was"
        " proved; use clip_by='global'"
    )


def make_client_level_round(
    visit: Visit,
    release: plan_lib.Release,
    *,
    damping: float = 1.0,
) -> Any:
  """Return the function of one round.

  Args:
    visit: see above, not private by itself.
    release: which clients a round draws, and how their changes are clipped and
      noised.
    damping: of every factor's change, before it is clipped.

  Returns:
    (key, state, answers bool[M]) -> state: pure and jitted; the key is the
    run's secret key, the same in all rounds.

  Raises:
    UnsoundPlanError: see `check_release`.
  """
  check_release(release, remembers=True)
  mechanism = release.mechanism
  count = release.hierarchy.num_units(0)

  def one(
      posterior: Any, prior: Any, client: Any, factor: Any
  ) -> tuple[Any, Any]:
    cavity = gaussian.quotient(posterior, factor).above(prior)
    client, local = visit(client, posterior, cavity)
    new = factors.new_factor(local, cavity, factor, damping)
    change = gaussian.quotient(new, factor)
    clipped = clipping.clip(change, mechanism.clip_norm).gradient
    return client, clipped

  @jax.jit
  def round_(
      key: jax.Array, state: ClientLevelState, answers: jax.Array
  ) -> ClientLevelState:
    drawn, mask = sampling.sample(
        jax.random.fold_in(key, keys.SAMPLING),
        release.hierarchy, release.plan, state.step,
    )
    takes_part = answers & jnp.zeros(count, bool).at[drawn].max(mask)

    moved, changes = jax.vmap(one, (None, None, 0, 0))(
        state.posterior, state.prior, state.clients, state.factors
    )
    nothing = jax.tree.map(jnp.zeros_like, changes)
    changes = factors.where(takes_part, changes, nothing)
    noised = noise.add_noise(
        keys.step_key(key, keys.NOISE, state.step),
        clipping.sum_units(changes),
        mechanism.noise_multiplier * mechanism.clip_norm
        if mechanism.noise_multiplier
        else 0.0,
    )
    posterior = gaussian.product(state.posterior, _symmetric(noised))
    return ClientLevelState(
        state.prior,
        # Noise may take certainty away, but not that of the prior.
        _like(posterior.above(state.prior), state.posterior),
        _like(gaussian.product(state.factors, changes), state.factors),
        factors.where(takes_part, moved, state.clients),
        state.step + 1,
    )

  return round_


def _symmetric(natural: Any) -> Any:
  """Make a full precision symmetric, whatever the noise."""
  if isinstance(natural, gaussian.Full):
    precision = (natural.precision + natural.precision.T) / 2
    return natural._replace(precision=precision)
  return natural


def _like(tree: Any, other: Any) -> Any:
  """Cast a tree to another's dtypes: clipping computes in float32."""
  return jax.tree.map(lambda a, b: a.astype(b.dtype), tree, other)


def _client(clients: Any, number: jax.Array) -> Any:
  return jax.tree.map(lambda a: a[number], clients)


def _with_client(clients: Any, number: jax.Array, client: Any) -> Any:
  return jax.tree.map(lambda all_, a: all_.at[number].set(a), clients, client)
