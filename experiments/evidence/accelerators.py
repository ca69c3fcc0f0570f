"""What a step is made of on a GPU or a TPU, read from its program.

No accelerator is needed: the step is traced as for one, and lowered for its
platform. Counted is what the learner does with a task; sampling, noise and the
optimizer are a hundredth of a step.
"""

from collections.abc import Iterator
import dataclasses
import math
import pathlib
import re
import textwrap
from typing import Any, NamedTuple

import jax
from jax.extend import core

from episodic_dp import backends
from episodic_dp import models
from episodic_dp.private import sections
from experiments.benchmarks import settings
from experiments.evidence import cases
from experiments.evidence import pages

FILE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "accelerators.md"
PLATFORMS = {"cuda": "gpu", "tpu": "tpu"}  # To lower for -> JAX's backend.
# Library calls that a platform has; any other is one of a CPU, or unknown.
CALLS = {
    "cuda": {"cusolver_potrf_ffi", "cusolver_potrf"},
    "tpu": {"Cholesky", "TriangularSolve"},
}
WIDTH, QUERY, INNER_STEPS = 64, 1, 5

# NVIDIA, "H200 Tensor Core GPU", data sheet (SXM): dense TF32 products, half of
# what is printed with sparsity, and memory.
_PEAK_FLOPS, _PEAK_BYTES = 494e12, 4.8e12

_HEAD = """# A step on an accelerator

For whoever wants to know what a GPU or a TPU would compute. Written by

```sh
python -m experiments.evidence --only=accelerators --write
```

which traces the step of every learner as a GPU or a TPU gets it, lowers it for
`cuda` and `tpu`, and reads the program; none of it has run on one. What is
chosen for an accelerator, and why, stands in `episodic_dp/backends.py`.
"""
_ABOUT = textwrap.fill(
    f"5-way 1-shot tasks of 28 x 28 with {QUERY} query, Conv4-{WIDTH},"
    f" {INNER_STEPS} inner steps where there are any, 32 tasks at a time."
    " Operations and bytes are those of the products of one task's clipped"
    " gradient, every operand and result read or written once. An H200"
    f" computes {_PEAK_FLOPS / 1e12:.0f} TFLOP/s in TF32 and moves"
    f" {_PEAK_BYTES / 1e12:.1f} TB/s: the last column is the larger of the two"
    " times, which no step can be quicker than while products are not fused."
    " What else a step consists of (elementwise, and fused by XLA) comes on"
    " top.",
    80,
)


class Work(NamedTuple):
  """What products there are, and what they compute and move."""

  products: int = 0
  convolutions: int = 0
  operations: float = 0.0
  bytes: float = 0.0

  def plus(self, other: "Work", times: int = 1) -> "Work":
    """With another's, so many times; products are counted once."""
    return Work(
        self.products + other.products,
        self.convolutions + other.convolutions,
        self.operations + times * other.operations,
        self.bytes + times * other.bytes,
    )


@dataclasses.dataclass(frozen=True)
class Program:
  """A step, traced as for an accelerator.

  Attributes:
    calls: platform -> library calls of the lowered program.
    work: of one task.
  """

  calls: dict[str, set[str]]
  work: Work


def variants() -> list[cases.Variant]:
  """Those that learn from tasks."""
  return [v for v in cases.variants() if v.build("batch").adapts]


def read(variant: cases.Variant, *, width: int = WIDTH) -> Program:
  """The step of a learner; see `cases.variants`."""
  calls, work = {}, Work()
  for platform, backend in PLATFORMS.items():
    with backends.assumed(backend):
      run = _run(variant, width)
      (program,) = run.step().running(run.init())
      arguments = [
          jax.ShapeDtypeStruct(a.shape, a.dtype) for a in program.in_avals
      ]
      lowered = (
          jax.jit(core.jaxpr_as_fun(program))
          .trace(*arguments)
          .lower(lowering_platforms=(platform,))
      )
      at_once = backends.choices().microbatch_size
    text = lowered.as_text()
    calls[platform] = set(re.findall(r"custom_call @(\w+)", text))
    work = _work_of_a_task(program, at_once)
  return Program(calls, work)


