"""Partitioned variational inference: cavities and updates of factors.

Algorithm 2 of Sharma, "Differential Privacy & Approximate Bayesian Inference"
[S], after Bui et al., "Partitioned Variational Inference" (2018). The
approximate posterior is proportional to the prior times one factor for each
client,

  q(theta) = p(theta) prod_m t_m(theta)                                 (2.17)

A server keeps p and the factors; q is always made of them.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from episodic_dp.pvi import gaussian


class Posterior(NamedTuple):
  """State of a server, in natural parameters.

  Attributes:
    prior: p, a proper Gaussian.
    factors: t_m of all clients, along a first axis of length M.
  """

  prior: Any
  factors: Any

  @property
  def natural(self) -> Any:
    """q: the prior times all factors."""
    return jax.tree.map(lambda p, t: p + t.sum(0), self.prior, self.factors)

  @property
  def clients(self) -> int:
    """Number of clients, M."""
    return len(jax.tree.leaves(self.factors)[0])

  def factor(self, client: jax.Array | int) -> Any:
    """Return one client's factor."""
    return jax.tree.map(lambda a: a[client], self.factors)


def begin(prior: gaussian.Natural, clients: int) -> Posterior:
  """Begin with all factors 1, the posterior the prior: eqs 2.18, 2.19.

  Args:
    prior: p.
    clients: M, at least 1.
  """
  ones = jax.tree.map(lambda a: jnp.zeros((clients, *a.shape), a.dtype), prior)
  return Posterior(prior, ones)


def new_factor(
    local: Any, cavity_: Any, old: Any, damping: float | jax.Array
) -> Any:
  """Return a client's factor after it has found its local posterior.

  Args:
    local: the local posterior, the maximum of eq. 2.20 or near it.
    cavity_: what it was found with.
    old: the factor before, as natural parameters.
    damping: the share of the way that is taken; 1 for eq. 2.21.

  Returns:
    t_old^(1 - damping) t_new^damping. Where the local posterior is less certain
    than the cavity (which no likelihood of these models makes it, but noise and
    unfinished optimisation do) t_new would have a negative precision: it is
    projected to precision 0 there, the local mean kept. Factors so stay valid,
    and with them every cavity and posterior proper. A local posterior that is
    not finite changes nothing.
  """
  new = gaussian.quotient(local.above(cavity_), cavity_)
  moved = gaussian.between(old, new, damping)
  finite = jax.tree.reduce(
      jnp.logical_and, jax.tree.map(lambda a: jnp.isfinite(a).all(), moved)
  )
  return jax.tree.map(lambda a, b: jnp.where(finite, a, b), moved, old)


def where(answered: jax.Array, new: Any, old: Any) -> Any:
  """Return new arrays for clients that answered, and old ones for others.

  Args:
    answered: bool[M].
    new: a tree of arrays whose first axis has length M.
    old: a tree like it.
  """

  def choose(a: jax.Array, b: jax.Array) -> jax.Array:
    return jnp.where(answered.reshape(-1, *[1] * (jnp.ndim(a) - 1)), a, b)

  return jax.tree.map(choose, new, old)


def replace_one(
    posterior: Posterior, client: jax.Array | int, factor: Any
) -> Posterior:
  """Return the posterior with another factor of one client: eq. 2.21."""
  factors = jax.tree.map(
      lambda all_, new: all_.at[client].set(new), posterior.factors, factor
  )
  return posterior._replace(factors=factors)


def without(posterior: Posterior, client: int) -> Posterior:
  """Return the posterior after a client withdraws: its factor is 1."""
  nothing = jax.tree.map(jnp.zeros_like, posterior.prior)
  return replace_one(posterior, client, nothing)
