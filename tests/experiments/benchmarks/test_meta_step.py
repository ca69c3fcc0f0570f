"""The meta-step's benchmark compares sums of the same tasks."""

import pytest

from experiments.benchmarks import meta_step
from experiments.benchmarks import sums


@pytest.mark.slow
def test_ours_is_the_sum_that_pytorch_finds():
  pytest.importorskip(
      "torch", reason="torch is not installed: pip install -e '.[bench]'"
  )
  case = meta_step.Case(width=4, inner_steps=1, query=1, tasks=2)
  run = meta_step.make_run(case)
  _, ours = run.first_sum(case.tasks)
  theirs = sums.torch_sum(
      run.init().params, case.inner_steps, run.drawn_tasks(),
      "float64",
  )()
  assert sums.difference(ours, theirs) < meta_step.APART


def test_the_floor_is_of_what_a_task_multiplies():
  assert meta_step.matmul_gflops(smoke=True) > 0
  one, two = (meta_step.Case(64, steps, 1, 1) for steps in (1, 2))
  other = meta_step.Case(64, 3, 1, 1)
  step = meta_step.operations(two) - meta_step.operations(one)
  assert meta_step.operations(other) == meta_step.operations(two) + step > 0
