"""Comparisons of steps: clipping and noise, peers, sampling."""

from collections.abc import Callable
from concurrent import futures
import dataclasses
import functools
import math
from typing import Any, NamedTuple

import jax
import numpy as np
import optax

from episodic_dp import plan as plan_lib
from episodic_dp import sampling as sampling_lib
from episodic_dp import training
from experiments.benchmarks import harness
from experiments.benchmarks import peers
from experiments.benchmarks import settings

TASKS, CHUNK = 16, 4
APART = 1e-2  # Largest relative difference: a pool may take another maximum.

# Clipping and noise -----------------------------------------------------------


def overhead(options: harness.Options) -> harness.Found:
  """Compare a private step of Conv4 with one without clipping and noise.

  The other step has clip_norm = infinity and noise_multiplier = 0. With 1 inner
  step and 1 query per class a task is as cheap as possible, so that additions
  are most visible.
  """
  widths, tasks = ((4,), CHUNK) if options.smoke else ((64, 16), TASKS)
  steps: dict[str, Any] = {}
  for width in widths:
    make = functools.partial(
        settings.omniglot, query=1, width=width, tasks=tasks,
        smoke=options.smoke,
    )
    without = make(clip_norm=math.inf, noise_multiplier=0.0)
    steps[f"private, Conv4-{width}"] = make().advance()
    steps[f"none, Conv4-{width}"] = without.advance()
  turns = harness.interleaved(steps, options)
  return harness.Found(
      settings={"tasks": tasks},
      cases=harness.summaries(turns),
      rows=[
          harness.row(
              f"private step / without clipping and noise, Conv4-{width}",
              harness.ratio(
                  turns[f"private, Conv4-{width}"],
                  turns[f"none, Conv4-{width}"],
              ),
              at_most=1.10,
              unit="×",
          )
          for width in widths
      ],
  )


def sample_level(options: harness.Options) -> harness.Found:
  """Compare clipping every example with clipping every task.

  Conv4 with group norm, first order, 5 inner steps. "task_level" clips a task's
  gradient and noises the sum; "sample_level" clips every query example's, and
  every support example's in every inner step, whose sum is noised too.
  """
  width, tasks, inner = (4, CHUNK, 2) if options.smoke else (64, TASKS, 5)
  make = functools.partial(
      settings.omniglot, inner_steps=inner, query=1, width=width, tasks=tasks,
      order="first", norm="group", smoke=options.smoke,
  )
  runs = {
      "task_level": make(),
      "sample_level": make(
          clip_unit="image", inner_clip_norm=1.0, inner_noise_multiplier=1.0
      ),
  }
  turns = harness.interleaved(
      {name: run.advance() for name, run in runs.items()}, options
  )
  return harness.Found(
      settings={"width": width, "tasks": tasks, "inner_steps": inner},
      cases=harness.summaries(turns),
      rows=[
          harness.row(
              f"sample-level step / task-level first-order step, Conv4-{width}",
              harness.ratio(turns["sample_level"], turns["task_level"]),
              at_most=2.0,
              unit="×",
          )
      ],
  )


def jax_privacy(options: harness.Options) -> harness.Found:
  """Compare the private step with one built on jax_privacy, second order.

  "ours" is the step of training, with tasks on every device; "one device" has
  the peer's number of tasks at once.
  """
  width, tasks = (4, CHUNK) if options.smoke else (16, TASKS)
  run = settings.omniglot(
      query=1, width=width, tasks=tasks, smoke=options.smoke
  )
  cases = {
      "ours": run.advance(mesh=training.make_mesh()),
      "one device": run.advance(microbatch_size=CHUNK),
  }
  named = {}
  if peers.installed("jax_privacy"):
    cases["jax_privacy"] = peers.jax_privacy_step(run, CHUNK)
    named = {
        "ours": "all cores",
        "one device": f"one device, {CHUNK} tasks at once",
    }
  turns = harness.interleaved(cases, options)
  return harness.Found(
      settings={"width": width, "tasks": tasks, "microbatch_size": CHUNK},
      cases=harness.summaries(turns),
      rows=[
          harness.row(
              f"jax_privacy / private step, {text}, Conv4-{width}",
              harness.ratio(turns["jax_privacy"], turns[case]),
              unit="×",
          )
          for case, text in named.items()
      ],
  )


# The meta-step ----------------------------------------------------------------


class Case(NamedTuple):
  """Sizes of a case: queries of a class; 0 inner steps for a ProtoNet."""

  width: int
  inner_steps: int
  query: int
  tasks: int


