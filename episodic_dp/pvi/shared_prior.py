"""A prior that participants learn together, each from a few points of its own.

The link from partitioned variational inference to meta-learning. Every
participant i has weights w_i of its own, with the likelihood of its few points
and one shared prior p(w); its factor is that likelihood, and its posterior the
prior times its factor, in closed form. What is learned is the prior.

A Gaussian is given by its expected statistics s(w) = (w, w w'). Those of the
prior that fit best are the mean over participants of the expected statistics of
their posteriors, at which the expected log evidence is stationary (each step
towards it is one of its natural gradient; taken whole, one of expectation
maximisation). So what a participant sends is

  s(prior) - E[s | its posterior],

a change of client-level privacy: clipped, summed with noise, and taken off by
an optimiser, by the same private step as a meta-gradient. The learner is
trained, accounted and resumed like any other.
"""

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from episodic_dp import learners
from episodic_dp import models
from episodic_dp.learners import descent
from episodic_dp.pvi import gaussian
from episodic_dp.pvi import likelihoods

Params = Any  # {"first": [d], "second": [d (d + 1) / 2]}, expected statistics.


@dataclasses.dataclass(frozen=True)
class Bumps:
  """Features of a number x: Gaussian bumps evenly spaced over a range.

  Attributes:
    low: the centre of the first.
    high: of the last.
    count: how many.
  """

  low: float = -6.0
  high: float = 6.0
  count: int = 16

  def __call__(self, x: jax.Array) -> jax.Array:
    """[n] -> [n, count]."""
    centres = jnp.linspace(self.low, self.high, self.count, dtype=x.dtype)
    width = (self.high - self.low) / (self.count - 1)
    return jnp.exp(-(((x[:, None] - centres) / width) ** 2) / 2)


@dataclasses.dataclass(frozen=True)
class SharedPrior(learners.BaseLearner):
  """Bayesian linear regression on features, its prior shared and learned.

  Attributes:
    features: of a point's one input.
    noise: standard deviation of a target, public.
    variance: of the prior to begin with.
    shrink: taken off the variance of the prior in every direction, about what
      noise on the statistics adds to it; a public number.
    least: no direction of the prior has a smaller variance than this.
  """

  features: Bumps = Bumps()
  noise: float = 0.1
  variance: float = 4.0
  shrink: float = 0.0
  least: float = 1e-3

  @property
  def model(self) -> models.Model:  # type: ignore[override]
    """Model of the prior alone, before any point is seen."""
    return models.Model(
        self.init, self.logits, mixes_examples=False, input_shape=(1, 1, 1),
        way=1,
    )

  @property
  def likelihood(self) -> likelihoods.LinearRegression:
    """Likelihood of a participant's points."""
    return likelihoods.LinearRegression(self.features.count, self.noise)

  def init(self, key: jax.Array) -> Params:
    """Return the first prior: independent weights around 0."""
    del key
    d = self.features.count
    return self._statistics(jnp.zeros(d), self.variance * jnp.eye(d))

  def prior(self, params: Params) -> gaussian.Full:
    """Return the Gaussian of expected statistics, after any noise."""
    mean, d = params["first"], self.features.count
    upper = jnp.zeros((d, d), mean.dtype).at[np.triu_indices(d)].set(
        params["second"] / _weights(d)
    )
    second = upper + upper.T - jnp.diag(jnp.diag(upper))
    values, vectors = jnp.linalg.eigh(second - jnp.outer(mean, mean))
    kept = jnp.maximum(values - self.shrink, self.least)
    covariance = (vectors * kept) @ vectors.T
    return gaussian.full(mean, covariance)

  def adapt(
      self,
      params: Params,
      support: Any,
      *,
      inner_gradient: descent.InnerGradient = jax.grad,
  ) -> gaussian.Full:
    """Return a participant's posterior: the prior times its factor."""
    del inner_gradient
    return self._posterior(params, support)

  def logits(self, adapted: Any, images: jax.Array) -> jax.Array:
    """Return the mean target at each point, [n, 1]."""
    q = adapted if isinstance(adapted, gaussian.Full) else self.prior(adapted)
    return (self.features(_inputs(images)) @ q.mean)[:, None]

  def predictive(
      self, params: Params, support: Any, images: jax.Array
  ) -> tuple[jax.Array, jax.Array]:
    """Return mean and deviation of the targets, [n], after the support."""
    q = self.adapt(params, support)
    return self.likelihood.predictive(q, self.features(_inputs(images)))

  def meta_gradient(
      self, params: Params, episode: Any
  ) -> tuple[jax.Array, Params]:
    """(minus the mean log likelihood of the queries, what is clipped).

    A participant uses all of its points: its factor needs no query set.
    """
    points = jax.tree.map(
        lambda a, b: jnp.concatenate([a, b]), episode.support, episode.query
    )
    q = self._posterior(params, points)
    found = self._statistics(q.mean, q.covariance)
    loss = self.adapted_loss(self.adapt(params, episode.support), episode.query)
    return loss, jax.tree.map(lambda p, s: p - s, params, found)

  def adapted_loss(self, adapted: gaussian.Full, examples: Any) -> jax.Array:
    """Return minus the mean log density of the targets."""
    mean, spread = self.likelihood.predictive(
        adapted, self.features(_inputs(examples.images))
    )
    return -log_density(mean, spread, examples.labels[:, 0]).mean()

  def _posterior(self, params: Params, points: Any) -> gaussian.Full:
    inputs = self.features(_inputs(points.images))
    factor = self.likelihood.exact(
        likelihoods.Examples(
            inputs, points.labels[:, 0], jnp.ones_like(inputs[:, 0])
        )
    )
    return gaussian.product(self.prior(params), factor)

  def _statistics(self, mean: jax.Array, covariance: jax.Array) -> Params:
    """Return expected statistics; entries off the diagonal count twice.

    Their weight, the root of two, makes the norm of what is kept that of the
    whole matrix.
    """
    second = covariance + jnp.outer(mean, mean)
    d = self.features.count
    return {
        "first": mean,
        "second": second[np.triu_indices(d)] * _weights(d),
    }


def log_density(
    mean: jax.Array, spread: jax.Array, target: jax.Array
) -> jax.Array:
  """ln N(target; mean, spread^2)."""
  scaled = (target - mean) / spread
  return -(scaled**2) / 2 - jnp.log(spread) - math.log(2 * math.pi) / 2


def coverage(
    mean: np.ndarray, spread: np.ndarray, target: np.ndarray, share: float
) -> float:
  """Return the share of targets inside the central interval of `share`."""
  half = float(jax.scipy.stats.norm.ppf((1 + share) / 2))
  return float(np.mean(np.abs(target - mean) <= half * spread))


def _weights(d: int) -> np.ndarray:
  rows, columns = np.triu_indices(d)
  return np.where(rows == columns, 1.0, math.sqrt(2)).astype(np.float32)


def _inputs(images: jax.Array) -> jax.Array:
  """[n, 1, 1, 1] -> [n]."""
  return images.reshape(images.shape[0])
