"""What very many participants cost, and the page that says so."""

import json
import os
import pathlib
import subprocess
import sys

import jax
import numpy as np
import pytest

from episodic_dp import plan
from experiments.evidence import pages
from experiments.evidence import scale

ROOT = pathlib.Path(__file__).resolve().parents[3]
_COSTS = """
import json
from experiments.evidence import scale
cases = [scale.Case(*c) for c in {cases}]
print(json.dumps([scale.cost(case, smoke=True) for case in cases]))
"""


@pytest.fixture(scope="module")
def costs():
  """Of small tasks, by a process that has eight devices."""
  cases = [(10**5, 500, 2), (10**8, 500, 8), (10**8, 500, 8, False)]
  done = subprocess.run(
      [sys.executable, "-c", _COSTS.format(cases=cases)], cwd=ROOT, text=True,
      env=os.environ | {"JAX_NUM_CPU_DEVICES": "8"}, stdout=subprocess.PIPE,
      check=True,
  )  # fmt: skip
  return [scale.Cost(*found) for found in json.loads(done.stdout)]


@pytest.mark.slow  # Compiles three steps for eight devices.
def test_a_step_grows_neither_with_participants_nor_exchanges_with_devices(
    costs
):
  few, many, streamed = costs
  assert few.slots == pytest.approx(many.slots, rel=0.02)
  assert few.temporaries == pytest.approx(many.temporaries, rel=0.05)
  state = scale.run_of(scale.FEW, smoke=True).init()
  parameters = sum(p.nbytes for p in jax.tree.leaves(state.params))
  for cost in (few, many, streamed):
    # The sum of the gradients and its rounding, in one exchange.
    (size,) = cost.exchanges
    assert 2 * parameters <= size < 2 * parameters + 64


def test_exchanges_are_found_in_a_program():
  text = """
  %a = f32[1000]{0} all-reduce(%x), replica_groups={}
  %b = (f32[2,3]{1,0}, s32[4]{0}) all-gather-start(%y)
  %c = f32[5]{0} add(%a, %b)
  """
  assert scale.exchanges(text) == [4000, 24 + 16]


def test_a_checkpoint_holds_the_parameters_and_two_moments():
  state = scale.run_of(scale.FEW, smoke=True).init()
  held = sum(p.nbytes for p in jax.tree.leaves((state.params, state.opt_state)))
  assert held < scale.checkpoint(state) < held + 100_000


def test_a_ragged_tree_is_the_arrays_that_are_looked_up():
  device, host = scale.ragged(30)
  # int32: offsets of people, of classes and of images, and rows.
  looked_up = 4 * (2 + 31 + 151 + 300)
  assert device == looked_up
  assert host == 8 * (2 + 31 + 151) + 4 * 300


def test_more_leaves_than_int32_counts_are_refused_in_a_sentence():
  plan.Hierarchy.regular((10**8, 5, 2), levels=("person", "class", "image"))
  with pytest.raises(plan.PlanError, match=r"more than 2\^31 - 1.* split"):
    plan.Hierarchy.regular((10**9, 5, 2), levels=("person", "class", "image"))
  with pytest.raises(plan.PlanError, match="split the data set"):
    plan.Hierarchy.from_sizes([2**31], levels=("person", "image"))


def test_a_draw_of_very_many_is_within_them():
  """The largest unit that int32 numbers, and rows up to the last leaf."""
  tree = plan.Hierarchy.regular((2**31 - 1,), levels=("image",))
  drawn, mask = scale.sampling.sample(
      jax.random.key(0), tree, plan.SamplingPlan((plan.FixedSize(4096),)), 0
  )
  assert mask.all() and np.unique(drawn).size == 4096
  assert drawn.min() >= 0 and drawn.max() > 0.99 * 2**31


def test_the_page_has_a_place_for_every_table():
  empty = pages.Table(("a",), ((1,),))
  text = scale.FILE.read_text("utf-8")
  names = ("step", "limits", "draws", "accountants", "rest")
  assert "| a |" in pages.filled(text, "scale", dict.fromkeys(names, empty))
