"""Servers: the posterior, its factors, and the order in which clients answer.

Algorithm 2 of Sharma, "Differential Privacy & Approximate Bayesian Inference"
[S], after Bui et al., "Partitioned Variational Inference" (2018). The
approximate posterior is proportional to the prior times one factor for each
client,

  q(theta) = p(theta) prod_m t_m(theta)                                 (2.17)

A client's visit is any pure function

  visit(client, start, cavity) -> (client, local posterior)

of the client's own state (data and optimiser, a pytree), the posterior it
received and that posterior without its own factor. Servers differ in the
clients that answer in a turn, and in the posterior that they received
(`serve`).

| server | a turn | posterior that a client received |
| --- | --- | --- |
| synchronous | all clients | the posterior after the last turn |
| sequential | one client | the posterior after the last turn |
| asynchronous | one client | the posterior when it last answered |

Formal guarantees
-----------------
A round of `make_client_level_round` samples clients (Poisson, or all of them).
Each sampled client sends the change of its factor's natural parameters, clipped
to C. The server receives only the sum of these changes plus N(0, (z C)^2 I),
and adds it to the sums of all rounds. The posterior is a function of that total
and of the variance of its noise, which is public (`gaussian`, `denoised`).
`accounting` accounts for this at the level of the clients, given the same
`Release`. A client stores its own factor, which depends on its data and on the
rounds in which it was sampled; docs/pvi.md proves that this costs nothing more.

| edge case | contribution of a client |
| --- | --- |
| sampled, but does not answer | 0 |
| a change that is not finite | 0, and its factor stays |
| a change beyond C | scaled down; its factor moves by the sent change |
"""

from collections.abc import Callable
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from episodic_dp import plan as plan_lib
from episodic_dp import sampling
from episodic_dp.errors import UnsoundPlanError
from episodic_dp.private import clipping
from episodic_dp.private import keys
from episodic_dp.private import noise
from episodic_dp.pvi import gaussian

Visit = Callable[[Any, Any, Any], tuple[Any, Any]]


class Posterior(NamedTuple):
  """The state of a server, in natural parameters.

  Attributes:
    prior: p, a proper Gaussian.
    factors: t_m of all clients, with a first axis of length M.
  """

  prior: Any
  factors: Any

  @property
  def natural(self) -> Any:
    """Return q, the prior times all factors."""
    return jax.tree.map(lambda p, t: p + t.sum(0), self.prior, self.factors)

  @property
  def clients(self) -> int:
    """Return the number of clients, M."""
    return len(jax.tree.leaves(self.factors)[0])

  def factor(self, client: jax.Array | int) -> Any:
    """Return one client's factor."""
    return rows(self.factors, client)


def begin(prior: gaussian.Natural, clients: int) -> Posterior:
  """Start with all factors 1 and the prior as the posterior: eqs 2.18, 2.19.

  Args:
    prior: p.
    clients: M, at least 1.
  """
  nothing = jax.tree.map(jnp.zeros_like, prior)
  return Posterior(prior, everyone(nothing, clients))


def new_factor(
    local: Any, cavity: Any, old: Any, damping: float | jax.Array
) -> Any:
  """Return a client's factor after it has found its local posterior.

  Args:
    local: the local posterior, the maximum of eq. 2.20 or near it.
    cavity: the cavity of that maximum.
    old: the previous factor, as natural parameters.
    damping: the applied share of the change; 1 for eq. 2.21.

  Returns:
    t_old^(1 - damping) t_new^damping. Noise and incomplete optimisation can
    make the local posterior less certain than the cavity. Then t_new would have
    a negative precision; it is projected to precision 0 with the same local
    mean. So factors stay valid, and every cavity and posterior is proper. A
    local posterior that is not finite changes nothing.
  """
  new = gaussian.quotient(local.above(cavity), cavity)
  moved = jax.tree.map(lambda a, b: (1 - damping) * a + damping * b, old, new)
  finite = jax.tree.reduce(
      jnp.logical_and, jax.tree.map(lambda a: jnp.isfinite(a).all(), moved)
  )
  return jax.tree.map(functools.partial(jnp.where, finite), moved, old)


