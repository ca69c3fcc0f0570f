"""Private visits: the same step as everywhere, for many clients at once."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from episodic_dp import errors
from episodic_dp import plan
from episodic_dp import private
from episodic_dp.pvi import federation as federation_lib
from episodic_dp.pvi import gaussian
from episodic_dp.pvi import likelihoods
from episodic_dp.pvi import servers
from tests import plans
from tests.pvi import problems
from tests.pvi import tiny_run

STEPS, DAMPING = 3, 0.5
KEY = private.secret_key(b"12345678")


@pytest.fixture(scope="module")
def federation():
  return federation_lib.Federation(
      tiny_run.spec(1, local_steps=STEPS, damping=DAMPING)
  )


@pytest.fixture(scope="module")
def begun(federation):
  posterior = servers.begin(tiny_run.learner().prior, federation.clients)
  return posterior, federation.begin(KEY)


@pytest.fixture(scope="module")
def after(federation, begun):
  """One round in which all but client 1 answer."""
  return federation.visit(*begun, [0, 2, 3], _sent(begun))


def _sent(begun):
  return servers.everyone(begun[0].natural, begun[0].clients)


def _place(federation, client):
  for i, group in enumerate(federation.groups):
    if client in group.members:
      return i, group.members.index(client)
  raise AssertionError(client)


@pytest.mark.slow  # Compiles the steps of two clients besides.
def test_a_visit_takes_the_steps_of_the_private_step(federation, begun, after):
  """Compare with `make_meta_step` for this client's data, release and key."""
  members = tiny_run.members()
  for client in (0, 3):
    release = tiny_run.releases(members)[client]
    optimizer = likelihoods.with_divergence(
        tiny_run.OPTIMIZER, len(members[client].labels)
    )
    step = private.make_meta_step(
        tiny_run.learner(), optimizer, members[client], release,
        compute=private.Compute(mesh=None, microbatch_size=16),
    )
    group, place = _place(federation, client)
    state = jax.tree.map(lambda a, p=place: a[p], begun[1][group])
    prior = tiny_run.learner().prior
    state = likelihoods.visiting(state, prior, prior)
    state = jax.tree.map(jnp.copy, state)  # A step donates what it is given.
    for _ in range(STEPS):
      state, _ = step(state)
    expected = servers.new_factor(
        likelihoods.to_gaussian(state.params), prior,
        begun[0].factor(client), DAMPING,
    )
    problems.check_close(
        after[0].factor(client), expected, rtol=2e-4, atol=1e-5
    )
    assert np.abs(expected.linear["weights"]).max() > 1e-3


@pytest.mark.slow
def test_clients_draw_noise_and_batches_of_their_own(after):
  """Clients 2 and 3 hold the same examples and have the same release."""
  naturals = [after[0].factor(m) for m in (2, 3)]
  assert np.abs(problems.flat(gaussian.quotient(*naturals))).max() > 1e-3


@pytest.mark.slow
def test_who_does_not_answer_keeps_its_state(federation, begun, after):
  group, place = _place(federation, 1)
  before, now = begun[1][group], after[1][group]
  assert int(now.step[place]) == 0
  problems.check_close(
      jax.tree.map(lambda a: a[place], (now.params, now.opt_state)),
      jax.tree.map(lambda a: a[place], (before.params, before.opt_state)),
  )
  problems.check_close(after[0].factor(1), begun[0].factor(1))
  other, place = _place(federation, 0)
  assert int(after[1][other].step[place]) == STEPS


def test_the_divergence_is_outside_the_clip():
  """A client whose examples may move nothing still goes to its cavity."""
  prior = tiny_run.learner().prior
  optimizer = likelihoods.with_divergence(optax.sgd(1.0), 10)
  cavity = gaussian.mean_field(
      jax.tree.map(lambda m: m + 3.0, prior.mean), prior.variance
  )
  params = likelihoods.to_params(prior)
  state = optimizer.init(params)._replace(cavity=cavity)
  nothing = jax.tree.map(jnp.zeros_like, params)
  updates, kept = optimizer.update(nothing, state, params)
  slope = jax.grad(
      lambda p: gaussian.divergence(likelihoods.to_gaussian(p), cavity)
  )(params)
  problems.check_close(updates, jax.tree.map(lambda s: -s / 10, slope))
  assert np.abs(slope["mean"]["weights"]).min() > 1
  problems.check_close(kept.cavity, cavity)


@pytest.mark.parametrize(
    "change, words",
    [
        (dict(stage=3), "use Poisson"),
        (dict(stage=plan.RandomAllocation(4)), "use Poisson"),
        (plans.QUANTILE, "clipping='fixed'"),
    ],
)
def test_what_has_no_proof_is_refused(change, words):
  change = {"clip_norm": 1.0} | change
  sampling = plans.sampling(change.pop("stage", 0.5))
  made = [
      plans.release(m.hierarchy, sampling, "example", **change)
      for m in tiny_run.members()
  ]
  with pytest.raises(plan.UnsoundPlanError, match=words):
    federation_lib.Federation(tiny_run.spec(1, releases=tuple(made)))


def test_a_row_of_two_clients_is_refused():
  inputs, labels = problems.classification(6)
  with pytest.raises(errors.DataError, match="row 2 belongs to 2 clients"):
    federation_lib.make_clients(
        inputs, labels, {"a": np.asarray([0, 2]), "b": np.asarray([2, 3])}
    )
  with pytest.raises(errors.DataError, match="'b' has no examples"):
    federation_lib.make_clients(
        inputs, labels, {"a": np.asarray([0, 2]), "b": np.asarray([], int)}
    )


def test_the_expected_log_likelihood_is_that_of_samples():
  """The quadrature against a hundred thousand draws of the weights."""
  model = likelihoods.LogisticRegression(2)
  rng = np.random.default_rng(0)
  mean = {"offset": 0.2, "weights": np.asarray([1.0, -2.0])}
  variance = {"offset": 0.5, "weights": np.asarray([1.5, 0.3])}
  q = gaussian.mean_field(*jax.tree.map(jnp.asarray, (mean, variance)))
  inputs, labels = problems.classification(4)
  found = model.expected(q, jnp.asarray(inputs, jnp.float32), labels)
  drawn = 0.2 + 0.5**0.5 * rng.normal(size=(100_000, 1))
  weights = mean["weights"] + variance["weights"] ** 0.5 * rng.normal(
      size=(100_000, 2)
  )
  logits = drawn + weights @ inputs.T
  logs = -np.logaddexp(0, -(2 * labels - 1) * logits)
  np.testing.assert_allclose(found, logs.mean(0), atol=0.02)
  predicted = model.predict(q, jnp.asarray(inputs, jnp.float32))
  expected = (1 / (1 + np.exp(-logits))).mean(0)
  np.testing.assert_allclose(np.exp(predicted[:, 1]), expected, atol=0.005)
