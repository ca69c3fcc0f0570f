"""Client-level privacy: what the server sees of one round is a noised sum.

Formal guarantees
-----------------
A round draws clients (Poisson, or all of them); each drawn client sends the
change of its factor's natural parameters, clipped to C; the server sees the sum
of these changes plus N(0, (z C)^2 I) and nothing else, which is what
`accounting` accounts for the same `Release`, for the level of the clients. A
client keeps its own factor, which depends on its data and on the rounds in
which it was drawn; docs/pvi.md shows that this costs nothing more.

| edge case | what a client adds |
| --- | --- |
| drawn, and does not answer | 0 |
| a change that is not finite | 0, and its factor stays |
| a change beyond C | scaled down; its factor moves by what was sent |
"""

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
from episodic_dp.pvi import servers

LEVEL = "client"


class State(NamedTuple):
  """State that a run carries from round to round.

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

  @property
  def noise_factor(self) -> Any:
    """Factor of noise and projection: q / (p prod_m t_m); private."""
    return jax.tree.map(
        lambda q, p, t: q - p - t.sum(0),
        self.posterior, self.prior, self.factors,
    )


def begin(prior: gaussian.Natural, clients: Any, count: int) -> State:
  """Return the state in which all factors are 1.

  Args:
    prior: p.
    clients: what each keeps, along a first axis of length `count`.
    count: M.
  """
  posterior = factors.begin(prior, count)
  return State(
      prior, prior, posterior.factors.natural, clients,
      jnp.zeros((), jnp.int32),
  )


def check_release(release: plan_lib.Release) -> None:
  """Refuse what the proof of `docs/pvi.md` does not cover.

  Raises:
    UnsoundPlanError: names the rule and the nearest sound setting.
  """
  stage, mechanism = release.plan.stages[0], release.mechanism
  if len(release.levels) > 1 or release.plan.episode is not None:
    raise plan_lib.UnsoundPlanError(
        f"client-level privacy with the levels {release.levels}: a client sends"
        " one change of its factor, in which examples have no bound of their"
        " own; give a hierarchy of clients alone, or use local privacy"
    )
  if not isinstance(stage, (plan_lib.Poisson, plan_lib.All)):
    raise plan_lib.UnsoundPlanError(
        f"client-level privacy with {stage}: what a client sends depends on the"
        " rounds in which it was drawn before, which is proved to cost nothing"
        " where clients are drawn independently in every round; use Poisson(p)"
        " or All()"
    )
  if mechanism.clipping != "fixed" or mechanism.clip_by != "global":
    raise plan_lib.UnsoundPlanError(
        f"client-level privacy with clipping={mechanism.clipping!r} by"
        f" {mechanism.clip_by!r}: a client remembers what was clipped off, with"
        " which no other clipping was proved; use clipping='fixed' and"
        " clip_by='global'"
    )


def make_round(
    visit: servers.Visit,
    release: plan_lib.Release,
    *,
    damping: float = 1.0,
) -> Any:
  """Return the function of one round.

  Args:
    visit: as `servers` has it, not private by itself.
    release: which clients a round draws, and how their changes are clipped and
      noised.
    damping: of every factor's change, before it is clipped.

  Returns:
    (key, state, answers bool[M]) -> state: pure and jitted; the key is the
    run's secret key, the same in all rounds.

  Raises:
    UnsoundPlanError: see `check_release`.
  """
  check_release(release)
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
  def round_(key: jax.Array, state: State, answers: jax.Array) -> State:
    drawn, mask = sampling.sample(
        jax.random.fold_in(key, keys.SAMPLING),
        release.hierarchy, release.plan, state.step,
    )
    takes_part = answers & jnp.zeros(count, bool).at[drawn].max(mask)

    def chosen(new: jax.Array, old: jax.Array) -> jax.Array:
      shape = (-1, *[1] * (jnp.ndim(new) - 1))
      return jnp.where(takes_part.reshape(shape), new, old)

    moved, changes = jax.vmap(one, (None, None, 0, 0))(
        state.posterior, state.prior, state.clients, state.factors
    )
    changes = jax.tree.map(lambda a: chosen(a, jnp.zeros_like(a)), changes)
    noised = noise.add_noise(
        keys.step_key(key, keys.NOISE, state.step),
        clipping.sum_units(changes),
        mechanism.noise_multiplier * mechanism.clip_norm
        if mechanism.noise_multiplier
        else 0.0,
    )
    posterior = gaussian.product(state.posterior, _symmetric(noised))
    return State(
        state.prior,
        # Noise may take certainty away, but not that of the prior.
        _like(posterior.above(state.prior), state.posterior),
        _like(gaussian.product(state.factors, changes), state.factors),
        jax.tree.map(chosen, moved, state.clients),
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
