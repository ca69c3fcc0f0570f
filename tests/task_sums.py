"""The sum of the clipped gradients of all tasks, in one call."""

from typing import Any

import jax

from episodic_dp import plan
from episodic_dp.private import task_sum


def sum_tasks(
    learner: Any,
    mechanism: plan.Mechanism,
    params: Any,
    tasks: task_sum.Tasks,
    key: jax.Array,
    *,
    episode: plan.Episode | None,
    **options: Any,
) -> tuple[Any, task_sum.Diagnostics]:
  """As a step sums them: (tree like params, metrics "private/...").

  Args:
    learner: and the next three as `task_sum.add_tasks` takes them.
    mechanism: of a fixed clip norm.
    params: what the gradients are taken at.
    tasks: all of them.
    key: of labels and rotations.
    episode: None where every task is one example.
    **options: other fields of `TaskContext`.
  """
  context = task_sum.TaskContext(
      learner=learner, mechanism=mechanism, episode=episode, **options
  )
  totals = task_sum.add_tasks(
      context,
      task_sum.StepInputs(params, key),
      task_sum.zeros(context, params),
      tasks,
  )
  return totals.sum, task_sum.summarise(totals.diagnostics, tasks.mask)