CASES = {
    "a": Case(64, 1, 15, 16),
    "b": Case(64, 5, 1, 16),
    "narrow": Case(16, 1, 1, 32),
    "protonet": Case(32, 0, 15, 32),
}
SMOKE = {"narrow": Case(4, 1, 1, 2), "protonet": Case(4, 0, 1, 2)}
TARGETS = {"a": 1.4, "b": 1.9, "narrow": 3.5}  # Times as fast as PyTorch.
_ON_ONE_H200 = 0.5  # Milliseconds a task of case (b).


def make_run(
    case: Case, shape: tuple[int, int, int] = (28, 28, 1)
) -> settings.Run:
  """Return a run without noise; its update is the mean clipped gradient."""
  run = settings.omniglot(
      inner_steps=case.inner_steps,
      inner_rate=peers.RATE,
      query=case.query,
      width=case.width,
      tasks=case.tasks,
      participants=max(200, case.tasks),
      shape=shape,
      clip_norm=peers.CLIP,
      noise_multiplier=0.0,
      learner="maml" if case.inner_steps else "protonet",
  )
  return dataclasses.replace(run, optimizer=optax.sgd(1.0))


def first_sum(run: settings.Run, case: Case, **compute: Any) -> Any:
  """Return the first step's sum of clipped gradients."""
  before = run.init()
  after, _ = run.step(**compute)(run.init())
  return jax.tree.map(
      lambda a, b: case.tasks * (np.asarray(a) - np.asarray(b)),
      before.params, after.params,
  )


def meta_step(options: harness.Options) -> harness.Found:
  """Compare the private meta-step's gradients with PyTorch.

  5-way 1-shot tasks of 28 x 28, Conv4 with batch normalisation and max-pool,
  every task's gradient clipped and summed: second-order MAML, (a) 1 inner step
  and 15 queries per class, (b) 5 and 1, a narrow network, and a prototypical
  network. "ours" divides the tasks among the devices (every core of a CPU is
  one), "torch" is `peers.Loops`.

  All start from the same weights and tasks, and our sum must agree within 1e-2
  with torch in float64. Rounding to float32 may change the maximum of a pool,
  more often for larger inner steps, so the inner steps are small.
  """
  cases: dict[str, Any] = {}
  more: dict[str, Any] = {}
  rows = []
  for name, case in (SMOKE if options.smoke else CASES).items():
    turns, apart = _case_turns(case, options)
    found = harness.summaries(turns, case.tasks)
    cases |= {f"{name}, {peer}": times for peer, times in found.items()}
    more[name] = {"apart": apart, **case._asdict()}
    if "torch" in turns:
      rows.append(harness.row(
          f"meta-step ({name}): PyTorch loops, side by side / all cores",
          harness.ratio(turns["torch"], turns["ours"]),
          at_least=TARGETS.get(name), unit="×",
          note=f"{1e3 * found['ours']['seconds']:.1f} ms a task",
      ))
  return harness.Found(settings={}, cases=cases, rows=rows, more=more)


def _case_turns(
    case: Case, options: harness.Options
) -> tuple[dict[str, list[harness.Turn]], float | None]:
  """Return the turns of a case, and the distance of our sum from torch's.

  Raises:
    ValueError: the sums differ by more than rounding explains.
  """
  run, mesh = make_run(case), training.make_mesh()
  functions = {"ours": run.advance(mesh=mesh)}
  if not peers.installed("torch"):
    return harness.interleaved(functions, options), None
  params = jax.device_get(run.init().params)
  arguments = (params, case.inner_steps, run.drawn_tasks())
  exact = peers.torch_sum(*arguments, "float64")()
  apart = peers.difference(first_sum(run, case, mesh=mesh), exact)
  if not apart < APART:
    raise ValueError(f"sums of clipped gradients differ by {apart:.3g}")
  loops = peers.Loops(*arguments)
  turns = harness.interleaved(functions | {"torch": loops.turn}, options)
  loops.close()
  return turns, apart


# Shape of an image, sizes, tasks at once.
_SMALL, _COLOUR = (28, 28, 1), (32, 32, 3)
_ON_ACCELERATORS = [
    (_SMALL, CASES["b"]._replace(tasks=256), 32),
    (_SMALL, CASES["b"]._replace(tasks=256), 64),
    (_SMALL, Case(64, 0, 4, 1536), 64),
    (_COLOUR, Case(32, 0, 4, 1536), 64),
    (_COLOUR, Case(64, 0, 4, 1536), 64),
    (_COLOUR, Case(64, 0, 4, 1536), 256),
    ((42, 42, 3), Case(64, 0, 4, 768), 64),
    ((84, 84, 3), Case(64, 0, 4, 384), 64),
]


