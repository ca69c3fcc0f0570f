"""All networks here are small."""

import pytest


@pytest.fixture(autouse=True, scope="module")
def _quickly_compiled(quickly_compiled):
  return quickly_compiled
