"""Measurements that need processes of their own: compiling, memory, devices.

JAX is imported where a process has chosen its cores.
"""

import functools
import json
import os
import pathlib
import re
import socket
import subprocess
import sys
import time
from typing import Any

import numpy as np

from experiments.benchmarks import harness

# Compiling --------------------------------------------------------------------

# name -> text, and the seconds it should take at most.
CASES = {
    "a": ("meta-step (a), Conv4-64, 1 inner step, 15 queries", 8.0),
    "b": ("meta-step (b), Conv4-64, 5 inner steps, 1 query", 10.0),
    "main": ("a step of the built-in main job", 4.0),
}


def of_compiling(case: str, smoke: bool) -> harness.Turn:
  """Measure the first call of a step less the second one, on one core."""
  if hasattr(os, "sched_setaffinity"):
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
  import jax  # Lazy imports: see above.

  from episodic_dp import private
  from episodic_dp.config import build
  from episodic_dp.config import RunConfig
  from episodic_dp.config.presets import glyphs
  from experiments.benchmarks import steps

  jax.config.update("jax_enable_compilation_cache", False)
  if case == "main":
    spec = build.build(RunConfig.parse(glyphs.get_config(""))).spec
    step = private.make_meta_step(
        spec.learner, spec.optimizer, spec.train, spec.release,
        compute=private.Compute(mesh=None),
    )
    state = private.init(
        jax.random.key(0), spec.learner, spec.optimizer, spec.release.mechanism
    )
  else:
    run = steps.make_run(steps.SMOKE["narrow"] if smoke else steps.CASES[case])
    step, state = run.step(), run.init()
  take = harness.steps(step, state)
  first, second = harness.timed(take), harness.timed(take)
  return harness.Turn(
      first.seconds - second.seconds,
      first.cpu_seconds - second.cpu_seconds,
      first.machine_free,
  )


def compiling(options: harness.Options) -> harness.Found:
  """Measure how long a user waits for the first step, with nothing cached."""

  def case(name: str) -> harness.Turn:
    return harness.Turn(*harness.in_a_process(
        "processes.of_compiling", name, options.smoke
    ))

  turns = harness.interleaved(
      {
          name: functools.partial(case, name)
          for name in (["a"] if options.smoke else CASES)
      },
      options,
      warm_up=0,
  )
  cases = harness.summaries(turns)
  rows = [
      harness.row(
          f"compiling {CASES[name][0]}",
          {
              "median": one["seconds"], "least": one["fastest"],
              "most": one["slowest"],
          },
          at_most=CASES[name][1],
          unit="s",
      )
      for name, one in cases.items()
  ]
  return harness.Found(settings={"cores": 1}, cases=cases, rows=rows)


# Memory -----------------------------------------------------------------------

TASKS, CHUNK = (64, 1600), 4


def of_step(tasks: int, smoke: bool) -> dict[str, Any]:
  """Return the bytes of one step, in this process."""
  import jax  # Lazy imports: the parent leaves the device to this process.

  from experiments.benchmarks import settings

  run = settings.omniglot(
      query=1, width=16, tasks=tasks, participants=2 * max(TASKS), smoke=smoke
  )
  step = jax.jit(run.step(microbatch_size=CHUNK), donate_argnums=0)
  state = run.init()
  compiled = step.lower(state).compile()
  analysis = compiled.memory_analysis()
  before = _held(reset=True)
  turn = harness.timed(harness.steps(compiled, state))
  return {
      "tasks": tasks,
      "temporary": analysis and analysis.temp_size_in_bytes,
      "before": before,
      "peak": _held(reset=False),
      "seconds": turn.seconds,
  }


def _held(*, reset: bool) -> int | None:
  """Return bytes held at most since the last reset; None where unknown."""
  import jax  # Lazy import: as above.

  on_device = jax.devices()[0].memory_stats()
  if on_device is not None:
    return on_device["bytes_in_use" if reset else "peak_bytes_in_use"]
  process = pathlib.Path("/proc/self")
  if not process.exists():  # Not Linux.
    return None
  if reset:
    (process / "clear_refs").write_text("5", encoding="ascii")
  status = (process / "status").read_text(encoding="ascii")
  found = re.search(r"VmHWM:\s*(\d+) kB", status)
  return int(found[1]) * 1024 if found else None


def memory(options: harness.Options) -> harness.Found:
  """Compare the memory of a step of few tasks with one of many.

  In chunks of 4 (Conv4-16, second order, 1 inner step, 1 query per class).
  "temporary" are the bytes that the compiled step asks for besides its inputs
  and outputs, by the compiler's own account; "peak" the most that the process
  held while a step ran. A narrow network is a strict case: growth with the
  number of tasks (the rows drawn) is not hidden behind a large network.
  """
  tasks = (CHUNK, 3 * CHUNK) if options.smoke else TASKS
  few, many = (
      harness.in_a_process("processes.of_step", count, options.smoke)
      for count in tasks
  )
  return harness.Found(
      settings={"width": 16, "microbatch_size": CHUNK},
      cases={str(count): one for count, one in zip(tasks, (few, many))},
      rows=[
          harness.row(
              f"{text}, {tasks[1]} tasks / {tasks[0]}",
              many[name] / few[name],
              at_most=1.05,
              unit="×",
          )
          for name, text in (
              ("temporary", "temporary memory of the compiled step"),
              ("peak", "peak memory of the process during a step"),
          )
          if few[name] and many[name]
      ],
  )


