"""Expected log likelihoods of examples.

Each model gives the expectation under a Gaussian posterior, not a sample of it
where that can be had: a linear output of independent weights is itself Gaussian
(the local reparameterisation of Kingma, Salimans and Welling, 2015), so that of
a logistic model one integral over one number is left, done by Gauss-Hermite
quadrature.

The local free energy of a client (Sharma, eq. 2.22) has two parts: the expected
log likelihood of the client's examples, a sum over them, and the divergence
from the cavity, which depends on no example. The first is the loss of
`VariationalLearner`, whose gradients the private step clips one by one and sums
with noise. `with_divergence` adds the second after the noise, in an Optax
transformation: nothing of it is clipped, and it costs nothing.
"""

import dataclasses
import functools
import math
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
import optax

from episodic_dp import learners
from episodic_dp import models
from episodic_dp.learners import descent
from episodic_dp.pvi import gaussian

# Of a posterior, to be optimised: {"log_scale": tree, "mean": tree}.
Params = Any
_NODES = 20  # Of the quadrature: more change no digit that is reported.


class Examples(NamedTuple):
  """Some examples of one client.

  Attributes:
    inputs: floating [n, features].
    labels: int32[n], classes, or floating [n] for regression.
    weight: floating [n], 1 for an example and 0 for padding.
  """

  inputs: jax.Array
  labels: jax.Array
  weight: jax.Array


class Likelihood(Protocol):
  """A model of labels given inputs and parameters."""

  def prior(self, variance: float) -> gaussian.Natural:
    """Return independent centred parameters of one variance."""

  def expected(
      self, q: Any, inputs: jax.Array, labels: jax.Array, key: jax.Array
  ) -> jax.Array:
    """Compute E_q[ln p(label | input, theta)] of each example, [n].

    Args:
      q: the posterior.
      inputs: [n, features].
      labels: [n].
      key: a public one; models without sampling do not read it.
    """

  def predict(self, q: Any, inputs: jax.Array) -> jax.Array:
    """Return the log of the predicted probability of each class, [n, k]."""


@dataclasses.dataclass(frozen=True)
class LinearRegression:
  """Bayesian linear regression with known noise: conjugate, in closed form.

  Attributes:
    features: of an input; add a constant one for an offset.
    noise: standard deviation of a label around its mean.
  """

  features: int
  noise: float = 1.0

  def prior(self, variance: float) -> gaussian.Full:
    """Return independent centred parameters of one variance."""
    return gaussian.Full(
        jnp.zeros(self.features), jnp.eye(self.features) / variance
    )

  def exact(self, examples: Examples) -> gaussian.Full:
    """Return the likelihood of some examples, itself a Gaussian factor."""
    weighted = examples.inputs * examples.weight[:, None] / self.noise**2
    return gaussian.Full(
        weighted.T @ examples.labels, weighted.T @ examples.inputs
    )

  def predictive(
      self, q: gaussian.Full, inputs: jax.Array
  ) -> tuple[jax.Array, jax.Array]:
    """Return mean and standard deviation of each label, [n]."""
    variance = jnp.einsum("ni,ij,nj->n", inputs, q.covariance, inputs)
    return inputs @ q.mean, jnp.sqrt(variance + self.noise**2)

  def visit(
      self, examples: Examples, start: Any, cavity: gaussian.Full
  ) -> tuple[Examples, gaussian.Full]:
    """Visit a client (see `servers`): the exact maximum of eq. 2.20."""
    del start
    return examples, gaussian.product(cavity, self.exact(examples))


