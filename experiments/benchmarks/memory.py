"""The memory of a step against its number of tasks.

Steps with 64 and with 1600 tasks, in chunks of 4 (Conv4-16, second order, 1
inner step, 1 query per class), each in a process of its own. Two numbers each:

  temporary  bytes that the compiled step asks for besides what goes in and out,
             by the compiler's own account
  peak       the most that the process held while a step ran ("before": before
             it), of the device's memory where the device says, else of the
             machine's

A network of width 16 is a strict case: what grows with the number of tasks (the
rows drawn) is not hidden behind a large network.
"""

import pathlib
import re
from typing import Any

from experiments.benchmarks import harness

TASKS, WIDTH, CHUNK = (64, 1600), 16, 4


def of_step(tasks: int, smoke: bool) -> dict[str, Any]:
  """Bytes of one step, in this process; see the module's docstring."""
  import jax  # Lazy import: the parent leaves the device to this process.

  from experiments.benchmarks import settings  # Imports JAX.

  run = settings.omniglot(
      inner_steps=1,
      query=1,
      width=4 if smoke else WIDTH,
      tasks=tasks,
      participants=2 * max(TASKS),
      smoke=smoke,
  )
  step = jax.jit(run.step(microbatch_size=CHUNK), donate_argnums=0)
  state = run.init()
  compiled = step.lower(state).compile()
  analysis = compiled.memory_analysis()
  before = _held(reset=True)
  turn = harness.timed(harness.steps(compiled, state))
  peak = _held(reset=False)
  return {
      "tasks": tasks,
      "temporary": analysis and analysis.temp_size_in_bytes,
      "before": before,
      "peak": peak if before is not None else None,
      "seconds": turn.seconds,
  }


def _held(reset: bool) -> int | None:
  """Bytes held at most since the last reset; None where nobody counts."""
  import jax  # Lazy import: as above.

  on_device = jax.devices()[0].memory_stats()
  if on_device is not None:
    return on_device["bytes_in_use" if reset else "peak_bytes_in_use"]
  try:
    if reset:
      pathlib.Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    status = pathlib.Path("/proc/self/status").read_text(encoding="ascii")
  except OSError:  # Not Linux, or not allowed.
    return None
  found = re.search(r"VmHWM:\s*(\d+) kB", status)
  return int(found[1]) * 1024 if found else None


def measure(options: harness.Options) -> harness.Found:
  """Few tasks and many."""
  tasks = (CHUNK, 3 * CHUNK) if options.smoke else TASKS
  few, many = (
      harness.in_a_process("memory.of_step", count, options.smoke)
      for count in tasks
  )
  return harness.Found(
      settings={"width": WIDTH, "microbatch_size": CHUNK},
      cases={str(count): one for count, one in zip(tasks, (few, many))},
      rows=[
          harness.row(
              f"{what}, {tasks[1]} tasks / {tasks[0]}",
              many[name] / few[name],
              at_most=1.05,
              unit="×",
          )
          for name, what in (
              ("temporary", "temporary memory of the compiled step"),
              ("peak", "peak memory of the process during a step"),
          )
          if few[name] and many[name]
      ],
  )
