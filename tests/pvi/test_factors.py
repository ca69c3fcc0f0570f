"""The properties of partitioned variational inference, in float64.

Numbers in brackets are equations of Sharma, "Differential Privacy & Approximate
Bayesian Inference"; Theorem 2.2.3 is there too.
"""

import functools

import hypothesis
from hypothesis import strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from episodic_dp.pvi import factors
from episodic_dp.pvi import gaussian
from episodic_dp.pvi import likelihoods
from episodic_dp.pvi import servers
from tests.pvi import problems

pytestmark = pytest.mark.usefixtures("float64")
LINEAR = likelihoods.LinearRegression(3, noise=0.5)
LOGISTIC = likelihoods.LogisticRegression(2)
LIMITS = hypothesis.settings(
    max_examples=10,
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture],
)


def _close(a, b, **options):
  for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
    np.testing.assert_allclose(x, y, **options)


def _linear(clients, seed):
  inputs, labels = problems.regression(seed=seed)
  parts = problems.partition(len(labels), clients, np.random.default_rng(seed))
  exact = LINEAR.exact(
      likelihoods.Examples(inputs, labels, np.ones(len(labels)))
  )
  prior = LINEAR.prior(2.0)
  return (
      problems.padded(inputs, labels, parts, len(labels)),
      prior,
      gaussian.product(prior, exact),
  )


@functools.cache
def _passes():
  """Each server's pass over all clients, undamped and compiled."""

  def serve(begun, examples, order):
    return (
        servers.sequential(LINEAR.visit, begun, examples, order)[0].natural,
        servers.synchronous(LINEAR.visit, begun, examples)[0].natural,
        servers.asynchronous(LINEAR.visit, begun, examples, order)[0].natural,
    )

  return jax.jit(serve)


@LIMITS
@hypothesis.given(st.sampled_from([1, 2, 5]), st.integers(0, 1000))
def test_one_undamped_pass_is_exact_for_any_partition_and_order(clients, seed):
  examples, prior, exact = _linear(clients, seed)
  begun = factors.begin(prior, clients)
  order = np.random.default_rng(seed).permutation(clients)
  for found in _passes()(begun, examples, order):
    _close(found, exact, rtol=1e-9)


@LIMITS
@hypothesis.given(
    st.sampled_from(["synchronous", "sequential", "asynchronous"]),
    st.floats(0.05, 1.0),
    st.integers(0, 1000),
)
def test_the_posterior_is_prior_times_factors_always(server, damping, seed):
  clients = 4
  inputs, labels = problems.classification(seed=seed)
  rng = np.random.default_rng(seed)
  parts = problems.partition(len(labels), clients, rng)
  examples = problems.padded(inputs, labels, parts, len(labels))
  posterior = factors.begin(LOGISTIC.prior(1.0), clients)
  theta = {"offset": jnp.asarray(0.3), "weights": jnp.asarray([-1.0, 2.0])}
  order = rng.integers(0, clients, 5)
  found = _some_visits(server)(posterior, examples, order, damping)
  q = found.natural
  # 2.17, constants included, at any theta.
  expected = q.exponent(theta) - q.log_partition()
  np.testing.assert_allclose(factors.log_density(found, theta), expected)
  assert q.proper()
  assert all(
      (leaf >= -1e-12).all()
      for leaf in jax.tree.leaves(found.factors.natural.precision)
  )


@functools.cache
def _some_visits(server):
  """Visits that end far from a maximum, by some steps of descent."""
  visit = _visit(3)

  def serve(posterior, examples, order, damping):
    if server == "synchronous":
      answered = jnp.asarray([True, False, True, True])
      return servers.synchronous(
          visit, posterior, examples, damping=damping, answered=answered
      )[0]
    chosen = getattr(servers, server)
    return chosen(visit, posterior, examples, order, damping=damping)[0]

  return jax.jit(serve)


