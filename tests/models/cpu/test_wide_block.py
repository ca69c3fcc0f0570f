"""The block of many channels against its parts."""

import numpy as np
import pytest

from episodic_dp.models import convolution
from episodic_dp.models import normalization
from episodic_dp.models import pooling
from episodic_dp.models.cpu import wide_block
from tests.models import derivatives


def parts(x, kernel, scale, bias):
  return pooling.max_pool(
      normalization.batch_norm(convolution.convolve(x, kernel), scale, bias)
  )


@pytest.mark.slow
def test_value_and_derivatives_of_two_orders_equal_the_parts():
  rng = np.random.default_rng(1)
  arguments = (
      rng.standard_normal((3, 5, 6, 2), np.float32),
      rng.standard_normal((3, 3, 2, 4), np.float32) / 3,
      np.array([1.0, -0.5, 2.0, 0.3], np.float32),
      rng.standard_normal(4).astype(np.float32),
  )
  assert derivatives.error(wide_block.apply, parts, arguments) < 1e-4


@pytest.mark.parametrize(
    "x,kernel",
    [
        ((31, 10, 10, 64), (3, 3, 64, 64)),
        ((32, 10, 10, 32), (3, 3, 32, 64)),
        ((32, 10, 10, 64), (5, 5, 64, 64)),
        ((32, 9, 10, 64), (3, 3, 64, 64)),
    ],
)
def test_other_shapes_are_left_to_others(x, kernel):
  assert wide_block.fits((32, 10, 10, 64), (3, 3, 64, 64))
  assert not wide_block.fits(x, kernel)
