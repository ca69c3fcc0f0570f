"""Examples in docstrings run and print what they show."""

import doctest
import importlib
import pathlib

import pytest

import episodic_dp

ROOT = pathlib.Path(episodic_dp.__file__).parent
EXAMPLES = [
    path.relative_to(ROOT).with_suffix("").as_posix().replace("/", ".")
    for path in sorted(ROOT.rglob("*.py"))
    if ">>> " in path.read_text("utf-8")
]


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_print_what_they_show(name):
  module = importlib.import_module(f"episodic_dp.{name}")
  found = doctest.testmod(module, optionflags=doctest.ELLIPSIS)
  assert found.attempted > 0
  assert found.failed == 0