@dataclasses.dataclass(frozen=True)
class LogisticRegression:
  """Two classes: the logit of class 1 is linear in the input.

  Attributes:
    features: of an input; a weight for each, and an offset.
  """

  features: int

  def prior(self, variance: float) -> gaussian.MeanField:
    """Return independent centred parameters of one variance."""
    zero = {"offset": jnp.zeros(()), "weights": jnp.zeros(self.features)}
    precision = jax.tree.map(lambda a: a + 1 / variance, zero)
    return gaussian.MeanField(zero, precision)

  def expected(
      self, q: Any, inputs: jax.Array, labels: jax.Array, key: Any
  ) -> jax.Array:
    """Compute E_q[ln p(label | input, theta)] of each example, [n]."""
    del key
    sign = 2 * labels.astype(inputs.dtype) - 1
    logits, shares = self._logits(q, inputs)
    return jax.nn.log_sigmoid(sign[:, None] * logits) @ shares

  def predict(self, q: Any, inputs: jax.Array) -> jax.Array:
    """Return the log of the predicted probability of each class, [n, 2]."""
    logits, shares = self._logits(q, inputs)
    logits = jnp.stack([-logits, logits], 1)
    return jax.nn.logsumexp(
        jax.nn.log_sigmoid(logits) + jnp.log(shares), axis=-1
    )

  def _logits(
      self, q: Any, inputs: jax.Array
  ) -> tuple[jax.Array, jax.Array]:
    """Return logits [n, nodes] and probabilities of nodes [nodes]."""
    mean, variance = q.mean, q.variance
    centre = inputs @ mean["weights"] + mean["offset"]
    # Kept above 0, where the root has no slope.
    spread = inputs**2 @ variance["weights"] + variance["offset"]
    spread = jnp.sqrt(jnp.maximum(spread, 1e-12))
    nodes, shares = (jnp.asarray(a, inputs.dtype) for a in _quadrature())
    return centre[:, None] + spread[:, None] * nodes, shares


@dataclasses.dataclass(frozen=True)
class BayesianNetwork:
  """A perceptron with a posterior over all its weights, for k classes.

  Attributes:
    widths: features of an input, of the hidden layers, and classes.
    samples: how many draws of the outputs an expectation is the mean of.
  """

  widths: tuple[int, ...]
  samples: int = 8

  def prior(self, variance: float) -> gaussian.MeanField:
    """Return independent parameters, of `variance` over the fan-in."""
    zeros, precision = {}, {}
    for i, (inward, outward) in enumerate(zip(self.widths, self.widths[1:])):
      zeros[f"layer_{i}"] = {
          "offset": jnp.zeros(outward),
          "weights": jnp.zeros((inward, outward)),
      }
      precision[f"layer_{i}"] = {
          "offset": jnp.full(outward, 1 / variance),
          "weights": jnp.full((inward, outward), inward / variance),
      }
    return gaussian.MeanField(zeros, precision)

  def expected(
      self, q: Any, inputs: jax.Array, labels: jax.Array, key: jax.Array
  ) -> jax.Array:
    """Compute E_q[ln p(label | input, theta)] of each example, [n]."""
    logits = self._logits(q, inputs, key)
    chosen = jax.nn.log_softmax(logits)[:, jnp.arange(len(labels)), labels]
    return chosen.mean(0)

  def predict(self, q: Any, inputs: jax.Array) -> jax.Array:
    """Return the log of the predicted probability of each class, [n, k]."""
    logits = self._logits(q, inputs, jax.random.key(0))
    each = jax.nn.log_softmax(logits)
    return jax.nn.logsumexp(each, axis=0) - math.log(self.samples)

  def _logits(self, q: Any, inputs: jax.Array, key: jax.Array) -> jax.Array:
    """Sample the logits, [samples, n, k]."""
    mean, variance = q.mean, q.variance
    out = jnp.broadcast_to(inputs, (self.samples, *inputs.shape))
    for i in range(len(self.widths) - 1):
      if i:
        out = jax.nn.relu(out)
      m, v = mean[f"layer_{i}"], variance[f"layer_{i}"]
      centre = out @ m["weights"] + m["offset"]
      spread = jnp.sqrt(out**2 @ v["weights"] + v["offset"])
      # The same draws for every example: one alone gives what it gives among
      # others.
      drawn = jax.random.normal(
          jax.random.fold_in(key, i),
          (self.samples, 1, self.widths[i + 1]), inputs.dtype,
      )
      out = centre + spread * drawn
    return out


@functools.cache
def _quadrature() -> tuple[np.ndarray, np.ndarray]:
  """Return nodes and probabilities for a standard normal number."""
  nodes, weights = np.polynomial.hermite_e.hermegauss(_NODES)
  return nodes, weights / weights.sum()


