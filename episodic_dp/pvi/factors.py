"""Partitioned variational inference: cavities, updates and free energies.

Algorithm 2 of Sharma, "Differential Privacy & Approximate Bayesian Inference"
[S], after Bui et al., "Partitioned Variational Inference" (2018). The
approximate posterior is the prior times one factor for each client,

  q(theta) = p(theta) prod_m t_m(theta)                                 (2.17)

and stays that after every update here, its constant included: what is kept is
p and the factors, and q is always made of them.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from episodic_dp.pvi import gaussian

# A Gaussian -> the expected log likelihood of one client's data, a scalar.
Evidence = Callable[[Any], jax.Array]


class Factor(NamedTuple):
  """One client's approximate likelihood, or many along a first axis.

  Attributes:
    natural: its natural parameters.
    log_scale: the logarithm of its constant.
  """

  natural: Any
  log_scale: jax.Array


class Posterior(NamedTuple):
  """State of a server.

  Attributes:
    prior: p, a proper Gaussian.
    factors: t_m of all clients, along a first axis of length M.
  """

  prior: Any
  factors: Factor

  @property
  def natural(self) -> Any:
    """q: the prior times all factors."""
    return jax.tree.map(
        lambda p, t: p + t.sum(0), self.prior, self.factors.natural
    )

  @property
  def clients(self) -> int:
    """Number of clients, M."""
    return self.factors.log_scale.shape[0]

  def factor(self, client: jax.Array | int) -> Factor:
    """Return one client's factor."""
    return jax.tree.map(lambda a: a[client], self.factors)


def begin(prior: gaussian.Natural, clients: int) -> Posterior:
  """Begin with all factors 1, the posterior the prior: eqs 2.18, 2.19.

  Args:
    prior: p.
    clients: M, at least 1.
  """

  def ones(a: jax.Array) -> jax.Array:
    return jnp.zeros((clients, *a.shape), a.dtype)

  first = jax.tree.leaves(prior)[0]
  return Posterior(
      prior, Factor(jax.tree.map(ones, prior), ones(first.ravel()[0]))
  )


def cavity(posterior: gaussian.Natural, factor: Factor) -> Any:
  """q / t_m: the posterior without one client."""
  return gaussian.quotient(posterior, factor.natural)


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


def replace(
    posterior: Posterior, naturals: Any, answered: jax.Array
) -> Posterior:
  """Return the posterior with new factors for some clients.

  Args:
    posterior: before.
    naturals: of all M clients along a first axis.
    answered: bool[M], whose are taken; the others stay.

  Returns:
    It. The factors' constants share out evenly what keeps eq. 2.17 exact.
  """
  before = posterior.natural

  def choose(new: jax.Array, old: jax.Array) -> jax.Array:
    shape = (-1, *[1] * (new.ndim - 1))
    return jnp.where(answered.reshape(shape), new, old)

  old = posterior.factors
  chosen = jax.tree.map(choose, naturals, old.natural)
  moved = Posterior(posterior.prior, Factor(chosen, old.log_scale))
  change = before.log_partition() - moved.natural.log_partition()
  share = answered / jnp.maximum(answered.sum(), 1)
  return moved._replace(
      factors=Factor(chosen, old.log_scale + share * change)
  )


def replace_one(
    posterior: Posterior, client: jax.Array | int, natural: Any
) -> Posterior:
  """Return the posterior with another factor of one client: eq. 2.21."""
  naturals = jax.tree.map(
      lambda all_, new: all_.at[client].set(new),
      posterior.factors.natural,
      natural,
  )
  answered = jnp.arange(posterior.clients) == client
  return replace(posterior, naturals, answered)


def without(posterior: Posterior, client: int) -> Posterior:
  """Return the posterior after a client withdraws: its factor is 1."""
  nothing = gaussian.one(posterior.factor(client).natural)
  return replace_one(posterior, client, nothing)


def log_density(posterior: Posterior, theta: Any) -> jax.Array:
  """ln p(theta) + the sum of ln t_m(theta), constants included."""
  prior, factors = posterior.prior, posterior.factors
  parts = jax.vmap(lambda t: t.exponent(theta))(factors.natural)
  return (
      prior.exponent(theta) - prior.log_partition()
      + jnp.sum(parts + factors.log_scale)
  )


def local_free_energy(
    evidence: Evidence, q: Any, before: Any, factor: Factor
) -> jax.Array:
  """Compute F_m(q), eq. 2.22.

  Args:
    evidence: of the client's data.
    q: where it is evaluated.
    before: the normalised posterior before the update.
    factor: the client's, before the update.
  """
  tilted = evidence(q) - factor.natural.expected_exponent(q) - factor.log_scale
  return tilted - gaussian.divergence(q, before)


def global_free_energy(
    evidences: list[Evidence], q: Any, prior: Any
) -> jax.Array:
  """Compute F(q), eq. 2.26, of the data of all clients."""
  total = jnp.sum(jnp.stack([evidence(q) for evidence in evidences]))
  return total - gaussian.divergence(q, prior)
