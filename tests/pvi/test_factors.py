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

  def each(begun, examples, order):
    sent = servers.everyone(begun.natural, begun.clients)
    runs = ((order[:, None], None), (order[None], None), (order[:, None], sent))
    return [
        servers.serve(LINEAR.visit, begun, examples, turns, sent=sent)[0]
        for turns, sent in runs
    ]

  return jax.jit(each)


@LIMITS
@hypothesis.given(st.sampled_from([1, 4]), st.integers(0, 1000))
def test_one_undamped_pass_is_exact_for_any_partition_and_order(clients, seed):
  examples, prior, exact = _linear(clients, seed)
  begun = servers.begin(prior, clients)
  order = np.random.default_rng(seed).permutation(clients)
  for found in _passes()(begun, examples, order):
    problems.check_close(found.natural, exact, rtol=1e-9)


@LIMITS
@hypothesis.given(
    st.booleans(),
    st.booleans(),
    st.floats(0.05, 1.0),
    st.integers(0, 1000),
)
def test_factors_stay_valid_always(together, stale, damping, seed):
  clients = 4
  inputs, labels = problems.classification(seed=seed)
  rng = np.random.default_rng(seed)
  parts = problems.partition(len(labels), clients, rng)
  examples = problems.padded(inputs, labels, parts, len(labels))
  posterior = servers.begin(LOGISTIC.prior(1.0), clients)
  order = rng.permutation(clients)[:3]
  order = order[None] if together else order[:, None]
  found = _some_visits(stale)(posterior, examples, order, damping)
  assert problems.least(found.natural.precision) > 0
  assert problems.least(found.factors.precision) >= -1e-12
  assert np.abs(problems.flat(found.factors)).max() > 0


@functools.cache
def _some_visits(stale):
  """Visits that end far from a maximum, by some steps of descent."""

  def some(posterior, examples, order, damping):
    everyone = servers.everyone(posterior.natural, posterior.clients)
    return servers.serve(
        _visit(3), posterior, examples, order, damping=damping,
        sent=everyone if stale else None,
    )[0]

  return jax.jit(some)


@functools.cache
def _visit(steps, rate=0.02):
  """Ascends the local free energy by its gradient in mean and log scale."""

  def visit(examples, start, cavity):
    def energy(params):
      q = likelihoods.to_gaussian(params)
      return _evidence(examples, q) - gaussian.divergence(q, cavity)

    def step(params, _):
      slope = jax.grad(energy)(params)
      return jax.tree.map(lambda p, g: p + rate * g, params, slope), None

    params = likelihoods.to_params(start)
    params, _ = jax.lax.scan(step, params, length=steps)
    return examples, likelihoods.to_gaussian(params)

  return visit


def _evidence(examples, q):
  """The expected log likelihood of all examples."""
  each = LOGISTIC.expected(q, examples.inputs, examples.labels)
  return each @ examples.weight


@pytest.mark.slow
def test_optimising_the_locals_optimises_the_global():
  """2.28 and Theorem 2.2.3: at a fixed point of the visits F has no slope."""
  inputs, labels = problems.classification()
  rng = np.random.default_rng(0)
  examples = problems.padded(
      inputs, labels, problems.partition(len(labels), 3, rng)
  )
  begun = servers.begin(LOGISTIC.prior(1.0), 3)
  order = jnp.tile(jnp.arange(3), 15)[:, None]
  passes = jax.jit(functools.partial(servers.serve, _visit(200, rate=0.05)))
  q = passes(begun, examples, order)[0].natural

  def energy(at):  # 2.26
    parts = jax.vmap(_evidence, (0, None))(examples, at)
    return parts.sum() - gaussian.divergence(at, begun.prior)

  slope = jax.grad(energy)
  assert np.abs(problems.flat(slope(q))).max() < 1e-6
  assert np.abs(problems.flat(slope(begun.prior))).max() > 1
  for _ in range(20):  # No small move is better.
    moved = gaussian.mean_field(
        jax.tree.map(lambda m: m + 0.05 * rng.normal(size=m.shape), q.mean),
        jax.tree.map(
            lambda v: v * np.exp(0.05 * rng.normal(size=v.shape)), q.variance
        ),
    )
    assert energy(moved) < energy(q)


def test_who_does_not_answer_changes_nothing_and_a_client_can_withdraw():
  examples, prior, exact = _linear(3, 7)
  begun = servers.begin(prior, 3)
  absent, *_ = servers.serve(
      LINEAR.visit, begun, examples, jnp.asarray([[0, 1]])
  )
  problems.check_close(absent.factor(2), begun.factor(2))
  back, *_ = servers.serve(
      LINEAR.visit, absent, examples, jnp.asarray([[0, 1, 2]])
  )
  problems.check_close(back.natural, exact, rtol=1e-9)
  left = servers.without(back, 2)
  problems.check_close(left.natural, absent.natural, rtol=1e-9)


def test_a_visit_that_ends_in_nan_changes_nothing():
  prior = LOGISTIC.prior(1.0)
  broken = jax.tree.map(lambda a: a * np.nan, prior)
  old = jax.tree.map(lambda a: a + 0.5, prior)
  problems.check_close(servers.new_factor(broken, prior, old, 0.5), old)
  moved = servers.new_factor(gaussian.product(prior, prior), prior, old, 0.5)
  assert not np.allclose(moved.precision["weights"], old.precision["weights"])


@pytest.mark.slow
def test_asynchronous_clients_work_on_what_they_were_sent():
  inputs, labels = problems.classification()
  parts = problems.partition(len(labels), 3, np.random.default_rng(0))
  examples = problems.padded(inputs, labels, parts)
  begun = servers.begin(LOGISTIC.prior(1.0), 3)
  order = jnp.asarray([[0], [1]])
  serve = functools.partial(servers.serve, _visit(3), begun, examples)
  late, _, sent = serve(order, sent=servers.everyone(begun.natural, 3))
  # Client 1 has not seen what client 0 answered.
  alone, *_ = serve(order[1:])
  problems.check_close(late.factor(1), alone.factor(1))
  turn, *_ = serve(order)
  assert not np.allclose(
      problems.flat(late.factor(1)), problems.flat(turn.factor(1))
  )
  problems.check_close(jax.tree.map(lambda a: a[1], sent), late.natural)
  problems.check_close(jax.tree.map(lambda a: a[2], sent), begun.natural)
