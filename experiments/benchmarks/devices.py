"""Two processes of one core each beside one: the same steps, in less time?

Processes are pinned to a core each, with one thread for computing. Both cases
take the same steps from the same key, with the same tasks in all; the two
processes share them out and meet in one all-reduce a step. Their parameters are
compared after one step: from the second on, rounding may take another maximum
of a pool on these random images, which parts any two programs by about 1e-6 a
step, one device's with another `microbatch_size` as well.
Also compared are 1, 2, 4 and 8 host devices of one process, after three steps
of a linear model.

`cpu_seconds` is the largest processor time of a process: with another program
on a core, the ratio of these says more than that of wall-clock times.
"""

import functools
import json
import os
import socket
import subprocess
import sys
import time
from typing import Any

import numpy as np

from experiments.benchmarks import harness

_DEVICES = (1, 2, 4, 8)
_ONE_THREAD = (
    "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
)
_CPU = {
    "JAX_PLATFORMS": "cpu",
    # Else the time to compile would be that to read a program.
    "JAX_ENABLE_COMPILATION_CACHE": "false",
}
_EIGHT = "--xla_force_host_platform_device_count=8"


def measure(options: harness.Options) -> harness.Found:
  """One process and two in turns; then devices of one process."""
  steps = 1 if options.smoke else 4
  cores = sorted(os.sched_getaffinity(0))
  groups = {
      name: _Group(count, cores, options.smoke)
      for name, count in (("one", 1), ("two", 2))
  }
  try:
    first = {name: group.ask("step 1") for name, group in groups.items()}
    params = {
        name: np.asarray(group.ask("params")[0]["params"])
        for name, group in groups.items()
    }
    turns = harness.interleaved(
        {n: functools.partial(g.turn, steps) for n, g in groups.items()},
        options,
    )
  finally:
    for group in groups.values():
      group.close()
  compiled = {
      name: [told["compile_seconds"] for told in group]
      for name, group in first.items()
  }
  apart = {"processes": _distance(params["two"], params["one"])}
  devices = harness.in_a_process(
      "devices.of_host_devices", *_DEVICES, env=_CPU | {"XLA_FLAGS": _EIGHT}
  )
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
              apart["processes"],
              at_most=1e-6,
          ),
          harness.row(
              "parameters of 2, 4 and 8 host devices from one",
              max(devices.values()),
              at_most=1e-6,
          ),
          harness.row(
              "compiling a step, one process", compiled["one"][0], unit="s"
          ),
      ],
      more={"compile_seconds": compiled, "apart": apart | devices},
  )


class _Group:
  """Processes that take steps together when they are told to."""

  def __init__(self, count: int, cores: list[int], smoke: bool):
    with socket.socket() as s:
      s.bind(("localhost", 0))
      port = s.getsockname()[1]
    self._workers = [
        _start(
            {
                "port": port, "count": count, "id": i, "smoke": smoke,
                "core": cores[i % len(cores)],
            }
        )
        for i in range(count)
    ]  # fmt: skip

  def ask(self, what: str) -> list[dict[str, Any]]:
    """Tells all, and waits for what they answer."""
    for worker in self._workers:
      assert worker.stdin is not None
      worker.stdin.write(what + "\n")
      worker.stdin.flush()
    return [_answer(worker) for worker in self._workers]

  def turn(self, steps: int) -> harness.Turn:
    began = time.perf_counter()
    told = self.ask(f"step {steps}")
    return harness.Turn(
        time.perf_counter() - began,
        max(one["cpu_seconds"] for one in told),
        None,
    )

  def close(self) -> None:
    for worker in self._workers:
      assert worker.stdin is not None
      worker.stdin.close()
    for worker in self._workers:
      worker.wait()


def _start(task: dict[str, Any]) -> subprocess.Popen:
  code = "from experiments.benchmarks import devices; devices.work()"
  return subprocess.Popen(
      [sys.executable, "-c", code, json.dumps(task)],
      env=os.environ | _CPU | {"XLA_FLAGS": _ONE_THREAD},
      stdin=subprocess.PIPE,
      stdout=subprocess.PIPE,
      text=True,
  )


def _answer(worker: subprocess.Popen) -> dict[str, Any]:
  assert worker.stdout is not None
  for line in worker.stdout:
    if line.startswith("{"):  # Gloo prints lines of its own.
      return json.loads(line)
  raise RuntimeError(f"a process of the benchmark ended ({worker.wait()})")


def _distance(found: np.ndarray, expected: np.ndarray) -> float:
  return float(np.linalg.norm(found - expected) / np.linalg.norm(expected))


def _flat(state: Any) -> np.ndarray:
  """All parameters in one vector."""
  import jax  # Lazy import: see `work`.

  leaves = jax.tree.leaves(state.params)
  return np.concatenate([np.asarray(a).ravel() for a in leaves])


def of_host_devices(*counts: int) -> dict[str, float]:
  """Relative distances of parameters from those of one device."""
  from episodic_dp import training  # Lazy imports: see `work`.
  from experiments.benchmarks import settings

  run, found = settings.omniglot(inner_steps=1, query=1, smoke=True), {}
  for count in (None, *counts):
    mesh = None if count is None else training.make_mesh(count)
    found[count] = _flat(run.advance(3, mesh=mesh)())
  return {str(n): _distance(found[n], found[None]) for n in counts}


def work() -> None:
  """What a process of a group does, told by its argument and lines."""
  task = json.loads(sys.argv[1])
  os.sched_setaffinity(0, {task["core"]})
  import jax  # Lazy imports: JAX starts as many threads as it has cores now.

  from episodic_dp import training
  from episodic_dp.training import compilation
  from episodic_dp.training import processes
  from experiments.benchmarks import settings

  mesh = None
  if task["count"] > 1:
    jax.distributed.initialize(
        f"localhost:{task['port']}", task["count"], task["id"]
    )
    mesh = training.make_mesh()
  run = settings.omniglot(
      inner_steps=1, query=15, width=16, tasks=16, order="first",
      smoke=task["smoke"],
  )  # fmt: skip
  step, state = run.step(mesh=mesh), run.init()
  ahead = 0.0
  if mesh is not None:  # They may compile at unlike speeds.
    with compilation.Compilations() as compiled:
      step.compile(state)
    ahead = compiled.seconds
    processes.agreed(processes.Code.CONTINUE)
  for line in sys.stdin:
    what, *count = line.split()
    if what == "params":
      print(json.dumps({"params": _flat(state).tolist()}), flush=True)
      continue
    cpu = time.process_time()
    with compilation.Compilations() as compiled:
      for _ in range(int(count[0])):
        state, _ = jax.block_until_ready(step(state))
    told = {
        "cpu_seconds": time.process_time() - cpu,
        "compile_seconds": round(ahead + compiled.seconds, 2),
    }
    print(json.dumps(told), flush=True)
