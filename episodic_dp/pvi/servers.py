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
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from episodic_dp.pvi import factors

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

    def keep(new: jax.Array, old: jax.Array) -> jax.Array:
      mask = answered.reshape(-1, *[1] * (jnp.ndim(new) - 1))
      return jnp.where(mask, new, old)

    return jax.tree.map(keep, moved, clients), locals_

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
  cavities = jax.vmap(factors.cavity, (None, 0))(sent, posterior.factors)
  clients, locals_ = visits(clients, sent, cavities)
  naturals = jax.vmap(factors.new_factor, (0, 0, 0, None))(
      locals_, cavities, posterior.factors.natural, damping
  )
  return factors.replace(posterior, naturals, answered), clients


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
  cavity = factors.cavity(sent, factor)
  client, local = visit(client, sent, cavity)
  natural = factors.new_factor(local, cavity, factor.natural, damping)
  return client, factors.replace_one(posterior, number, natural)


def drawn_order(key: jax.Array, clients: int, visits: int) -> jax.Array:
  """Sample who answers: int32[visits], uniform; the key is public."""
  return jax.random.randint(key, (visits,), 0, clients, jnp.int32)


def everyone(natural: Any, clients: int) -> Any:
  """Return the same natural parameters for each client, along a first axis."""
  return jax.tree.map(
      lambda a: jnp.broadcast_to(a, (clients, *a.shape)), natural
  )


def _client(clients: Any, number: jax.Array) -> Any:
  return jax.tree.map(lambda a: a[number], clients)


def _with_client(clients: Any, number: jax.Array, client: Any) -> Any:
  return jax.tree.map(lambda all_, a: all_.at[number].set(a), clients, client)