def accelerator(options: harness.Options) -> harness.Found:
  """Measure the time of a task on one device, by learner, image and batch.

  5-way 1-shot tasks, Conv4, clipping; ProtoNet takes all images in turn as
  support. A few programs are compiled side by side, and the steps then run in
  turns. This is for a GPU or TPU; on a CPU --smoke shows that it works.
  """
  cases = _ON_ACCELERATORS
  if options.smoke:
    cases = [(_SMALL, case, 2) for case in SMOKE.values()]

  def compiled(one: Any) -> Callable[[], Any]:
    shape, case, at_once = one
    run = make_run(case, shape)
    if not case.inner_steps:
      learner: Any = run.learner
      learner = dataclasses.replace(learner, rotate_support=True)
      run = dataclasses.replace(run, learner=learner)
    step, state = run.step(microbatch_size=at_once), run.init()
    step.compile(state)
    return harness.steps(step, state)

  with futures.ThreadPoolExecutor(4) as pool:
    steps = dict(zip(map(_task_of, cases), pool.map(compiled, cases)))
  turns = harness.interleaved(steps, options)
  found: dict[str, Any] = {}
  for (name, measured), (_, case, _) in zip(turns.items(), cases):
    found |= harness.summaries({name: measured}, case.tasks)
  return harness.Found(
      settings={},
      cases=found,
      rows=[
          harness.row(
              f"one device, {name}", 1e3 * times["seconds"], unit="ms",
              at_most=_ON_ONE_H200 if name.startswith("MAML") else None,
          )
          for name, times in found.items()
      ],
  )


def _task_of(one: Any) -> str:
  """Name a case of `accelerator`."""
  shape, case, at_once = one
  learner = f"MAML, {case.inner_steps} inner steps"
  size = " x ".join(map(str, shape))
  return (
      f"{learner if case.inner_steps else 'ProtoNet'}, width {case.width},"
      f" {size}, {at_once} tasks at once"
  )


# Sampling ---------------------------------------------------------------------


def _draw(hierarchy: Any, plan: Any, per_turn: int = 1) -> Callable[[], Any]:
  """Return a case that samples `per_turn` steps in sequence."""
  key = jax.random.key(0)

  @jax.jit
  def one(step: int) -> Any:
    drawn = sampling_lib.sample(key, hierarchy, plan, step)
    return sampling_lib.task_indices(*drawn, hierarchy, plan)

  step = 0

  def several() -> Any:
    nonlocal step
    for _ in range(per_turn):
      step += 1
      drawn = harness.wait(one(step))
    return drawn

  return several


def sampling(options: harness.Options) -> harness.Found:
  """Measure samples from few and many participants, and of a whole step.

  Samples of 1600 tasks of 10 examples, compiled: "small" and "large", from 10^4
  and from 10^8 participants. Also a whole step (Conv4-64, second order, 1 inner
  step, 1 query per class, 32 of 400 000 participants expected: the cheapest
  task, so that the sampler's share is largest) and its sampling only. The
  number of tasks differs from step to step, without a new compilation.
  """
  smoke = options.smoke
  tasks, per_turn, largest = (8, 1, 10**5) if smoke else (1600, 10, 10**8)
  smallest = 10_000
  described = {
      name: settings.omniglot(
          query=1, participants=count, tasks=tasks, smoke=True
      )
      for name, count in (("small", smallest), ("large", largest))
  }
  turns = harness.interleaved(
      {
          name: _draw(run.dataset.hierarchy, run.plan, per_turn)
          for name, run in described.items()
      },
      options,
  )
  some, participants = (4, 400) if smoke else (32, 400_000)
  run = settings.omniglot(
      query=1, participants=participants, smoke=smoke,
      stage=plan_lib.Poisson(some / participants),
  )
  both = {
      "draw": _draw(run.dataset.hierarchy, run.plan), "step": run.advance()
  }
  for case in both.values():
    harness.wait(case())  # Compiles.
  compiled: list[str] = []

  def note(event: str, duration_secs: float, **kwargs: Any) -> None:
    del duration_secs, kwargs
    if event.endswith("backend_compile_duration"):
      compiled.append(event)

  jax.monitoring.register_event_duration_secs_listener(note)
  in_step = harness.interleaved(both, options, warm_up=0)
  return harness.Found(
      settings={"tasks": tasks, "participants": [smallest, largest]},
      cases=harness.summaries(turns, per_turn) | harness.summaries(in_step),
      rows=[
          harness.row(
              "sampler's share of a step",
              harness.ratio(in_step["draw"], in_step["step"], scale=100),
              at_most=2,
              unit="%",
          ),
          harness.row(
              f"draw of {tasks} tasks from {largest:,} participants / from"
              f" {smallest:,}",
              harness.ratio(turns["large"], turns["small"]),
              at_most=1.5,
              unit="×",
          ),
          harness.row(
              f"programs compiled in {options.repeats} Poisson steps after the"
              " first",
              len(compiled),
              at_most=0,
          ),
      ],
  )
