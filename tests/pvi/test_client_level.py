"""Client-level privacy: the sum that a server sees, and what is refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from episodic_dp import plan
from episodic_dp import private
from episodic_dp.pvi import gaussian
from episodic_dp.pvi import likelihoods
from episodic_dp.pvi import servers
from tests import plans
from tests.pvi import problems

CLIENTS = 5
MODEL = likelihoods.LinearRegression(3, noise=0.5)
KEY = private.secret_key(b"abcdefgh")


def _release(stage=None, clip_norm=float("inf"), noise=0.0, **changes):
  return plan.Release(
      plans.tree("client", CLIENTS),
      plans.sampling(stage or plan.All()),
      plan.Mechanism(
          clip_unit="client", clip_norm=clip_norm, noise_multiplier=noise,
          **changes,
      ),
  )


@pytest.fixture(scope="module")
def examples():
  inputs, labels = problems.regression(40)
  parts = problems.partition(40, CLIENTS, np.random.default_rng(0))
  padded = problems.padded(
      inputs.astype(np.float32), labels.astype(np.float32), parts
  )
  return jax.tree.map(jnp.asarray, padded)


def _begin(prior, examples):
  """Return the state before any round: all factors are 1."""
  return servers.ClientLevelState(
      servers.Released(prior, prior, jnp.zeros(())),
      servers.begin(prior, CLIENTS).factors, examples, jnp.zeros((), jnp.int32),
  )


@pytest.fixture(scope="module")
def begun(examples):
  return _begin(MODEL.prior(2.0), examples)


EVERYONE = jnp.ones(CLIENTS, bool)


def test_without_clip_and_noise_it_is_the_synchronous_server(begun, examples):
  found = servers.make_client_level_round(MODEL.visit, _release(), damping=0.5)(
      KEY, begun, EVERYONE
  )
  expected, *_ = servers.serve(
      MODEL.visit, servers.begin(begun.released.prior, CLIENTS), examples,
      jnp.arange(CLIENTS)[None], damping=0.5,
  )
  q = found.released.natural
  problems.check_close(q, expected.natural, rtol=1e-5, atol=1e-5)


def test_the_sum_moves_by_no_more_than_the_clip_norm(begun):
  """A client more or less, whatever it holds, from any state."""
  step = servers.make_client_level_round(MODEL.visit, _release(clip_norm=0.7))
  state = begun
  for _ in range(3):
    state = step(KEY, state, EVERYONE)
  after = problems.flat(step(KEY, state, EVERYONE).released.natural)
  moves = []
  for client in range(CLIENTS):
    others = EVERYONE.at[client].set(False)
    without = problems.flat(step(KEY, state, others).released.natural)
    moves.append(np.linalg.norm(after - without))
    poisoned = state._replace(
        clients=jax.tree.map(
            lambda a, c=client: a.at[c].multiply(jnp.nan), state.clients
        )
    )
    found = step(KEY, poisoned, EVERYONE)
    np.testing.assert_allclose(
        problems.flat(found.released.natural), without, atol=1e-4
    )
    problems.check_close(*(
        jax.tree.map(lambda a, c=client: a[c], tree)
        for tree in (found.factors, state.factors)
    ))
  assert max(moves) <= 0.7 * (1 + 1e-4)
  assert max(moves) > 0.5  # It is not always nothing.


def test_noise_takes_no_certainty_of_the_prior(begun):
  step = servers.make_client_level_round(
      MODEL.visit, _release(0.6, 1.0, 0.3)
  )
  state = begun
  for _ in range(4):
    state = step(KEY, state, EVERYONE)
    gap = state.released.natural.precision - state.released.prior.precision
    assert np.linalg.eigvalsh(gap).min() > -1e-4
  made = servers.Posterior(state.released.prior, state.factors).natural
  noise = gaussian.quotient(state.released.total, made)
  assert np.abs(problems.flat(noise)).max() > 0.1


@pytest.mark.few(1)
@pytest.mark.parametrize("z", [3.0, 10.0, 30.0])
def test_means_are_sane_and_as_certain_as_they_say(z):
  """Precisions become small or negative in these rounds by noise alone."""
  rng = np.random.default_rng(0)
  x = rng.normal(size=(CLIENTS, 8, 1)).astype(np.float32)
  y = (0.9 * x[..., 0] + 0.5 * rng.normal(size=(CLIENTS, 8))).astype(np.float32)
  examples = likelihoods.Examples(x, y, np.ones((CLIENTS, 8), np.float32))
  model = likelihoods.LinearRegression(1, noise=0.5)
  begun = _begin(model.prior(1.0), examples)
  step = servers.make_client_level_round(
      model.visit, _release(plan.All(), 2.0, z)
  )

  def run(key):
    return jax.lax.scan(
        lambda state, _: (step(key, state, EVERYONE), None), begun, length=20
    )[0]

  keys = jax.vmap(lambda n: jax.random.fold_in(KEY, n))(jnp.arange(300))
  state = jax.jit(jax.vmap(run))(keys)
  q = jax.vmap(lambda s: s.released.natural)(state)
  low = np.mean(state.released.total.precision[:, 0, 0] < 10)
  assert low > 0.1 or z == 3.0  # Of 90 without noise.
  mean, variance = q.linear / q.precision[:, 0], 1 / q.precision[:, 0]
  assert np.abs(mean).max() < 5
  # The prior's mean, 0, is as near as all of its deviation.
  assert np.mean((mean - 0.9) ** 2) < 0.9**2 * 1.2
  assert np.mean(np.abs(mean - 0.9) < 1.645 * np.sqrt(variance)) > 0.75


def test_the_noise_has_the_spread_that_is_accounted_for(begun):
  clip_norm, z = 2.0, 3.0
  nobody = jnp.zeros(CLIENTS, bool)
  step = servers.make_client_level_round(
      MODEL.visit, _release(None, clip_norm, z)
  )
  drawn = jax.vmap(
      lambda n: step(jax.random.fold_in(KEY, n), begun, nobody)
  )(jnp.arange(2000))
  for found, start in zip(drawn.released.total, begun.released.total):
    spread = np.std(found - start[None], axis=0)
    np.testing.assert_allclose(spread, clip_norm * z, rtol=0.1)
  np.testing.assert_allclose(drawn.released.variance, (clip_norm * z) ** 2)


def test_rounds_draw_clients_at_their_rate(begun):
  step = servers.make_client_level_round(
      MODEL.visit, _release(0.3, 1.0, 0.0)
  )

  @jax.jit
  def drawn(n):
    state = step(jax.random.fold_in(KEY, n), begun, EVERYONE)
    return jnp.any(state.factors.linear != 0, axis=1)

  took = np.stack([drawn(n) for n in range(600)])
  np.testing.assert_allclose(took.mean(0), 0.3, atol=0.07)
  # Independently of one another: the count is binomial.
  assert abs(took.sum(1).var() - CLIENTS * 0.3 * 0.7) < 0.25


@pytest.mark.parametrize(
    "release, words",
    [
        (_release(2, 1.0, 1.0), "use Poisson"),
        (_release(plan.RandomAllocation(3), 1.0, 1.0), "use Poisson"),
        (_release(None, 1.0, 1.0, clip_by="layer"), "clip_by='global'"),
        (_release(None, 1.0, 1.0, **plans.QUANTILE), "clipping='fixed'"),
        (
            plans.release(
                plans.tree("client example", 5, 4),
                plans.sampling(plan.All(), 0.5), "client", clip_norm=1.0,
            ),
            "clients only",
        ),
    ],
)
def test_what_has_no_proof_is_refused(release, words):
  with pytest.raises(plan.UnsoundPlanError, match=words):
    servers.make_client_level_round(MODEL.visit, release)
