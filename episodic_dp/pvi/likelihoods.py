"""Expected log likelihoods of examples.

Each model computes the expectation under a Gaussian posterior in closed form if
possible, not by sampling. A linear output of independent weights is itself
Gaussian (the local reparameterisation of Kingma, Salimans and Welling, 2015). A
logistic model then needs one integral over one number, by Gauss-Hermite
quadrature.

The local free energy of a client (Sharma, eq. 2.22) has two parts: the expected
log likelihood of the client's examples, a sum over them, and the divergence
from the cavity, which depends on no example. The first is the loss of
`VariationalLearner`; the private step clips its gradients one by one and sums
them with noise. `with_divergence`, an Optax transformation, adds the second
after the noise: it is not clipped, and costs nothing.
"""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from episodic_dp import learners
from episodic_dp import models
from episodic_dp.learners import learner
from episodic_dp.pvi import gaussian

# Parameters of a posterior to optimise: {"log_scale": tree, "mean": tree}.
Params = Any
# Nodes and weights for a standard normal number. More nodes change no reported
# digit.
_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(20)
_SHARES = _WEIGHTS / _WEIGHTS.sum()


class Examples(NamedTuple):
  """Examples of one client, padded to a common length.

  Attributes:
    inputs: floating [n, features].
    labels: int32[n], classes, or floating [n] for regression.
    weight: floating [n], 1 for an example and 0 for padding.
  """

  inputs: jax.Array
  labels: jax.Array
  weight: jax.Array


@dataclasses.dataclass(frozen=True)
class LinearRegression:
  """Bayesian linear regression with known noise: conjugate, in closed form.

  A client's visit is exact: Sharma, "Differential Privacy & Approximate
  Bayesian Inference", equation 2.20.

  Attributes:
    features: number of features of an input; add a constant one for an offset.
    noise: standard deviation of a label around its mean, in units of the label.
  """

  features: int
  noise: float = 1.0

  def prior(self, variance: float) -> gaussian.Full:
    """Return independent parameters of mean 0 with one variance."""
    return gaussian.Full(
        jnp.zeros(self.features), jnp.eye(self.features) / variance
    )

  def exact(self, examples: Examples) -> gaussian.Full:
    """Return the likelihood of the examples, a Gaussian factor."""
    weighted = examples.inputs * examples.weight[:, None] / self.noise**2
    return gaussian.Full(
        weighted.T @ examples.labels, weighted.T @ examples.inputs
    )

  def visit(
      self, examples: Examples, start: Any, cavity: gaussian.Full
  ) -> tuple[Examples, gaussian.Full]:
    """Visit a client (see `servers`): the exact maximum of eq. 2.20."""
    return examples, gaussian.product(cavity, self.exact(examples))


@dataclasses.dataclass(frozen=True)
class LogisticRegression:
  """Bayesian logistic regression: the logit of class 1 is linear in the input.

  Expectations under a mean-field posterior use the local reparameterisation of
  Kingma, Salimans and Welling, "Variational Dropout and the Local
  Reparameterization Trick" (2015).

  Attributes:
    features: number of features of an input; each has a weight, plus an offset.
  """

  features: int

  def prior(self, variance: float) -> gaussian.MeanField:
    """Return independent parameters of mean 0 with one variance."""
    zero = {"offset": jnp.zeros(()), "weights": jnp.zeros(self.features)}
    precision = jax.tree.map(lambda a: a + 1 / variance, zero)
    return gaussian.MeanField(zero, precision)

  def expected(
      self, q: Any, inputs: jax.Array, labels: jax.Array
  ) -> jax.Array:
    """Compute E_q[ln p(label | input, theta)] of each example, [n]."""
    sign = 2 * labels.astype(inputs.dtype) - 1
    logits, shares = self._logits(q, inputs)
    return jax.nn.log_sigmoid(sign[:, None] * logits) @ shares

  def predict(self, q: Any, inputs: jax.Array) -> jax.Array:
    """Return the log of the predicted probability of each class, [n, 2]."""
    logits, shares = self._logits(q, inputs)
    logits = jnp.stack([-logits, logits], 1)
    return jax.nn.logsumexp(
        jax.nn.log_sigmoid(logits) + jnp.log(shares)[None, None], axis=-1
    )

  def _logits(
      self, q: Any, inputs: jax.Array
  ) -> tuple[jax.Array, jax.Array]:
    """Return logits [n, nodes] and probabilities of nodes [nodes]."""
    mean, variance = q.mean, q.variance
    centre = inputs @ mean["weights"] + mean["offset"]
    # Kept above 0, where the root is differentiable.
    spread = inputs**2 @ variance["weights"] + variance["offset"]
    spread = jnp.sqrt(jnp.maximum(spread, 1e-12))
    nodes, shares = (jnp.asarray(a, inputs.dtype) for a in (_NODES, _SHARES))
    return centre[:, None] + spread[:, None] * nodes[None], shares


