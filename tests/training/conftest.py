"""Runs compile the same few programs again and again."""

import pytest


@pytest.fixture(scope="session", autouse=True)
def _compile_once(compilation_cache):
  """For all tests of this folder."""
