"""Tasks at once and precision of products: which step is quickest?

  python -m experiments.benchmarks.tuning --out=tuning.json

The private step of case (b) of `meta_step` (5-way 1-shot, 5 inner steps, 1
query a class, Conv4-64, second order) on one device, with several sizes of
`config.compute.microbatch_size` and with products in the precision that JAX
takes by default (TF32 or bfloat16 operands on some accelerators) and in float32
(JAX_DEFAULT_MATMUL_PRECISION=float32).
"""

import functools
from typing import Any

import jax

from experiments.benchmarks import harness
from experiments.benchmarks import meta_step
from experiments.benchmarks import settings

STEPS, QUERY = 5, 1
TARGET = 5e-4  # Seconds a task on one H200.


def measure(options: harness.Options) -> dict[str, Any]:
  accelerator = jax.default_backend() != "cpu"
  width = 4 if options.smoke else 64
  chunks = (8, 16, 32, 64, 128) if accelerator else (1, 4)
  tasks = 256 if accelerator else 4
  precisions = ("default", "float32") if accelerator else ("default",)
  run = settings.omniglot(
      inner_steps=1 if options.smoke else STEPS,
      query=QUERY,
      width=width,
      tasks=tasks,
      smoke=options.smoke,
  )
  rates = harness.floors(options.smoke)
  cases = {}
  for precision in precisions:
    for chunk in chunks:
      with jax.default_matmul_precision(precision):
        advance = harness.steps(run.step(microbatch_size=chunk), run.init())
        harness.wait(advance())  # Traced here, with this precision.
      cases[f"{chunk} at once, {precision}"] = advance
  turns = harness.interleaved(
      {n: functools.partial(harness.timed, a) for n, a in cases.items()},
      options.repeats,
  )
  found = {name: harness.summary(t, tasks) for name, t in turns.items()}
  best = min(found, key=lambda name: found[name]["seconds"])
  work = meta_step.operations(width, STEPS, QUERY)
  share = work / found[best]["seconds"] / (1e9 * rates["matmul_gflops"])
  return {
      "settings": {"width": width, "tasks": tasks, "floors": rates},
      "cases": found,
      "best": best,
      "rows": [
          harness.row(
              f"a task of case (b), {name}",
              1e3 * one["seconds"],
              at_most=1e3 * TARGET if accelerator else None,
              unit="ms",
          )
          for name, one in found.items()
      ]
      + [
          harness.row(
              "share of the float32 product's rate, best of these",
              100 * share,
              unit="%",
              note=best,
          )
      ],
  }


if __name__ == "__main__":
  harness.main(measure, repeats=5)
