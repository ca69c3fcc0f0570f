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

_RANGE = (-6.0, 6.0)  # The centres of the first bump and the last.
Params = Any  # {"first": [d], "second": [d (d + 1) / 2]}, expected statistics.


@dataclasses.dataclass(frozen=True)
class SharedPrior(learners.Learner):
  """Bayesian linear regression on Gaussian bumps, its prior shared and learned.

  Attributes:
    bumps: number of features of a point's one input.
    noise: standard deviation of a target, public.
    variance: of the prior to begin with.
    shrink: taken off the variance of the prior in every direction, about what
      noise on the statistics adds to it; a public number.
    least: no direction of the prior has a smaller variance than this.
  """

  bumps: int = 16
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

  def features(self, images: jax.Array) -> jax.Array:
    """Return bumps evenly spaced over a range: [n, 1, 1, 1] -> [n, bumps]."""
    low, high = _RANGE
    centres = jnp.linspace(low, high, self.bumps)
    width = (high - low) / (self.bumps - 1)
    return jnp.exp(-(((images.reshape(-1, 1) - centres) / width) ** 2) / 2)

  def init(self, key: jax.Array) -> Params:
    """Return the first prior: independent weights around 0."""
    del key
    d = self.bumps
    return statistics(jnp.zeros(d), self.variance * jnp.eye(d))

  def prior(self, params: Params) -> gaussian.Full:
    """Return the Gaussian of expected statistics, after any noise."""
    mean, d = params["first"], self.bumps
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
    factor = likelihoods.LinearRegression(self.bumps, self.noise).exact(
        likelihoods.Examples(
            self.features(support.images), support.labels[:, 0],
            jnp.ones(len(support.labels)),
        )
    )
    return gaussian.product(self.prior(params), factor)

  def logits(self, adapted: Any, images: jax.Array) -> jax.Array:
    """Return the mean target at each point, [n, 1]."""
    q = adapted if isinstance(adapted, gaussian.Full) else self.prior(adapted)
    return (self.features(images) @ q.mean)[:, None]

  def predictive(
      self, q: gaussian.Full, images: jax.Array
  ) -> tuple[jax.Array, jax.Array]:
    """Return mean and deviation of the targets of a posterior, [n]."""
    inputs = self.features(images)
    variance = jnp.einsum("ni,ij,nj->n", inputs, q.covariance, inputs)
    return inputs @ q.mean, jnp.sqrt(variance + self.noise**2)

  def meta_gradient(
      self, params: Params, episode: Any
  ) -> tuple[jax.Array, Params]:
    """(minus the mean log likelihood of the queries, what is clipped).

    A participant uses all of its points: its factor needs no query set.
    """
    points = jax.tree.map(
        lambda a, b: jnp.concatenate([a, b]), episode.support, episode.query
    )
    q = self.adapt(params, points)
    found = statistics(q.mean, q.covariance)
    direction = jax.tree.map(jnp.subtract, params, found)
    return self.loss(params, episode), direction

  def adapted_loss(self, adapted: gaussian.Full, examples: Any) -> jax.Array:
    """Return minus the mean log density of the targets."""
    mean, spread = self.predictive(adapted, examples.images)
    targets = examples.labels[:, 0]
    return -jax.scipy.stats.norm.logpdf(targets, mean, spread).mean()


def statistics(mean: jax.Array, covariance: jax.Array) -> Params:
  """Return expected statistics; entries off the diagonal count twice.

  Their weight, the root of two, makes the norm of what is kept that of the
  whole matrix.
  """
  second = covariance + jnp.outer(mean, mean)
  d = len(mean)
  upper = second[np.triu_indices(d)] * _weights(d)
  return {"first": mean, "second": upper}


def _weights(d: int) -> np.ndarray:
  rows, columns = np.triu_indices(d)
  return np.where(rows == columns, 1.0, math.sqrt(2)).astype(np.float32)