@functools.cache
def _visit(steps, rate=0.02):
  """Ascends the local free energy by its gradient in mean and log scale."""

  def visit(examples, start, cavity):
    def energy(params):
      q = gaussian.mean_field(
          params[0], jax.tree.map(lambda s: jnp.exp(2 * s), params[1])
      )
      gained = likelihoods.evidence(LOGISTIC, examples, q)
      return gained - gaussian.divergence(q, cavity)

    def step(params, _):
      slope = jax.grad(energy)(params)
      return jax.tree.map(lambda p, g: p + rate * g, params, slope), None

    params = start.mean, jax.tree.map(
        lambda p: -jnp.log(p) / 2, start.precision
    )
    params, _ = jax.lax.scan(step, params, length=steps)
    return examples, gaussian.mean_field(
        params[0], jax.tree.map(lambda s: jnp.exp(2 * s), params[1])
    )

  return visit


@pytest.fixture(scope="module")
def converged():
  """Logistic regression of three clients at a fixed point, and its data."""
  with jax.enable_x64(True):
    inputs, labels = problems.classification()
    rng = np.random.default_rng(0)
    examples = problems.padded(
        inputs, labels, problems.partition(len(labels), 3, rng)
    )
    posterior = factors.begin(LOGISTIC.prior(1.0), 3)

    @jax.jit
    def passes(posterior):
      order = jnp.tile(jnp.arange(3), 30)
      return servers.sequential(_visit(400), posterior, examples, order)[0]

    return passes(posterior), examples


def _evidences(examples):
  def one(m):
    own = jax.tree.map(lambda a: a[m], examples)
    return lambda q: likelihoods.evidence(LOGISTIC, own, q)

  return [one(m) for m in range(len(examples.weight))]


def _slope(energy, q):
  """Of a function of a mean-field Gaussian, in its own coordinates."""
  return jax.tree.leaves(jax.grad(energy)(q))


def test_local_free_energies_sum_to_the_global_one(converged):
  """2.27, where q is the product of prior and factors."""
  posterior, examples = converged
  q, evidences = posterior.natural, _evidences(examples)
  local = [
      factors.local_free_energy(evidence, q, q, posterior.factor(m))
      for m, evidence in enumerate(evidences)
  ]
  expected = factors.global_free_energy(evidences, q, posterior.prior)
  np.testing.assert_allclose(sum(local), expected, rtol=1e-12)
  assert float(expected) < 0  # A number, not 0 = 0.


def test_a_fixed_point_of_the_locals_is_one_of_the_global(converged):
  """2.28: the gradients of all local free energies vanish, and so F's."""
  posterior, examples = converged
  q, evidences = posterior.natural, _evidences(examples)
  for m, evidence in enumerate(evidences):
    def local(at, evidence=evidence, m=m):
      return factors.local_free_energy(evidence, at, q, posterior.factor(m))

    assert max(np.abs(g).max() for g in _slope(local, q)) < 1e-7

  def everything(at):
    return factors.global_free_energy(evidences, at, posterior.prior)

  assert max(np.abs(g).max() for g in _slope(everything, q)) < 1e-6
  # Not so at another place, such as the prior.
  assert max(np.abs(g).max() for g in _slope(everything, posterior.prior)) > 1


def test_optimising_the_locals_optimises_the_global(converged):
  """Theorem 2.2.3: no small move from the fixed point is better."""
  posterior, examples = converged
  q, evidences = posterior.natural, _evidences(examples)
  best = factors.global_free_energy(evidences, q, posterior.prior)
  rng = np.random.default_rng(3)
  for _ in range(20):
    moved = gaussian.mean_field(
        jax.tree.map(lambda m: m + 0.05 * rng.normal(size=m.shape), q.mean),
        jax.tree.map(
            lambda v: v * np.exp(0.05 * rng.normal(size=v.shape)), q.variance
        ),
    )
    assert factors.global_free_energy(evidences, moved, posterior.prior) < best


