"""The folder of the real data."""

import os

import pytest


@pytest.fixture(scope="session")
def real_data():
  """Return the folder of the real data; they are prepared once, in the cache.

  Set TFDS_DATA_DIR to keep them elsewhere than in ~/tensorflow_datasets.
  """
  data_dir = os.environ.get("EPISODIC_DP_DATA")
  if not data_dir:
    pytest.skip("EPISODIC_DP_DATA names no folder with the real data sets")
  return data_dir
