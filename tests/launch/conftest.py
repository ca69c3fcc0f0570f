"""Fixtures of the tests of launchers."""

import pytest

from tests.launch import tiny


@pytest.fixture(scope="session")
def expected(tmp_path_factory):
  """The parameters that the tiny run ends with when nothing disturbs it."""
  return tiny.uninterrupted(tmp_path_factory.mktemp("tiny") / "run")