def test_the_local_free_energy_is_that_of_the_tilted_distribution():
  """2.22 to 2.25: what is above F_m is the divergence from the tilted one.

  For the conjugate model both are known: F_m(q) = ln Z_m - KL(q | tilted).
  """
  examples, prior, _ = _linear(3, 5)
  posterior, _ = servers.sequential(
      LINEAR.visit, factors.begin(prior, 3), examples, jnp.asarray([0, 1])
  )
  before, factor = posterior.natural, posterior.factor(1)
  own = jax.tree.map(lambda a: a[1], examples)
  tilted = gaussian.product(
      factors.cavity(before, factor), LINEAR.exact(own)
  )
  best = factors.local_free_energy(
      lambda q: likelihoods.evidence(LINEAR, own, q), tilted, before, factor
  )
  rng = np.random.default_rng(0)
  for _ in range(5):
    root = rng.normal(size=(3, 3))
    q = gaussian.full(rng.normal(size=3), root @ root.T + np.eye(3))
    found = factors.local_free_energy(
        lambda q: likelihoods.evidence(LINEAR, own, q), q, before, factor
    )
    np.testing.assert_allclose(
        best - found, gaussian.divergence(q, tilted), rtol=1e-9
    )


def test_who_does_not_answer_changes_nothing_and_a_client_can_withdraw():
  examples, prior, exact = _linear(3, 7)
  begun = factors.begin(prior, 3)
  absent, _ = servers.synchronous(
      LINEAR.visit, begun, examples, answered=jnp.asarray([True, True, False])
  )
  _close(absent.factor(2).natural, gaussian.one(prior))
  back, _ = servers.synchronous(LINEAR.visit, absent, examples)
  _close(back.natural, exact, rtol=1e-9)
  left = factors.without(back, 2)
  _close(left.natural, absent.natural, rtol=1e-9)


def test_a_visit_that_ends_in_nan_changes_nothing():
  prior = LOGISTIC.prior(1.0)
  broken = jax.tree.map(lambda a: a * np.nan, prior)
  old = jax.tree.map(lambda a: a + 0.5, prior)
  _close(factors.new_factor(broken, prior, old, 0.5), old)
  moved = factors.new_factor(gaussian.product(prior, prior), prior, old, 0.5)
  assert not np.allclose(moved.precision["weights"], old.precision["weights"])


def test_mean_field_passes_converge_to_the_mean_of_the_exact_posterior():
  """Of a Gaussian target the best mean-field posterior has its mean."""
  model = likelihoods.LinearRegression(3, noise=0.5, full=False)
  examples, _, exact = _linear(3, 11)
  posterior = factors.begin(model.prior(2.0), 3)
  order = jnp.tile(jnp.arange(3), 60)
  found, _ = servers.sequential(model.visit, posterior, examples, order)
  q = found.natural
  np.testing.assert_allclose(q.mean, exact.mean, rtol=1e-6)
  np.testing.assert_allclose(q.precision, jnp.diag(exact.precision), rtol=1e-6)


def test_asynchronous_clients_work_on_what_they_were_sent():
  examples, prior, _ = _linear(3, 13)
  model = likelihoods.LinearRegression(3, noise=0.5, full=False)
  begun = factors.begin(model.prior(2.0), 3)
  order = jnp.asarray([0, 1])
  late, _, sent = servers.asynchronous(model.visit, begun, examples, order)
  # Client 1 has not seen what client 0 answered.
  alone, _ = servers.sequential(
      model.visit, begun, examples, jnp.asarray([1])
  )
  _close(late.factor(1).natural, alone.factor(1).natural)
  turn, _ = servers.sequential(model.visit, begun, examples, order)
  assert not np.allclose(
      late.factor(1).natural.linear, turn.factor(1).natural.linear
  )
  _close(jax.tree.map(lambda a: a[1], sent), late.natural)
  _close(jax.tree.map(lambda a: a[2], sent), begun.natural)
