"""Gaussians by their natural parameters, as pytrees.

A Gaussian, normalised or not, is exp(linear . theta - theta' precision theta /
2), times a constant that is stored elsewhere. In these coordinates a product of
densities is a sum of trees, a quotient a difference and a power a multiple.
Partitioned variational inference needs no other operation on factors (Sharma,
"Differential Privacy & Approximate Bayesian Inference", eqs 2.17 and 2.21). A
factor need not be a density: its precision may be 0, or negative.
"""

from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp

Tree = Any  # A tree of floating arrays.


class MeanField(NamedTuple):
  """Independent coordinates.

  Attributes:
    linear: tree of arrays, precision times mean.
    precision: tree of the same shapes, the precision of each coordinate.
  """

  linear: Tree
  precision: Tree

  @property
  def mean(self) -> Tree:
    """Return the mean, for positive precisions."""
    return jax.tree.map(jnp.divide, self.linear, self.precision)

  @property
  def variance(self) -> Tree:
    """Return the variance of each coordinate."""
    return jax.tree.map(jnp.reciprocal, self.precision)

  def above(self, floor: "MeanField") -> "MeanField":
    """Return the Gaussian with the same mean and at least these precisions."""
    precision = jax.tree.map(jnp.maximum, self.precision, floor.precision)
    return MeanField(jax.tree.map(jnp.multiply, precision, self.mean),
                     precision)

  def denoised(
      self, prior: "MeanField", variance: jax.Array | float
  ) -> "MeanField":
    """Return the posterior, given a prior times factors with noise.

    Let l and P be the sums of the factors' linear parts and precisions. As a
    likelihood they say that l is N(P theta, P). If noise was added to l, it is
    N(P theta, P + variance): a factor with linear part P l / (P + variance) and
    precision P^2 / (P + variance). A P that noise made negative counts as 0. So
    noise widens the posterior, and cannot move its mean far: from a prior of
    mean 0 at most |l| / (2 sqrt(variance)) of the prior's standard deviations.

    Args:
      prior: the prior.
      variance: variance of the noise in each number; 0 keeps the linear part.
    """
    made = quotient(self, prior)
    kept = jax.tree.map(lambda p: jnp.maximum(p, 0), made.precision)
    gain = jax.tree.map(lambda p: _gain(p, variance), kept)
    moved = MeanField(
        *(jax.tree.map(jnp.multiply, gain, part) for part in (made[0], kept))
    )
    return product(prior, moved)


class Full(NamedTuple):
  """Dependent coordinates.

  Attributes:
    linear: [d], precision times mean.
    precision: [d, d], symmetric.
  """

  linear: jax.Array
  precision: jax.Array

  @property
  def mean(self) -> jax.Array:
    """Return the mean, for a positive definite precision."""
    return jnp.linalg.solve(self.precision, self.linear)

  @property
  def covariance(self) -> jax.Array:
    """Return the covariance [d, d]."""
    return jnp.linalg.inv(self.precision)

  def above(self, floor: "Full") -> "Full":
    """Return the Gaussian with the same mean and at least this precision.

    Noise may make the precision asymmetric: its symmetric part is used.
    """
    own = (self.precision + self.precision.T) / 2
    values, vectors = jnp.linalg.eigh(own - floor.precision)
    kept = (vectors * jnp.maximum(values, 0)[None]) @ vectors.T
    precision = floor.precision + kept
    return Full(precision @ jnp.linalg.solve(own, self.linear), precision)

  def denoised(self, prior: "Full", variance: jax.Array | float) -> "Full":
    """Return the posterior; see `MeanField.denoised`, with P a matrix."""
    own = (self.precision + self.precision.T) / 2 - prior.precision
    values, vectors = jnp.linalg.eigh(own)
    kept = jnp.maximum(values, 0)
    gain = _gain(kept, variance)
    moved = vectors.T @ (self.linear - prior.linear)
    return Full(
        prior.linear + vectors @ (gain * moved),
        prior.precision + (vectors * (gain * kept)[None]) @ vectors.T,
    )


def _gain(precision: jax.Array, variance: jax.Array | float) -> jax.Array:
  """Return the share of factors that noise leaves: 1 without any."""
  noisy = jnp.asarray(variance) > 0
  return jnp.where(noisy, precision / (precision + variance), 1.0)


Natural = MeanField | Full
_N = TypeVar("_N", MeanField, Full)


def mean_field(mean: Tree, variance: Tree) -> MeanField:
  """Return the Gaussian with these moments, two trees of one structure."""
  precision = jax.tree.map(jnp.reciprocal, variance)
  return MeanField(jax.tree.map(jnp.multiply, precision, mean), precision)


def product(a: _N, b: _N) -> _N:
  """Return the product of two densities or factors."""
  return jax.tree.map(jnp.add, a, b)


def quotient(a: _N, b: _N) -> _N:
  """Return the first divided by the second."""
  return jax.tree.map(jnp.subtract, a, b)


def divergence(a: MeanField, b: MeanField) -> jax.Array:
  """Return the Kullback-Leibler divergence of b from a: E_a[ln a - ln b]."""

  def each(
      mean: jax.Array, variance: jax.Array, other: jax.Array, p: jax.Array
  ) -> jax.Array:
    squares = (mean - other) ** 2 + variance
    return jnp.sum(squares * p - 1 - jnp.log(variance * p)) / 2

  return jax.tree.reduce(
      jnp.add, jax.tree.map(each, a.mean, a.variance, b.mean, b.precision)
  )
