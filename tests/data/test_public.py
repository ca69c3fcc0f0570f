"""Public examples: of validation data, or generated ones."""

import numpy as np
import pytest

from episodic_dp import data
from episodic_dp.data import public
from tests import plans


def dataset(images):
  return data.ArrayDataset(
      name="own",
      images=images,
      hierarchy=plans.tree("image", len(images)),
  )


@pytest.mark.parametrize("dtype, scale", [(np.uint8, 255), (np.float32, 1)])
@pytest.mark.parametrize("count", [30, 1000])
def test_they_are_spread_over_the_data_and_scaled(dtype, scale, count):
  images = np.arange(count).reshape(-1, 1, 1, 1) % 251 * np.ones((2, 3, 1))
  found = public.examples(dataset(images.astype(dtype)), (2, 3, 1))
  chosen = np.linspace(0, count - 1, min(count, public.COUNT)).astype(int)
  assert len(np.unique(chosen)) == len(found)
  assert found.dtype == np.float32
  np.testing.assert_allclose(found, images[chosen] / scale, rtol=1e-6)


@pytest.mark.parametrize("shape", [(28, 28, 1), (17, 40, 1), (20, 16, 3)])
def test_without_data_they_are_generated_in_the_shape(shape):
  found = public.examples(None, shape)
  assert found.shape == (public.COUNT, *shape) and found.dtype == np.float32
  assert 0 <= found.min() < 0.2 and 0.8 < found.max() <= 1
  assert found.std(0).max() > 0.1  # They differ.
  np.testing.assert_array_equal(found, public.examples(None, shape))


@pytest.mark.parametrize("shape", [(128,), (30, 2), (16, 16, 2)])
def test_nothing_is_generated_for_other_shapes(shape):
  assert public.examples(None, shape) is None
