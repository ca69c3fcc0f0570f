"""What tests of partitioned variational inference share."""

import jax
import pytest


@pytest.fixture
def float64():
  """Computes in float64 meanwhile."""
  with jax.enable_x64(True):
    yield
