"""The fixture `tiny`, and quick compilation: all networks here are small."""

import importlib.util
import pathlib

import pytest


@pytest.fixture(scope="session")
def tiny():
  path = pathlib.Path(__file__).with_name("tiny.py")
  spec = importlib.util.spec_from_file_location("tiny", path)
  module = importlib.util.module_from_spec(spec)
  spec.loader.exec_module(module)
  return module


@pytest.fixture(autouse=True, scope="module")
def _quickly_compiled(quickly_compiled):
  return quickly_compiled
