"""The fixture `tiny`: episodes, networks and references in NumPy."""

import pytest

from tests.learners import tiny as tiny_lib


@pytest.fixture(scope="session")
def tiny():
  return tiny_lib
