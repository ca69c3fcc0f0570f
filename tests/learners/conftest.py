"""The fixture `tiny`."""

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
