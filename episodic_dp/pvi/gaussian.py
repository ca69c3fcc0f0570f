"""Gaussians by their natural parameters, as pytrees.

A Gaussian, normalised or not, is exp(linear . theta - theta' precision theta /
2), times a constant that is kept elsewhere. In these coordinates a product of
densities is a sum of trees, a quotient a difference and a power a multiple:
that is all that partitioned variational inference does with its factors
(Sharma, "Differential Privacy & Approximate Bayesian Inference", eqs 2.17 and
2.21). A factor need not be a density: its precision may be 0, or negative.
"""

import math
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp

Tree = Any  # of floating arrays


class MeanField(NamedTuple):
  """Independent coordinates.

  Attributes:
    linear: tree of arrays, precision times mean.
    precision: a tree like it, of each coordinate.
  """

  linear: Tree
  precision: Tree

  @property
  def mean(self) -> Tree:
    """The mean, where the precision is positive."""
    return jax.tree.map(jnp.divide, self.linear, self.precision)

  @property
  def variance(self) -> Tree:
    """The variance of each coordinate."""
    return jax.tree.map(jnp.reciprocal, self.precision)

  def log_partition(self) -> jax.Array:
    """Return the logarithm of the integral of exp(natural . statistics)."""

    def each(b: jax.Array, p: jax.Array) -> jax.Array:
      return jnp.sum(b**2 / p - jnp.log(p / (2 * math.pi))) / 2

    return _total(each, self.linear, self.precision)

  def expected_exponent(self, under: "MeanField") -> jax.Array:
    """Return the mean of `exponent` under a Gaussian."""
    return _total(
        lambda b, p, m, v: jnp.sum(b * m - p * (m**2 + v) / 2),
        self.linear, self.precision, under.mean, under.variance,
    )

  def above(self, floor: "MeanField") -> "MeanField":
    """Return the Gaussian of the same mean with at least these precisions."""
    precision = jax.tree.map(jnp.maximum, self.precision, floor.precision)
    return MeanField(jax.tree.map(jnp.multiply, precision, self.mean),
                     precision)


class Full(NamedTuple):
  """Coordinates that depend on one another.

  Attributes:
    linear: [d], precision times mean.
    precision: [d, d], symmetric.
  """

  linear: jax.Array
  precision: jax.Array

  @property
  def mean(self) -> jax.Array:
    """The mean, where the precision is positive definite."""
    return jnp.linalg.solve(self.precision, self.linear)

  @property
  def covariance(self) -> jax.Array:
    """The covariance [d, d]."""
    return jnp.linalg.inv(self.precision)

  def above(self, floor: "Full") -> "Full":
    """Return the Gaussian of the same mean whose precision is at least that."""
    values, vectors = jnp.linalg.eigh(self.precision - floor.precision)
    kept = (vectors * jnp.maximum(values, 0)) @ vectors.T
    precision = floor.precision + kept
    return Full(precision @ self.mean, precision)


Natural = MeanField | Full
_N = TypeVar("_N", MeanField, Full)


def mean_field(mean: Tree, variance: Tree) -> MeanField:
  """Return the Gaussian of these moments; trees of one structure."""
  precision = jax.tree.map(jnp.reciprocal, variance)
  return MeanField(jax.tree.map(jnp.multiply, precision, mean), precision)


def full(mean: jax.Array, covariance: jax.Array) -> Full:
  """Return the Gaussian of a mean [d] and a covariance [d, d]."""
  precision = jnp.linalg.inv(covariance)
  return Full(precision @ mean, precision)


def product(a: _N, b: _N) -> _N:
  """Return the product of two densities or factors."""
  return jax.tree.map(jnp.add, a, b)


def quotient(a: _N, b: _N) -> _N:
  """Return the first divided by the second."""
  return jax.tree.map(jnp.subtract, a, b)


def between(a: _N, b: _N, share: float | jax.Array) -> _N:
  """a^(1 - share) b^share."""
  return jax.tree.map(lambda x, y: (1 - share) * x + share * y, a, b)


def divergence(a: MeanField, b: MeanField) -> jax.Array:
  """Return the Kullback-Leibler divergence of b from a: E_a[ln a - ln b]."""
  gap = quotient(a, b).expected_exponent(a)
  return gap - a.log_partition() + b.log_partition()


def _total(function: Any, *trees: Tree) -> jax.Array:
  """Return the sum of a function of the trees' arrays."""
  return jax.tree.reduce(jnp.add, jax.tree.map(function, *trees))
