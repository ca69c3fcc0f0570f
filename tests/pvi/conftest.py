"""Fixtures of the tests of partitioned variational inference."""

import jax
import pytest


@pytest.fixture
def float64():
  """Computes in float64 meanwhile."""
  with jax.enable_x64(True):
    yield