def without(posterior: Posterior, client: int) -> Posterior:
  """Return the posterior after a client withdraws: its factor becomes 1."""
  nothing = jax.tree.map(jnp.zeros_like, posterior.prior)
  return posterior._replace(factors=put(posterior.factors, client, nothing))


def answer(
    visit: Visit,
    posterior: Posterior,
    clients: Any,
    numbers: jax.Array,
    sent: Any,
    damping: float,
) -> tuple[Posterior, Any]:
  """Let some clients answer at once: eqs 2.20 and 2.21 for each.

  Args:
    visit: see the module's text.
    posterior: before the visits.
    clients: states of these k clients, with a first axis of length k.
    numbers: int32[k], their numbers.
    sent: the posterior that each of all clients last received, with a first
      axis of length M; a client's own factor has not changed since.
    damping: damping of every factor's change.

  Returns:
    The posterior with their new factors, and their states after the visit.
  """
  received, old = rows((sent, posterior.factors), numbers)
  cavities = gaussian.quotient(received, old)
  clients, locals_ = jax.vmap(visit)(clients, received, cavities)
  new = jax.vmap(new_factor, (0, 0, 0, None))(locals_, cavities, old, damping)
  factors = put(posterior.factors, numbers, new)
  return posterior._replace(factors=factors), clients


def serve(
    visit: Visit,
    posterior: Posterior,
    clients: Any,
    order: jax.Array,
    *,
    damping: float = 1.0,
    sent: Any = None,
) -> tuple[Posterior, Any, Any]:
  """Take one turn after another.

  Args:
    visit: see the module's text.
    posterior: before the turns.
    clients: states of all clients, with a first axis of length M.
    order: int32[turns, k], the different clients that answer in each turn:
      `arange(M)[None]` for a synchronous round, `arange(M)[:, None]` for a
      sequential one.
    damping: damping of every factor's change; about 1 / M is always safe.
    sent: the posterior that each client last received, with a first axis of
      clients, for an asynchronous server; None sends the present one to all.

  Returns:
    The posterior, the clients and the posterior that each last received.
  """

  def turn(carry: Any, numbers: jax.Array) -> tuple[Any, None]:
    posterior, clients, sent = carry
    received = sent
    if sent is None:
      received = everyone(posterior.natural, posterior.clients)
    posterior, moved = answer(
        visit, posterior, rows(clients, numbers), numbers, received, damping
    )
    if sent is not None:
      sent = put(sent, numbers, everyone(posterior.natural, len(numbers)))
    return (posterior, put(clients, numbers, moved), sent), None

  return jax.lax.scan(turn, (posterior, clients, sent), jnp.asarray(order))[0]


def everyone(natural: Any, clients: int) -> Any:
  """Return the same natural parameters for each client, with a first axis."""
  return jax.tree.map(
      lambda a: jnp.broadcast_to(a, (clients, *a.shape)), natural
  )


def rows(tree: gaussian.Tree, numbers: jax.Array | int) -> Any:
  """Return some clients' rows of arrays whose first axis is clients."""
  return jax.tree.map(lambda a: jnp.asarray(a)[numbers], tree)


def put(tree: gaussian.Tree, numbers: Any, new: gaussian.Tree) -> Any:
  """Return the arrays with the rows of some clients replaced."""
  return jax.tree.map(
      lambda a, b: jnp.asarray(a).at[numbers].set(b), tree, new
  )


# Client-level privacy ---------------------------------------------------------


class Released(NamedTuple):
  """Everything that rounds with client-level privacy release.

  Attributes:
    prior: p.
    total: the prior times all noised sums, natural parameters.
    variance: floating scalar, of the noise in each number of `total`.
  """

  prior: Any
  total: Any
  variance: jax.Array

  @property
  def natural(self) -> Any:
    """Return q, at least as certain as the prior."""
    return self.total.denoised(self.prior, self.variance)


class ClientLevelState(NamedTuple):
  """State that a run with client-level privacy carries from round to round.

  Attributes:
    released: the only part that is released.
    factors: t_m with a first axis of clients. Each is private and stored by its
      client; in a simulation, here.
    clients: the clients' other states, with a first axis; private.
    step: int32 scalar, rounds done.
  """

  released: Released
  factors: Any
  clients: Any
  step: jax.Array

  def __repr__(self) -> str:
    return f"ClientLevelState(step={self.step}, released={self.released})"


