"""What sampling costs; prints JSON.

  python -m experiments.benchmarks.sampling --out=sampling.json

Draws of 1600 tasks of 10 examples (5 classes, 2 of each), compiled:

  small, large    from 10^4 and from 10^8 participants, fixed size
  poisson         from 10^8, each with probability 1600 / 10^8
  allocation      from 400 000, one step of a pass of 250
  disjoint        of 8000 from 10^5 classes, grouped into tasks
  independent     1600 times 5 of 1000 classes
  ragged          from 10^4 participants of unequal sizes

and a whole step (Conv4-64, second order, 1 inner step, 1 query per class, 32 of
400 000 participants expected: the cheapest task, of which the sampler's share
is the largest) beside `draw`, its draw alone. The number of tasks differs from
step to step, and nothing is compiled for it.
"""

import functools
from typing import Any

import jax
import numpy as np

from episodic_dp import plan as plan_lib
from episodic_dp import sampling
from episodic_dp.training import compilation
from experiments.benchmarks import harness
from experiments.benchmarks import settings

WAY, EXAMPLES, TASKS = settings.WAY, 2, 1600


def _regular(primary: int, stage: Any) -> tuple[Any, Any]:
  """A hierarchy and a plan of tasks that are primary units."""
  hierarchy = plan_lib.Hierarchy.regular(
      (primary, WAY, EXAMPLES), levels=settings.LEVELS
  )
  stages = (stage, plan_lib.FixedSize(WAY), plan_lib.FixedSize(EXAMPLES))
  return hierarchy, plan_lib.SamplingPlan(
      stages, episode=plan_lib.Episode(way=WAY, shot=1, query=1)
  )


def _of_classes(classes: int, taken: int, form: Any, tasks: int | None):
  hierarchy = plan_lib.Hierarchy.regular(
      (classes, 20), levels=("class", "image")
  )
  return hierarchy, plan_lib.SamplingPlan(
      (plan_lib.FixedSize(taken), plan_lib.FixedSize(EXAMPLES)),
      episode=plan_lib.Episode(
          way=WAY, shot=1, query=1, form=form, tasks=tasks
      ),
  )


def _ragged(participants: int, tasks: int) -> tuple[Any, Any]:
  rng = np.random.default_rng(0)
  sizes = [
      rng.integers(EXAMPLES, 20, rng.integers(WAY, 10)).tolist()
      for _ in range(participants)
  ]
  hierarchy = plan_lib.Hierarchy.from_sizes(sizes, levels=settings.LEVELS)
  return hierarchy, _regular(participants, plan_lib.FixedSize(tasks))[1]


def draws(tasks: int, largest: int) -> dict[str, tuple[Any, Any]]:
  """name -> hierarchy and plan."""
  small = max(10_000, 2 * tasks)
  fixed = plan_lib.FixedSize(tasks)
  return {
      "small": _regular(small, fixed),
      "large": _regular(largest, fixed),
      "poisson": _regular(largest, plan_lib.Poisson(tasks / largest)),
      "allocation": _regular(250 * tasks, plan_lib.RandomAllocation(250)),
      "disjoint": _of_classes(100_000, tasks * WAY, "disjoint", None),
      "independent": _of_classes(1000, WAY, "independent", tasks),
      "ragged": _ragged(small, tasks),
  }


def _draw(hierarchy: Any, plan: Any, per_turn: int = 1) -> Any:
  """A case that draws `per_turn` steps, one after the other."""
  key = jax.random.key(0)

  @jax.jit
  def one(step):
    drawn = sampling.sample(key, hierarchy, plan, step)
    return sampling.task_indices(*drawn, plan)

  step = 0

  def several():
    nonlocal step
    for _ in range(per_turn):
      step += 1
      drawn = harness.wait(one(step))
    return drawn

  return functools.partial(harness.timed, several)


def measure(options: harness.Options) -> dict[str, Any]:
  smoke = options.smoke
  tasks, per_turn, largest = (8, 1, 10**5) if smoke else (TASKS, 10, 10**8)
  some = draws(tasks, largest)
  if smoke:
    some = {name: some[name] for name in ("small", "large")}
  cases = {name: _draw(*one, per_turn) for name, one in some.items()}
  turns = harness.interleaved(cases, options.repeats)
  population = harness.ratio(turns["large"], turns["small"])
  step_tasks, participants = (4, 400) if smoke else (32, 400_000)
  run = settings.omniglot(
      inner_steps=1,
      query=1,
      width=4 if smoke else 64,
      participants=participants,
      stage=plan_lib.Poisson(step_tasks / participants),
      smoke=smoke,
  )
  step = harness.steps(run.step(), run.init())
  in_step_cases = {
      "draw": _draw(run.dataset.hierarchy, run.plan),
      "step": functools.partial(harness.timed, step),
  }
  harness.interleaved(in_step_cases, 1, warm_up=0)  # Compiles.
  with compilation.Compilations() as compiled:
    in_step = harness.interleaved(in_step_cases, options.repeats, warm_up=0)
  share = harness.ratio(in_step["draw"], in_step["step"], scale=100)
  return {
      "settings": {
          "tasks": tasks,
          "step_tasks": step_tasks,
          "participants": {
              name: hierarchy.num_units(0) for name, (hierarchy, _)
              in some.items()
          },
      },
      "cases": {
          name: harness.summary(found, per=per_turn)
          for name, found in turns.items()
      } | {name: harness.summary(found) for name, found in in_step.items()},
      "large_to_small": population,
      "share_percent": share,
      "compiled_after_the_first_step": compiled.count,
      "rows": [
          harness.row("sampler's share of a step", share, at_most=2, unit="%"),
          harness.row(
              f"draw of {tasks} tasks from {largest:,} participants / from"
              f" {some['small'][0].num_units(0):,}",
              population,
              at_most=1.5,
              unit="×",
          ),
          harness.row(
              f"programs compiled in {options.repeats} Poisson steps after the"
              " first",
              compiled.count,
              at_most=0,
          ),
      ],
  }


if __name__ == "__main__":
  harness.main(measure, repeats=9)
