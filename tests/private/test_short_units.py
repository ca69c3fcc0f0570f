"""Steps of the neighbours of data whose tasks are just filled."""

import dataclasses

import numpy as np
import optax
import pytest

from episodic_dp import plan
from tests import fake_dataset


@pytest.mark.parametrize(
    "sizes,tasks",
    [
        # One class less, beside another participant: the step is that one's.
        ([[3, 3], [3, 3, 3]], 1),
        # One image too few in the only participant. (Slow: it compiles again.)
        pytest.param([[3, 1, 3]], 0, marks=pytest.mark.slow),
    ],
)
def test_a_task_that_cannot_be_filled_contributes_zero(quick_run, sizes, tasks):
  run = quick_run(participants=1, stage=plan.All(), noise_multiplier=0.0)
  found, moved = _tasks_and_update(_without(run, sizes))
  assert found == [tasks] * 2 and moved == [tasks > 0] * 2


def _without(run, sizes):
  hierarchy = plan.Hierarchy.from_sizes(
      sizes, levels=run.dataset.hierarchy.levels
  )
  shape = (hierarchy.num_leaves, *run.dataset.images.shape[1:])
  images = np.random.default_rng(1).integers(0, 256, shape, np.uint8)
  return run._replace(
      dataset=fake_dataset.FakeDataset(images=images, hierarchy=hierarchy),
      plan=dataclasses.replace(run.plan, allow_short_units=True),
  )


def _tasks_and_update(run):
  """The tasks of two steps, and whether they moved the parameters."""
  optimizer = optax.sgd(0.1)
  step, state = run.step(optimizer, diagnostics=True), run.init(optimizer)
  tasks, moved = [], []
  for _ in range(2):
    state, metrics = step(state)
    tasks.append(int(metrics["private/tasks"]))
    moved.append(float(metrics["update_norm"]) > 0)
  return tasks, moved
