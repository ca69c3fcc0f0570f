"""What sampling costs.

Draws of 1600 tasks of 10 examples (5 classes, 2 of each), compiled: "small" and
"large", from 10^4 and from 10^8 participants, and "poisson", from 10^8, each
with probability 1600 / 10^8; and a whole step (Conv4-64, second order, 1 inner
step, 1 query per class, 32 of 400 000 participants expected: the cheapest task,
of which the sampler's share is the largest) beside "draw", its draw alone. The
number of tasks differs from step to step, and nothing is compiled for it.
"""

from collections.abc import Callable
from typing import Any

import jax

from episodic_dp import plan as plan_lib
from episodic_dp import sampling
from episodic_dp.training import compilation
from experiments.benchmarks import harness
from experiments.benchmarks import settings

WAY, EXAMPLES, TASKS = settings.WAY, 2, 1600


def regular(primary: int, stage: Any) -> tuple[Any, Any]:
  """A hierarchy and a plan of tasks that are primary units."""
  hierarchy = plan_lib.Hierarchy.regular(
      (primary, WAY, EXAMPLES), levels=settings.LEVELS
  )
  stages = (stage, plan_lib.FixedSize(WAY), plan_lib.FixedSize(EXAMPLES))
  return hierarchy, plan_lib.SamplingPlan(
      stages, episode=plan_lib.Episode(way=WAY, shot=1, query=1)
  )


def draw(hierarchy: Any, plan: Any, per_turn: int = 1) -> Callable[[], Any]:
  """A case that draws `per_turn` steps, one after the other."""
  key = jax.random.key(0)

  @jax.jit
  def one(step):
    drawn = sampling.sample(key, hierarchy, plan, step)
    return sampling.task_indices(*drawn, hierarchy, plan)

  step = 0

  def several():
    nonlocal step
    for _ in range(per_turn):
      step += 1
      drawn = harness.wait(one(step))
    return drawn

  return several


def _in_step(
    options: harness.Options,
) -> tuple[dict[str, list[harness.Turn]], int]:
  """Turns of "draw" and "step", and how many programs they compiled."""
  tasks, participants = (4, 400) if options.smoke else (32, 400_000)
  run = settings.omniglot(
      inner_steps=1,
      query=1,
      width=4 if options.smoke else 64,
      participants=participants,
      stage=plan_lib.Poisson(tasks / participants),
      smoke=options.smoke,
  )
  cases = {
      "draw": draw(run.dataset.hierarchy, run.plan),
      "step": run.advance(),
  }
  for case in cases.values():
    harness.wait(case())  # Compiles.
  with compilation.Compilations() as compiled:
    turns = harness.interleaved(cases, options, warm_up=0)
  return turns, compiled.count


def measure(options: harness.Options) -> harness.Found:
  """Draws from few and from many, then the draw of a whole step."""
  smoke = options.smoke
  tasks, per_turn, largest = (8, 1, 10**5) if smoke else (TASKS, 10, 10**8)
  fixed = plan_lib.FixedSize(tasks)
  some = {
      "small": regular(max(10_000, 2 * tasks), fixed),
      "large": regular(largest, fixed),
      "poisson": regular(largest, plan_lib.Poisson(tasks / largest)),
  }
  turns = harness.interleaved(
      {name: draw(*one, per_turn) for name, one in some.items()}, options
  )
  in_step, compiled = _in_step(options)
  cases = harness.summaries(turns, per_turn) | harness.summaries(in_step)
  return harness.Found(
      settings={
          "tasks": tasks,
          "participants": {
              name: hierarchy.num_units(0)
              for name, (hierarchy, _) in some.items()
          },
      },
      cases=cases,
      rows=[
          harness.row(
              "sampler's share of a step",
              harness.ratio(in_step["draw"], in_step["step"], scale=100),
              at_most=2,
              unit="%",
          ),
          harness.row(
              f"draw of {tasks} tasks from {largest:,} participants / from"
              f" {some['small'][0].num_units(0):,}",
              harness.ratio(turns["large"], turns["small"]),
              at_most=1.5,
              unit="×",
          ),
          harness.row(
              f"programs compiled in {options.repeats} Poisson steps after the"
              " first",
              compiled,
              at_most=0,
          ),
      ],
  )
