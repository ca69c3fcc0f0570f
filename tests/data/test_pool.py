"""A pool of classes, as a tree or as participants, labelled by row."""

import numpy as np
import pytest

from episodic_dp.data import pool


@pytest.mark.parametrize(
    "participants",
    [None, pool.Participants(count=20, way=2, per_class=3, seed=0)],
)
def test_rows_are_labelled_by_their_class(participants):
  images = np.arange(4 * 5, dtype=np.uint8).reshape(4, 5, 1, 1, 1)
  made = pool.make(
      "pool", images, levels=("class", "image"), description="numbers",
      participants=participants,
  )
  assert made.labels.dtype == np.int32
  np.testing.assert_array_equal(made.labels, made.images.ravel() // 5)
