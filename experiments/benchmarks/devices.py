"""Two processes of one core each beside one: the same steps, in less time?

  python -m experiments.benchmarks.devices --out=devices.json

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
_EIGHT = "--xla_force_host_platform_device_count=8"


def measure(options: harness.Options) -> dict[str, Any]:
  """One process and two in turns; then devices of one process."""
  steps = 1 if options.smoke else 4
  cores = sorted(os.sched_getaffinity(0))
  groups = {"one": _Group(1, cores, options.smoke),
            "two": _Group(2, cores, options.smoke)}  # fmt: skip
  try:
    first = {name: group.ask("step 1") for name, group in groups.items()}
    params = {
        name: np.asarray(group.ask("params")[0]["params"])
        for name, group in groups.items()
    }
    turns = harness.interleaved(
        {n: functools.partial(g.turn, steps) for n, g in groups.items()},
        options.repeats,
    )
  finally:
    for group in groups.values():
      group.close()
  compiled = {
      name: [told["compile_seconds"] for told in group]
      for name, group in first.items()
  }
  found = harness.ratio(turns["one"], turns["two"])
  apart = _distance(params["two"], params["one"])
  devices = _of_devices()
  return {
      "settings": {"steps": steps, "cores": len(cores), "smoke": options.smoke},
      "cases": {n: harness.summary(t, per=steps) for n, t in turns.items()},
      "compile_seconds": compiled,
      "apart": {"processes": apart} | devices,
      "rows": [
          harness.row(
              "steps of two processes / of one, a core each",
              found, at_least=1.5, unit="×",
          ),
          harness.row(
              "parameters of two processes from one, after one step",
              apart, at_most=1e-6,
          ),
          harness.row(
              "parameters of 2, 4 and 8 host devices from one",
              max(devices.values()), at_most=1e-6,
          ),
          harness.row(
              "compiling a step, one process",
              compiled["one"][0], unit="s",
          ),
      ],
  }  # fmt: skip


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
            },
            _ONE_THREAD,
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


def _start(task: dict[str, Any], flags: str) -> subprocess.Popen:
  code = "from experiments.benchmarks import devices; devices.work()"
  return subprocess.Popen(
      [sys.executable, "-c", code, json.dumps(task)],
      env=os.environ
      | {
          "XLA_FLAGS": flags,
          "JAX_PLATFORMS": "cpu",
          # Else the time to compile would be that to read a program.
          "JAX_ENABLE_COMPILATION_CACHE": "false",
      },
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


def _of_devices() -> dict[str, float]:
  """Relative distances of parameters from those of one device."""
  worker = _start({"devices": _DEVICES}, _EIGHT)
  try:
    return _answer(worker)
  finally:
    worker.communicate()


def _distance(found: np.ndarray, expected: np.ndarray) -> float:
  return float(np.linalg.norm(found - expected) / np.linalg.norm(expected))


def work() -> None:
  """What a process of the benchmark does, told by its argument and lines."""
  task = json.loads(sys.argv[1])
  if "core" in task:
    os.sched_setaffinity(0, {task["core"]})
  import jax  # After: it starts as many threads as it has cores.

  from episodic_dp import training
  from episodic_dp.training import compilation
  from episodic_dp.training import processes
  from experiments.benchmarks import settings

  def flat(state):
    leaves = [np.asarray(a).ravel() for a in jax.tree.leaves(state.params)]
    return np.concatenate(leaves)

  def tell(**values):
    print(json.dumps(values), flush=True)

  if "devices" in task:
    run, found = settings.omniglot(inner_steps=1, query=1, smoke=True), {}
    for devices in (None, *task["devices"]):
      mesh = None if devices is None else training.make_mesh(devices)
      step, state = run.step(mesh=mesh), run.init()
      for _ in range(3):
        state, _ = step(state)
      found[devices] = flat(state)
    tell(**{str(n): _distance(found[n], found[None]) for n in task["devices"]})
    return
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
    processes.agreed(processes.CONTINUE)
  for line in sys.stdin:
    what, *count = line.split()
    if what == "params":
      tell(params=flat(state).tolist())
      continue
    cpu = time.process_time()
    with compilation.Compilations() as compiled:
      for _ in range(int(count[0])):
        state, _ = jax.block_until_ready(step(state))
    tell(
        cpu_seconds=time.process_time() - cpu,
        compile_seconds=round(ahead + compiled.seconds, 2),
    )


if __name__ == "__main__":
  harness.main(measure, repeats=5)