def to_params(q: gaussian.MeanField) -> Params:
  """Return the parameters: means, and logarithms of standard deviations."""
  return {
      "log_scale": jax.tree.map(lambda p: -jnp.log(p) / 2, q.precision),
      "mean": q.mean,
  }


def to_gaussian(params: Params) -> gaussian.MeanField:
  """Return the Gaussian of the parameters to optimise."""
  variance = jax.tree.map(lambda s: jnp.exp(2 * s), params["log_scale"])
  return gaussian.mean_field(params["mean"], variance)


@dataclasses.dataclass(frozen=True)
class VariationalLearner(learners.Learner):
  """Learner of a mean-field posterior from single examples.

  Attributes:
    likelihood: likelihood of an example.
    prior: initial value of the parameters.
  """

  likelihood: LogisticRegression
  prior: gaussian.MeanField

  adapts = False

  @property
  def model(self) -> models.Model:  # type: ignore[override]
    """Return the map from parameters of the posterior to predictions."""

    def apply(params: Params, images: jax.Array) -> jax.Array:
      inputs = images.reshape(images.shape[0], -1)
      return self.likelihood.predict(to_gaussian(params), inputs)

    return models.Model(
        self.init, apply, mixes_examples=False,
        input_shape=(1, 1, self.likelihood.features),
    )

  def init(self, key: jax.Array) -> Params:
    """Return the prior."""
    return to_params(self.prior)

  def adapt(
      self,
      params: Params,
      support: Any,
      *,
      inner_gradient: learner.InnerGradient = jax.grad,
  ) -> Params:
    """Return the parameters unchanged."""
    return params

  def adapted_loss(self, adapted: Params, examples: Any) -> jax.Array:
    """Return minus the mean expected log likelihood of the examples."""
    images, labels = examples.images, examples.labels
    each = self.likelihood.expected(
        to_gaussian(adapted), images.reshape(len(labels), -1), labels
    )
    return -each.mean()


class DivergenceState(NamedTuple):
  """State of a client's optimiser.

  Attributes:
    cavity: public, replaced at each visit; see `visiting`.
    inner: state of the wrapped optimiser, which persists between visits.
  """

  cavity: gaussian.MeanField
  inner: optax.OptState


def with_divergence(
    optimizer: optax.GradientTransformation, examples: float
) -> optax.GradientTransformation:
  """Descend minus the local free energy, given the gradient of its first part.

  Args:
    optimizer: optimizer of the parameters.
    examples: number of the client's examples, which is public. The updates that
      it receives are the mean gradient of one example's loss.

  Returns:
    A transformation whose gradient is that mean plus the gradient of the
    divergence from the cavity divided by `examples`.
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
  """Return a client's `private.State` at the start of a visit.

  Args:
    state: after its last visit; step number, key and optimiser stay.
    start: the posterior that the client received.
    cavity: the same without the client's own factor.
  """
  return state._replace(
      params=to_params(start),
      opt_state=state.opt_state._replace(cavity=cavity),
  )
