"""What clipping every example costs beside clipping every task; prints JSON.

  python -m experiments.benchmarks.sample_level --out=sample_level.json

The same learner, tasks and images (5-way 1-shot, Conv4 with group norm, first
order, 5 inner steps, 1 query per class) in two steps:

  task_level    a task's gradient is clipped and the sum noised
  sample_level  every query example's gradient is clipped, and every support
                example's in every inner step, whose sum is noised too
"""

import functools
from typing import Any

from experiments.benchmarks import harness
from experiments.benchmarks import settings

WIDTH, TASKS, CHUNK, INNER_STEPS = 64, 16, 4, 5


def measure(options: harness.Options) -> dict[str, Any]:
  width, tasks, inner = WIDTH, TASKS, INNER_STEPS
  if options.smoke:
    width, tasks, inner = 4, CHUNK, 2
  make = functools.partial(
      settings.omniglot,
      inner_steps=inner,
      query=1,
      width=width,
      tasks=tasks,
      order="first",
      norm="group",
      smoke=options.smoke,
  )
  runs = {
      "task_level": make(),
      "sample_level": make(
          clip_unit="image", inner_clip_norm=1.0, inner_noise_multiplier=1.0
      ),
  }
  cases = {
      name: functools.partial(
          harness.timed,
          harness.steps(run.step(microbatch_size=CHUNK), run.init()),
      )
      for name, run in runs.items()
  }
  turns = harness.interleaved(cases, options.repeats)
  ratio = harness.ratio(turns["sample_level"], turns["task_level"])
  return {
      "settings": {
          "width": width,
          "tasks": tasks,
          "microbatch_size": CHUNK,
          "inner_steps": inner,
      },
      "cases": {
          name: harness.summary(found) for name, found in turns.items()
      },
      "sample_to_task_level": ratio,
      "rows": [
          harness.row(
              f"sample-level step / task-level first-order step, Conv4-{width}",
              ratio,
              at_most=2.0,
              unit="×",
          )
      ],
  }


if __name__ == "__main__":
  harness.main(measure, repeats=9)
