"""Meta-steps whose plan goes over the participants, each used once a pass."""

import jax
import numpy as np
import optax

from episodic_dp import plan


def test_a_pass_uses_every_participant_once(quick_run):
  run = quick_run(participants=8, stage=plan.RandomAllocation(3))
  optimizer = optax.sgd(0.1)
  step = run.step(optimizer, diagnostics=True)
  state = run.init(optimizer)
  tasks = []
  for _ in range(7):  # two passes, and the beginning of a third
    state, metrics = step(state)
    tasks.append(int(metrics["private/tasks"]))
  assert sum(tasks[:3]) == sum(tasks[3:6]) == 8 and max(tasks) <= 8
  assert int(state.step) == 7
  leaves = jax.tree.leaves(state.params)
  assert all(np.isfinite(np.asarray(leaf)).all() for leaf in leaves)
  # The sum is divided by the expected, public number of tasks.
  tasks_per_step = plan.tasks_per_step(run.dataset.hierarchy, run.plan)
  assert tasks_per_step == 8 / 3
