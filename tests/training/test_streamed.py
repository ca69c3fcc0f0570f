"""A run with its data on the host resumes and ends with the same bits."""

import dataclasses

import jax
import numpy as np
import pytest

from tests.training import tiny_run


@pytest.mark.slow
def test_resumed_run_equals_the_resident_one(tmp_path):
  def spec(steps, resident):
    train = dataclasses.replace(tiny_run.dataset(), resident=resident)
    return tiny_run.spec(steps, train=train)

  tiny_run.train(spec(7, True), tmp_path / "resident")
  for steps in (4, 7):
    tiny_run.train(spec(steps, False), tmp_path / "streamed")
  expected, found = (
      tiny_run.final_params(tmp_path / name)
      for name in ("resident", "streamed")
  )
  assert expected[1] == found[1] == 7
  for a, b in zip(jax.tree.leaves(expected), jax.tree.leaves(found)):
    np.testing.assert_array_equal(a, b)