def check_release(
    release: plan_lib.Release, *, remembers: bool = False
) -> None:
  """Refuse releases that the proofs in `docs/pvi.md` do not cover.

  Args:
    release: release of a client's local steps, or of a round.
    remembers: whether each unit remembers its earlier messages, as the clients
      of client-level privacy do.

  Raises:
    UnsoundPlanError: names the rule and the nearest sound setting.
  """
  stage, mechanism = release.plan.stages[-1], release.mechanism
  if len(release.levels) > 1 or release.plan.episode is not None:
    raise UnsoundPlanError(
        f"private inference with the levels {release.levels}: the proof covers"
        " single units of one level, without episodes; give a hierarchy of"
        " clients only for client-level privacy, or of examples only for"
        " local privacy"
    )
  if not isinstance(stage, (plan_lib.Poisson, plan_lib.All)):
    raise UnsoundPlanError(
        f"private inference with {stage}: a visit may be cut off or be late,"
        " and clients remember earlier rounds, so the proof needs independent"
        " samples of units in every step; use Poisson(p) or All()"
    )
  if mechanism.clipping != "fixed":
    raise UnsoundPlanError(
        f"private inference with clipping={mechanism.clipping!r}: the proof"
        " covers constant clip norms only; use clipping='fixed'"
    )
  if remembers and mechanism.clip_by != "global":
    raise UnsoundPlanError(
        f"client-level privacy with clip_by={mechanism.clip_by!r}: a client"
        " remembers the part that was clipped, for which only global clipping"
        " is proved; use clip_by='global'"
    )


def make_client_level_round(
    visit: Visit,
    release: plan_lib.Release,
    *,
    damping: float = 1.0,
) -> Any:
  """Return the function of one round.

  Args:
    visit: see the module's text; it need not be private.
    release: sampling of the clients of a round, and clipping and noise of their
      changes.
    damping: damping of every factor's change, before it is clipped.

  Returns:
    (key, state, answers bool[M]) -> state: pure and jitted; the key is the
    run's secret key, the same in all rounds.

  Raises:
    UnsoundPlanError: see `check_release`.
  """
  check_release(release, remembers=True)
  mechanism = release.mechanism
  z, clip_norm = mechanism.noise_multiplier, mechanism.clip_norm
  noise_scale = z * clip_norm if z else 0.0  # C may be infinite without noise.

  def one(
      state: ClientLevelState, takes_part: Any, client: Any, factor: Any
  ) -> tuple[Any, Any]:
    released = state.released
    others = gaussian.quotient(released.total, factor)
    cavity = others.denoised(released.prior, released.variance)
    moved, local = visit(client, released.natural, cavity)
    new = new_factor(local, cavity, factor, damping)
    change = gaussian.quotient(new, factor)
    clipped = clipping.clip(change, clip_norm).gradient
    keep = functools.partial(jnp.where, takes_part)
    return (
        jax.tree.map(keep, moved, client),
        jax.tree.map(lambda a: keep(a, 0), clipped),
    )

  @jax.jit
  def round_(
      key: jax.Array, state: ClientLevelState, answers: jax.Array
  ) -> ClientLevelState:
    sampled, mask = sampling.sample(
        jax.random.fold_in(key, keys.SAMPLING),
        release.hierarchy, release.plan, state.step,
    )
    takes_part = answers & jnp.zeros_like(answers).at[sampled].max(mask)
    clients, changes = jax.vmap(functools.partial(one, state))(
        takes_part, state.clients, state.factors
    )
    noised = noise.add_noise(
        keys.step_key(key, keys.NOISE, state.step),
        clipping.sum_units(changes), noise_scale,
    )
    prior, total, variance = state.released
    # Not the posterior: a total that is changed after each round would keep the
    # bias of each change.
    total = gaussian.product(total, noised)
    return ClientLevelState(
        Released(prior, total, variance + noise_scale**2),
        gaussian.product(state.factors, changes),
        clients,
        state.step + 1,
    )

  return round_