# Two processes ----------------------------------------------------------------

_CPU = {
    "JAX_PLATFORMS": "cpu",
    "XLA_FLAGS": (
        "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    ),
}
_EIGHT = {"XLA_FLAGS": "--xla_force_host_platform_device_count=8"}


def devices(options: harness.Options) -> harness.Found:
  """Compare two processes of one core each with one, then devices of one.

  Both cases take the same steps from the same key, with the same tasks in all;
  the two processes share them out and meet in one all-reduce a step. Their
  parameters are compared after one step: from the second on, rounding may take
  another maximum of a pool on these random images. Also compared are 1, 2, 4
  and 8 host devices of one process, after three steps of a linear model.
  """
  steps = 1 if options.smoke else 4
  cores = sorted(os.sched_getaffinity(0))
  groups = {
      name: _start(count, cores, options.smoke)
      for name, count in (("one", 1), ("two", 2))
  }
  params = {
      name: np.asarray(_ask(group, 1)[0]["params"])
      for name, group in groups.items()
  }
  turns = harness.interleaved(
      {n: functools.partial(_turn, g, steps) for n, g in groups.items()},
      options,
  )
  for group in groups.values():
    for worker in group:  # They leave together.
      assert worker.stdin is not None
      worker.stdin.close()
    for worker in group:
      worker.wait()
  apart = harness.in_a_process("processes.of_host_devices", env=_CPU | _EIGHT)
  return harness.Found(
      settings={"steps": steps, "cores": len(cores)},
      cases=harness.summaries(turns, steps),
      rows=[
          harness.row(
              "steps of two processes / of one, a core each",
              harness.ratio(turns["one"], turns["two"]),
              at_least=1.5,
              unit="×",
          ),
          harness.row(
              "parameters of two processes from one, after one step",
              _distance(params["two"], params["one"]),
              at_most=1e-6,
          ),
          harness.row(
              "parameters of 2, 4 and 8 host devices from one",
              max(apart.values()),
              at_most=1e-6,
          ),
      ],
      more={"apart": apart},
  )


def _start(count: int, cores: list[int], smoke: bool) -> list[subprocess.Popen]:
  """Start processes that take steps together, a core each."""
  with socket.socket() as s:
    s.bind(("localhost", 0))
    port = s.getsockname()[1]
  code = "from experiments.benchmarks import processes; processes.work()"
  return [
      subprocess.Popen(
          [sys.executable, "-c", code, json.dumps({
              "port": port, "count": count, "id": i, "smoke": smoke,
              "core": cores[i % len(cores)],
          })],
          env=os.environ | _CPU,
          stdin=subprocess.PIPE,
          stdout=subprocess.PIPE,
          text=True,
      )
      for i in range(count)
  ]


def _ask(group: list[subprocess.Popen], steps: int) -> list[dict[str, Any]]:
  """Let all processes take some steps, and wait for their answers."""
  found = []
  for worker in group:
    assert worker.stdin is not None
    worker.stdin.write(f"{steps}\n")
    worker.stdin.flush()
  for worker in group:
    assert worker.stdout is not None
    # Gloo prints lines of its own.
    answers = (line for line in worker.stdout if line.startswith("{"))
    found.append(json.loads(next(answers)))
  return found


def _turn(group: list[subprocess.Popen], steps: int) -> harness.Turn:
  began = time.perf_counter()
  answers = _ask(group, steps)
  seconds = time.perf_counter() - began
  return harness.Turn(seconds, max(a["cpu_seconds"] for a in answers), None)


def work() -> None:
  """Take steps as the lines of the input say; print processor times."""
  task = json.loads(sys.argv[1])
  os.sched_setaffinity(0, {task["core"]})
  import jax  # Lazy imports: JAX starts as many threads as it has cores now.

  from episodic_dp import training
  from experiments.benchmarks import settings

  mesh = None
  if task["count"] > 1:
    jax.distributed.initialize(
        f"localhost:{task['port']}", task["count"], task["id"]
    )
    mesh = training.make_mesh()
  run = settings.omniglot(
      query=15, width=16, tasks=16, order="first", smoke=task["smoke"]
  )
  step, state = run.step(mesh=mesh), run.init()
  for line in sys.stdin:
    cpu = time.process_time()
    for _ in range(int(line)):
      state, _ = jax.block_until_ready(step(state))
    cpu = time.process_time() - cpu
    params = _flat(state).tolist() if int(line) == 1 else None
    print(json.dumps({"cpu_seconds": cpu, "params": params}), flush=True)


def of_host_devices() -> dict[str, float]:
  """Return distances of parameters on several devices from those on one."""
  from episodic_dp import training  # Lazy imports: see `work`.
  from experiments.benchmarks import settings

  run = settings.omniglot(query=1, smoke=True)
  alone = _flat(run.advance(3)())
  return {
      str(n): _distance(
          _flat(run.advance(3, mesh=training.make_mesh(n))()), alone
      )
      for n in (1, 2, 4, 8)
  }


def _flat(state: Any) -> np.ndarray:
  """Return all parameters in one vector."""
  import jax  # Lazy import: see `work`.

  leaves = jax.tree.leaves(state.params)
  return np.concatenate([np.asarray(a).ravel() for a in leaves])


def _distance(found: np.ndarray, expected: np.ndarray) -> float:
  return float(np.linalg.norm(found - expected) / np.linalg.norm(expected))
