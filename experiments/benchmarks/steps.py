"""Comparisons of steps: clipping and noise, peers, sampling."""

from collections.abc import Callable, Mapping, Sequence
from concurrent import futures
import dataclasses
import functools
import itertools
import math
import os
import statistics
from typing import Any, NamedTuple

from absl import logging
import jax
import numpy as np
import optax

from episodic_dp import errors
from episodic_dp import plan as plan_lib
from episodic_dp import sampling as sampling_lib
from episodic_dp import training
from episodic_dp.config.presets import glyphs
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
  return _of_two(
      options, "private step / without clipping and noise", 1.10,
      {"private": {}, "none": dict(clip_norm=math.inf, noise_multiplier=0.0)},
  )


def sample_level(options: harness.Options) -> harness.Found:
  """Compare clipping every example with clipping every task.

  Conv4 with group norm, first order, 5 inner steps. "task_level" clips a task's
  gradient and noises the sum; "sample_level" clips every query example's, and
  every support example's in every inner step, whose sum is noised too.
  """
  return _of_two(
      options, "sample-level step / task-level first-order step", 2.0,
      {
          "sample_level": dict(
              clip_unit="image", inner_clip_norm=1.0,
              inner_noise_multiplier=1.0,
          ),
          "task_level": {},
      },
      inner_steps=2 if options.smoke else 5, order="first", norm="group",
  )


