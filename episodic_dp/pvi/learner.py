"""A variational posterior as a learner, and its divergence as an optimiser.

The local free energy of a client (Sharma, eq. 2.22) has two parts: the expected
log likelihood of the client's examples, a sum over them, and the divergence
from the cavity, which depends on no example. So the first is the loss of a
`learners.Learner`, whose gradients the private step clips one by one and sums
with noise, and the second is added after the noise, as part of an Optax
transformation: nothing of it is clipped, and it costs nothing.
"""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from episodic_dp import learners
from episodic_dp import models
from episodic_dp.learners import descent
from episodic_dp.pvi import gaussian
from episodic_dp.pvi import likelihoods

Params = Any  # {"log_scale": tree, "mean": tree}


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

  likelihood: likelihoods.Likelihood
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
