"""Expected log likelihoods of examples.

Each model gives the expectation under a Gaussian posterior, not a sample of it
where that can be had: a linear output of independent weights is itself Gaussian
(the local reparameterisation of Kingma, Salimans and Welling, 2015), so that of
a logistic model one integral over one number is left, done by Gauss-Hermite
quadrature.
"""

import dataclasses
import functools
import math
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from episodic_dp.pvi import gaussian

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
    full: whether the posterior keeps how parameters depend on one another.
  """

  features: int
  noise: float = 1.0
  full: bool = True

  def prior(self, variance: float) -> Any:
    """Return independent centred parameters, full or mean-field."""
    zero, ones = jnp.zeros(self.features), jnp.ones(self.features)
    if self.full:
      return gaussian.Full(zero, jnp.diag(ones) / variance)
    return gaussian.MeanField(zero, ones / variance)

  def exact(self, examples: Examples) -> gaussian.Full:
    """Return the likelihood of some examples, itself a Gaussian factor."""
    weighted = examples.inputs * examples.weight[:, None] / self.noise**2
    return gaussian.Full(
        weighted.T @ examples.labels, weighted.T @ examples.inputs
    )

  def expected(
      self, q: Any, inputs: jax.Array, labels: jax.Array, key: Any
  ) -> jax.Array:
    """Compute E_q[ln p(label | input, theta)] of each example, [n]."""
    del key
    mean, variance = self._outputs(q, inputs)
    squares = (labels - mean) ** 2 + variance
    constant = math.log(2 * math.pi * self.noise**2)
    return -(squares / self.noise**2 + constant) / 2

  def predictive(
      self, q: Any, inputs: jax.Array
  ) -> tuple[jax.Array, jax.Array]:
    """Return mean and standard deviation of each label, [n]."""
    mean, variance = self._outputs(q, inputs)
    return mean, jnp.sqrt(variance + self.noise**2)

  def visit(self, examples: Examples, start: Any, cavity: Any) -> Any:
    """Visit a client (see `servers`): the exact maximum of eq. 2.20."""
    del start
    exact = self.exact(examples)
    if self.full:
      return examples, gaussian.product(cavity, exact)
    # Of independent coordinates the best has the tilted mean, and the tilted
    # precision of each coordinate given all others.
    precision = jnp.diag(cavity.precision) + exact.precision
    mean = jnp.linalg.solve(precision, cavity.linear + exact.linear)
    each = jnp.diag(precision)
    return examples, gaussian.MeanField(each * mean, each)

  def _outputs(
      self, q: Any, inputs: jax.Array
  ) -> tuple[jax.Array, jax.Array]:
    if self.full:
      spread = jnp.einsum("ni,ij,nj->n", inputs, q.covariance, inputs)
    else:
      spread = inputs**2 @ q.variance
    return inputs @ q.mean, spread


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


def evidence(
    likelihood: Likelihood, examples: Examples, q: Any, key: Any = None
) -> jax.Array:
  """Return the expected log likelihood of all the examples."""
  key = jax.random.key(0) if key is None else key
  each = likelihood.expected(q, examples.inputs, examples.labels, key)
  return each @ examples.weight


@functools.cache
def _quadrature() -> tuple[np.ndarray, np.ndarray]:
  """Return nodes and probabilities for a standard normal number."""
  nodes, weights = np.polynomial.hermite_e.hermegauss(_NODES)
  return nodes, weights / weights.sum()