def _of_two(
    options: harness.Options,
    text: str,
    at_most: float,
    mechanisms: Mapping[str, Mapping[str, Any]],
    **learner: Any,
) -> harness.Found:
  """Measure the ratio of two steps whose mechanisms differ."""
  width, tasks = (4, CHUNK) if options.smoke else (64, TASKS)
  cases = {}
  for name, mechanism in mechanisms.items():
    cases[name] = settings.omniglot(
        query=1, width=width, tasks=tasks, smoke=options.smoke, **learner,
        **mechanism,
    ).advance()
  turns = harness.interleaved(cases, options)
  first, second = turns.values()
  found = {"width": width, "tasks": tasks}
  if "inner_steps" in learner:
    found["inner_steps"] = learner["inner_steps"]
  return harness.Found(
      settings=found,
      cases=harness.summaries(turns),
      rows=[harness.row(
          f"{text}, Conv4-{width}", harness.ratio(first, second),
          at_most=at_most, unit="×",
      )],
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
  if peers.installed("jax_privacy"):
    cases["jax_privacy"] = peers.jax_privacy_step(run, CHUNK)
  turns = harness.interleaved(cases, options)
  rows = []
  if "jax_privacy" in turns:
    for case, text in (
        ("ours", "all cores"),
        ("one device", f"one device, {CHUNK} tasks at once"),
    ):
      rows.append(harness.row(
          f"jax_privacy / private step, {text}, Conv4-{width}",
          harness.ratio(turns["jax_privacy"], turns[case]),
          unit="×",
      ))
  return harness.Found(
      settings={"width": width, "tasks": tasks, "microbatch_size": CHUNK},
      cases=harness.summaries(turns),
      rows=rows,
  )


# The meta-step ----------------------------------------------------------------


_SMALL, _COLOUR, _LARGE = (28, 28, 1), (32, 32, 3), (84, 84, 3)


class Case(NamedTuple):
  """A learner and its sizes; `query` counts images of a class."""

  kind: settings.Kind
  width: int
  query: int
  tasks: int
  inner_steps: int = 0
  shape: tuple[int, int, int] = _SMALL

  def __str__(self) -> str:
    """Describe it in a row or a line of a log."""
    size = " x ".join(map(str, self.shape))
    learner: str = self.kind
    if self.inner_steps:
      learner += f", {self.inner_steps} inner steps"
    return f"{learner}, width {self.width}, {self.query} queries, {size}"


CASES = {
    "a": Case("maml", 64, 15, 64, inner_steps=1),
    "b": Case("maml", 64, 1, 32, inner_steps=5),
    "narrow": Case("maml", 16, 1, 256, inner_steps=1),
}
SMOKE = {
    "narrow": Case("maml", 4, 1, 2, inner_steps=1),
    "protonet": Case("protonet", 4, 1, 2),
}
TARGETS = {"a": 1.4, "b": 1.9, "narrow": 3.5}  # Times as fast as PyTorch.
_ON_ONE_H200 = 0.5  # Milliseconds a task of case (b).


def make_run(case: Case) -> settings.Run:
  """Return a run without noise; its update is the mean clipped gradient."""
  return dataclasses.replace(
      settings.omniglot(
          inner_steps=case.inner_steps,
          inner_rate=peers.RATE,
          query=case.query,
          width=case.width,
          tasks=case.tasks,
          participants=2 * max(100, case.tasks),
          shape=case.shape,
          clip_norm=peers.CLIP,
          noise_multiplier=0.0,
          learner=case.kind,
      ),
      optimizer=optax.sgd(1.0),
  )


def first_sum(
    run: settings.Run, case: Case, **compute: Any
) -> tuple[Callable[[], Any], Any]:
  """Return steps as a case, and the first one's sum of clipped gradients."""
  step, state = run.step(**compute), run.init()
  before = jax.device_get(state.params)
  state, _ = step(state)
  total = jax.tree.map(
      lambda a, b: case.tasks * (a - np.asarray(b)), before, state.params
  )
  return harness.steps(step, state), total


def _compared(
    cases: Mapping[str, Case], options: harness.Options
) -> dict[str, dict[str, Any]]:
  """Compare steps on all devices with PyTorch's best way.

  All start from the same weights and tasks, and our sum must agree within 1e-2
  with torch's loop in float64. Rounding to float32 may change the maximum of a
  pool, more often for larger inner steps, so the inner steps are small.

  Returns:
    name -> times of a task, PyTorch's best way, the ratio of its time and ours,
    and how far apart the sums are.

  Raises:
    RunError: sums differ by more than rounding explains.
  """
  mesh, found = training.make_mesh(), {}
  workers = peers.Workers() if peers.installed("torch") else None
  for name, case in cases.items():
    run = make_run(case)
    ours, total = first_sum(run, case, mesh=mesh)
    functions, one = {"ours": ours}, dict(case._asdict())
    if workers is not None:
      problem = peers.Problem(
          case.kind, jax.device_get(run.init().params), run.drawn_tasks(),
          case.inner_steps,
      )
      one["apart"] = peers.difference(
          total, problem._replace(dtype="float64").torch_sum()()
      )
      if not one["apart"] < APART:
        raise errors.RunError(f"{name}: sums differ by {one['apart']:.3g}")
      ways = list(peers.WAYS)
      if case.inner_steps:
        ways = ["loop"]
      functions |= {way: workers.case(problem, way) for way in ways}
    turns = harness.interleaved(functions, options)
    times = harness.summaries(turns, case.tasks)
    one["times"] = times
    if workers is not None:
      one["best"] = min(ways, key=lambda way: times[way]["seconds"])
      one["ratio"] = harness.ratio(turns[one["best"]], turns["ours"])
      logging.info("%s: %s", name, one["ratio"])
    found[name] = one
  if workers is not None:
    workers.close()
  return found


def _found(
    found: Mapping[str, Mapping[str, Any]], rows: Sequence[Any]
) -> harness.Found:
  """Return the result of a benchmark that has compared cases."""
  times = {}
  for name, one in found.items():
    for program, seconds in one["times"].items():
      times[f"{name}, {program}"] = seconds
  return harness.Found(settings={}, cases=times, rows=rows, more=found)


def meta_step(options: harness.Options) -> harness.Found:
  """Compare the private meta-step of second-order MAML with PyTorch loops.

  5-way 1-shot tasks of 28 x 28, Conv4 with batch normalisation and max-pool,
  every task's gradient clipped and summed: (a) 1 inner step and 15 queries per
  class, (b) 5 and 1, and a narrow network.
  """
  found, rows = _compared(SMOKE if options.smoke else CASES, options), []
  for name, one in found.items():
    if "ratio" in one:
      rows.append(harness.row(
          f"meta-step ({name}): PyTorch loops, side by side / all cores",
          one["ratio"], at_least=TARGETS.get(name), unit="×",
          note=f"{1e3 * one['times']['ours']['seconds']:.1f} ms a task",
      ))
  return _found(found, rows)


# Learners and their queries of a class; and what a turn may take.
_SHARED: Sequence[tuple[settings.Kind, Sequence[int]]] = (
    ("protonet", (1, 15)), ("ridge", (1, 15)), ("supervised", (0,)),
    ("turns", (4,)),
)
_OPERATIONS, _MOST_TASKS = 2e10, 256


def _shared_cases() -> dict[str, Case]:
  """Return the learners whose tasks share the weights, in every size."""
  cases, shapes = {}, (_SMALL, _COLOUR, _LARGE)
  for kind, queries in _SHARED:
    sizes = itertools.product((16, 32, 64), queries, shapes)
    for width, query, shape in sizes:
      case = Case(kind, width, query, 0, shape=shape)
      cases[str(case)] = case._replace(tasks=_affordable(case))
  return cases


def _affordable(case: Case) -> int:
  """Return a number of tasks that take a second or a few."""
  images = settings.WAY * (settings.SHOT + case.query)
  if case.kind == "supervised":
    images = 1
  # About the multiplications and additions of the first two blocks, thrice.
  channels = case.shape[-1] + case.width / 4
  task = images * math.prod(case.shape[:2]) * 54 * case.width * channels
  at_most = min(_MOST_TASKS, int(_OPERATIONS / task / peers.CORES))
  return peers.CORES * max(4, at_most)


def shared_weights(options: harness.Options) -> harness.Found:
  """Compare learners whose tasks share the weights with PyTorch's best way.

  ProtoNet and ridge on 5-way 1-shot tasks, ProtoNet with all images in turn as
  the support, and supervised learning of single examples (DP-SGD).
  """
  found = _compared(SMOKE if options.smoke else _shared_cases(), options)
  rows = []
  for turns, text in ((False, "shared weights"), (True, "turns as support")):
    ratios = {}
    for name, one in found.items():
      if "ratio" in one and (one["kind"] == "turns") == turns:
        ratios[name] = one["ratio"]["median"]
    if ratios:
      values = sorted(ratios.values())
      faster = [value for value in values if value >= 1]
      rows += [
          harness.row(
              f"{text}, median of {len(values)} cases: PyTorch's best way /"
              " all cores",
              statistics.median(values), at_least=1.3, unit="×",
              note=f"at least 1 in {len(faster)}",
          ),
          harness.row(
              f"{text}, the least", values[0], at_least=1.0, unit="×",
              note=min(ratios, key=ratios.__getitem__),
          ),
      ]
  return _found(found, rows)


# Name -> seconds of compiling that are acceptable.
_COMPILED = {"a": 6, "b": 10, "main": 4}


def compiling(options: harness.Options) -> harness.Found:
  """Measure compiling a step on one core with nothing cached: three programs.

  (a) and (b) of `meta_step`, and "main", the preset glyphs.
  """
  names = ["narrow"] if options.smoke else list(_COMPILED)
  cases = {
      name: functools.partial(
          harness.in_a_process, "steps.compile_alone", name
      )
      for name in names
  }
  times = harness.summaries(harness.interleaved(cases, options, warm_up=0))
  rows = []
  for name, one in times.items():
    rows.append(harness.row(
        f"compiling ({name}) on one core", one["seconds"],
        at_most=_COMPILED.get(name), unit="s",
    ))
  return harness.Found(settings={}, cases=times, rows=rows)


def compile_alone(name: str) -> harness.Turn:
  """Compile a step on one core, in a new process that has not used JAX."""
  os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
  jax.config.update("jax_enable_compilation_cache", False)
  if name == "main":
    spec = glyphs.glyphs().build()
    run = settings.Run(
        learner=spec.learner, dataset=spec.train, plan=spec.release.plan,
        mechanism=spec.release.mechanism, optimizer=spec.optimizer,
    )
  else:
    run = make_run({**CASES, **SMOKE}[name])
  step, state = run.step(), run.init()
  return harness.timed(lambda: step.compile(state))


# Sizes, and tasks at once.
_ON_ACCELERATORS = [
    (CASES["b"]._replace(tasks=256), 32),
    (CASES["b"]._replace(tasks=256), 64),
    (Case("turns", 64, 4, 1536), 64),
    (Case("turns", 32, 4, 1536, shape=_COLOUR), 64),
    (Case("turns", 64, 4, 1536, shape=_COLOUR), 64),
    (Case("turns", 64, 4, 1536, shape=_COLOUR), 256),
    (Case("turns", 64, 4, 768, shape=(42, 42, 3)), 64),
    (Case("turns", 64, 4, 384, shape=_LARGE), 64),
]


def accelerator(options: harness.Options) -> harness.Found:
  """Measure the time of a task on one device, by learner, image and batch.

  5-way 1-shot tasks, Conv4, clipping. A few programs are compiled side by side,
  and the steps then run in turns. This is for a GPU or TPU; on a CPU --smoke
  shows that it works.
  """
  cases = _ON_ACCELERATORS
  if options.smoke:
    cases = [(case, 2) for case in SMOKE.values()]

  def compiled(one: tuple[Case, int]) -> Callable[[], Any]:
    run = make_run(one[0])
    step, state = run.step(microbatch_size=one[1]), run.init()
    step.compile(state)
    return harness.steps(step, state)

  names = [f"{case}, {at_once} tasks at once" for case, at_once in cases]
  with futures.ThreadPoolExecutor(4) as pool:
    steps = dict(zip(names, pool.map(compiled, cases)))
  turns = harness.interleaved(steps, options)
  found, rows = {}, []
  for name, (case, _) in zip(names, cases):
    times = found[name] = harness.summaries(turns, case.tasks)[name]
    at_most = _ON_ONE_H200 if case.kind == "maml" else None
    rows.append(harness.row(
        f"one device, {name}", 1e3 * times["seconds"], unit="ms",
        at_most=at_most,
    ))
  return harness.Found(settings={}, cases=found, rows=rows)


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
  tasks, per_turn = (8, 1) if smoke else (1600, 10)
  smallest, largest = 10**4, 10**5 if smoke else 10**8
  draws = {}
  for name, count in (("small", smallest), ("large", largest)):
    run = settings.omniglot(
        query=1, participants=count, tasks=tasks, smoke=True
    )
    draws[name] = _draw(run.dataset.hierarchy, run.plan, per_turn)
  turns = harness.interleaved(draws, options)
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