def foreign_calls(program: Program) -> set[str]:
  """Library calls that a platform does not have."""
  return {
      call
      for platform, calls in program.calls.items()
      for call in calls - CALLS[platform]
  }


def _run(variant: cases.Variant, width: int) -> settings.Run:
  run = settings.omniglot(
      inner_steps=1, query=QUERY, width=width, tasks=32, noise_multiplier=1.0
  )
  learner: Any = variant.on(
      lambda way: models.conv4(way=way, width=width), settings.WAY,
      inner_steps=INNER_STEPS, loss_weights=(1 / INNER_STEPS,) * INNER_STEPS,
  )
  return dataclasses.replace(
      run,
      learner=learner,
      mechanism=dataclasses.replace(
          run.mechanism, order=learner.order, inner_steps=learner.inner_steps
      ),
  )


def _work_of_a_task(program: core.ClosedJaxpr, at_once: int) -> Work:
  total = Work()
  for jaxpr in _named(program.jaxpr, sections.LEARNER):
    total = total.plus(_work(jaxpr))
  return total._replace(
      operations=total.operations / at_once, bytes=total.bytes / at_once
  )


def _named(jaxpr: Any, name: str) -> Iterator[Any]:
  """The programs of that name within a program."""
  for eqn in jaxpr.eqns:
    for inner in _inner(eqn):
      if eqn.params.get("name") == name:
        yield inner
      else:
        yield from _named(inner, name)


def _inner(eqn: Any) -> list[Any]:
  """The programs that an operation holds."""
  found = []
  for value in eqn.params.values():
    for one in value if isinstance(value, (tuple, list)) else (value,):
      if isinstance(one, core.ClosedJaxpr):
        found.append(one.jaxpr)
      elif isinstance(one, core.Jaxpr):
        found.append(one)
  return found


def _work(jaxpr: Any) -> Work:
  total = Work()
  for eqn in jaxpr.eqns:
    kind = eqn.primitive.name
    if kind == "dot_general":
      (contracted, _), _ = eqn.params["dimension_numbers"]
      shape = eqn.invars[0].aval.shape
      operations = (
          2.0 * math.prod(eqn.outvars[0].aval.shape)
          * math.prod(shape[axis] for axis in contracted)
      )
      total = total.plus(Work(1, 0, operations, _bytes(eqn)))
    elif kind == "conv_general_dilated":
      total = total.plus(Work(0, 1, 0.0, _bytes(eqn)))
    times = eqn.params["length"] if kind == "scan" else 1
    for inner in _inner(eqn):
      total = total.plus(_work(inner), times)
  return total


def _bytes(eqn: Any) -> float:
  arrays = [v.aval for v in (*eqn.invars, *eqn.outvars)]
  return float(sum(a.size * a.dtype.itemsize for a in arrays))


def row(variant: cases.Variant, program: Program) -> tuple[pages.Cell, ...]:
  """A line of the table."""
  work = program.work
  least = max(work.operations / _PEAK_FLOPS, work.bytes / _PEAK_BYTES)
  calls = [", ".join(sorted(c)) or "none" for c in program.calls.values()]
  return (
      variant.label, *calls, work.products, work.convolutions,
      round(work.operations / 1e6), round(work.bytes / 1e6, 1),
      round(1e6 * least, 1),
  )


def document() -> str:
  """The whole page."""
  rows = tuple(row(v, read(v)) for v in variants())
  table = pages.Table(
      (
          "learner", *(f"library calls, {p}" for p in PLATFORMS), "products",
          "convolutions", "MFLOP a task", "MB a task", "least µs on an H200",
      ),
      rows,
  )
  return f"{_HEAD}\n{_ABOUT}\n\n{table.markdown()}\n"
