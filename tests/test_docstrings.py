"""The examples in docstrings run, and print what they show."""

import doctest
import importlib
import pathlib

import pytest

import episodic_dp

ROOT = pathlib.Path(episodic_dp.__file__).parent
# Public names whose page in the reference begins with an example; dotted
# without the package.
NAMES = (
    "accounting.calibrate",
    "accounting.epsilon",
    "accounting.guarantee",
    "accounting.guarantees",
    "data.load",
    "models.mlp",
    "plan.Hierarchy.from_labels",
    "plan.Hierarchy.from_sizes",
    "plan.Hierarchy.regular",
    "plan.Mechanism",
    "plan.Release",
    "plan.SamplingPlan",
    "plan.inclusion_rate",
    "private.init",
    "private.make_meta_step",
    "sampling.sample",
)
_COMPILED = ("private.meta_step", "private.state", "sampling.sampler")


def _modules():
  for path in sorted(ROOT.rglob("*.py")):
    if ">>> " in path.read_text("utf-8"):
      parts = path.relative_to(ROOT).with_suffix("").parts
      name = ".".join(x for x in parts if x != "__init__")
      slow = name in _COMPILED  # For seconds.
      yield pytest.param(name, marks=[pytest.mark.slow] if slow else [])


@pytest.mark.parametrize("name", _modules())
def test_examples_print_what_they_show(name):
  module = importlib.import_module(f"episodic_dp.{name}")
  found = doctest.testmod(module, optionflags=doctest.ELLIPSIS)
  assert found.attempted > 0
  assert found.failed == 0


@pytest.mark.parametrize("name", NAMES)
def test_public_names_have_an_example(name):
  first, *rest = name.split(".")
  value = importlib.import_module(f"episodic_dp.{first}")
  for part in rest:
    value = getattr(value, part)
  assert ">>> " in value.__doc__