def to_params(q: gaussian.MeanField) -> Params:
  """Return the parameters: means, and logarithms of standard deviations."""
  return {
      "log_scale": jax.tree.map(lambda p: -jnp.log(p) / 2, q.precision),
      "mean": q.mean,
  }


def to_gaussian(params: Params) -> gaussian.MeanField:
  """Return the Gaussian of what is optimised."""
  variance = jax.tree.map(lambda s: jnp.exp(2 * s), params["log_scale"])
  return gaussian.mean_field(params["mean"], variance)


@dataclasses.dataclass(frozen=True)
class VariationalLearner(learners.BaseLearner):
  """Learner of a mean-field posterior from single examples.

  Attributes:
    likelihood: of an example.
    prior: where the parameters begin.
    features: of an input.
    seed: public; what a likelihood draws in a step follows from it and from the
      step's number.
    step: of the outer steps, see `at_step`.
  """

  likelihood: Likelihood
  prior: gaussian.MeanField
  features: int
  seed: int = 0
  step: Any = 0

  adapts = False

  @property
  def model(self) -> models.Model:  # type: ignore[override]
    """Parameters of the posterior -> its predictions."""

    def apply(params: Params, images: jax.Array) -> jax.Array:
      inputs = images.reshape(images.shape[0], -1)
      return self.likelihood.predict(to_gaussian(params), inputs)

    return models.Model(
        self.init, apply, mixes_examples=False,
        input_shape=(1, 1, self.features),
    )

  def init(self, key: jax.Array) -> Params:
    """Return the prior."""
    del key
    return to_params(self.prior)

  def adapt(
      self,
      params: Params,
      support: Any,
      *,
      inner_gradient: descent.InnerGradient = jax.grad,
  ) -> Params:
    """Return the parameters as they are."""
    del support, inner_gradient
    return params

  def adapted_loss(self, adapted: Params, examples: Any) -> jax.Array:
    """Return minus the mean expected log likelihood of the examples."""
    images, labels = examples
    key = jax.random.fold_in(jax.random.key(self.seed), self.step)
    each = self.likelihood.expected(
        to_gaussian(adapted), images.reshape(len(labels), -1), labels, key
    )
    return -each.mean()

  def at_step(self, step: jax.Array) -> "VariationalLearner":
    """Return the same, drawing what this step draws."""
    return dataclasses.replace(self, step=step)


class DivergenceState(NamedTuple):
  """State of the optimiser of a client.

  Attributes:
    cavity: public, set anew at each visit; see `visiting`.
    inner: the state of the optimiser itself, which stays from visit to visit.
  """

  cavity: gaussian.MeanField
  inner: optax.OptState


def with_divergence(
    optimizer: optax.GradientTransformation, examples: float
) -> optax.GradientTransformation:
  """Descend minus the local free energy, given its private part.

  Args:
    optimizer: of the parameters.
    examples: how many the client has, a public number: the updates it is given
      are the mean gradient of one example's loss.

  Returns:
    A transformation whose gradient is that mean plus the slope of the
    divergence from the cavity over `examples`.
  """

  def init(params: Params) -> DivergenceState:
    return DivergenceState(to_gaussian(params), optimizer.init(params))

  def update(
      gradient: Params, state: DivergenceState, params: Params | None = None
  ) -> tuple[Params, DivergenceState]:
    slope = jax.grad(
        lambda p: gaussian.divergence(to_gaussian(p), state.cavity)
    )(params)
    total = jax.tree.map(lambda g, s: g + s / examples, gradient, slope)
    updates, inner = optimizer.update(total, state.inner, params)
    return updates, DivergenceState(state.cavity, inner)

  return optax.GradientTransformation(init, update)


def visiting(
    state: Any, start: gaussian.MeanField, cavity: gaussian.MeanField
) -> Any:
  """Return a client's `private.State` at the beginning of a visit.

  Args:
    state: as its last visit left it: step number, key and optimiser stay.
    start: the posterior that the client was sent.
    cavity: the same without the client's own factor.
  """
  return state._replace(
      params=to_params(start),
      opt_state=state.opt_state._replace(cavity=cavity),
  )
