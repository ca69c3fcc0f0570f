"""The blocks of Conv4 one by one, beside what a core could do at best.

  python -m experiments.benchmarks.parts --out=parts.json

The query set of case (a) of `meta_step`: 75 images, width 64, batch norm. Each
block forward, forward and gradient, and the gradient of that gradient's square
(what second order asks for); then clipping one task's gradient. The floor of a
part is the larger of its operations over the measured rate of a matrix product
and its least bytes (what comes in and goes out, once) over the measured rate of
a copy. Operations are those of the plain convolution: tiles need fewer, so that
a ratio below 1 is possible. On a CPU all is measured on one core, since that is
where a step computes a task.
"""

from collections.abc import Callable
import functools
import os
from typing import Any

import jax
import jax.numpy as jnp

from episodic_dp import private
from episodic_dp.models import block
from experiments.benchmarks import harness

Shape = tuple[int, ...]

WIDTH, IMAGES, SIZE = 64, 75, 28
# Products of the size of the forward pass: the gradients of an output need two
# more each, those of the first block one, since images need none.
_PASSES = {"forward": 1, "gradient": 3, "second order": 9}
_FIRST = {"forward": 1, "gradient": 2, "second order": 5}


def shapes(width: int, images: int) -> list[tuple[Shape, Shape]]:
  """Shapes of input and kernel of the four blocks."""
  found: list[tuple[Shape, Shape]] = []
  size, channels = SIZE, 1
  for _ in range(block.BLOCKS):
    found.append(((images, size, size, channels), (3, 3, channels, width)))
    size, channels = size // 2, width
  return found


def operations(shape: Shape, kernel: Shape) -> float:
  """Multiplications and additions of one convolution of the same size."""
  n, height, width, channels = shape
  return 2.0 * n * height * width * 9 * channels * kernel[-1]


def functions(first: bool) -> dict[str, Callable[..., Any]]:
  """Forward, gradient and second order of a block, compiled."""
  moving = (1, 2, 3) if first else (0, 1, 2, 3)

  def forward(x, kernel, scale, bias):
    return block.apply(x, kernel, scale, bias, "batch")

  def loss(*arguments):
    return jnp.sum(jnp.square(forward(*arguments)))

  def square(*arguments):
    slopes = jax.grad(loss, argnums=moving)(*arguments)
    return sum(jnp.sum(jnp.square(s)) for s in jax.tree.leaves(slopes))

  return {
      "forward": jax.jit(forward),
      "gradient": jax.jit(jax.grad(loss, argnums=moving)),
      "second order": jax.jit(jax.grad(square, argnums=moving)),
  }


def measure(options: harness.Options) -> dict[str, Any]:
  width, images = (4, 2) if options.smoke else (WIDTH, IMAGES)
  rates = harness.floors(options.smoke)
  cases: dict[str, Callable[[], harness.Turn]] = {}
  floors: dict[str, float] = {}
  every = shapes(width, images)
  for i, (shape, kernel_shape) in enumerate(every):
    keys = jax.random.split(jax.random.key(i), 2)
    x = jax.random.normal(keys[0], shape)
    kernel = jax.random.normal(keys[1], kernel_shape) * 0.1
    arguments = (x, kernel, jnp.ones(width), jnp.zeros(width))
    passes = _PASSES if i else _FIRST
    for name, function in functions(first=not i).items():
      case = f"block {i + 1}, {name}"
      # Warm, so that no turn compiles.
      harness.wait(function(*arguments))
      cases[case] = functools.partial(harness.timed, function, *arguments)
      count = operations(shape, kernel_shape) * passes[name]
      size = x.nbytes * (1 if name == "forward" or not i else 2)
      size += 4 * images * width * (shape[1] // 2) ** 2
      floors[case] = max(
          count / (1e9 * rates["matmul_gflops"]),
          size / (1e9 * rates["copy_gbs"]),
      )
  gradient = {str(i): jnp.ones(kernel) for i, (_, kernel) in enumerate(every)}
  clip = jax.jit(lambda g: private.clip(g, 1.0).gradient)
  harness.wait(clip(gradient))
  cases["clipping"] = functools.partial(harness.timed, clip, gradient)
  size = sum(g.nbytes for g in gradient.values())
  floors["clipping"] = 2 * size / (1e9 * rates["copy_gbs"])
  turns = harness.interleaved(cases, options.repeats)
  found = {name: harness.summary(t) for name, t in turns.items()}
  return {
      "settings": {"width": width, "images": images, "floors": rates},
      "cases": {
          name: case | {"floor_seconds": floors[name]}
          for name, case in found.items()
      },
      "rows": [
          harness.row(
              f"{name}, measured / floor",
              case["seconds"] / floors[name],
              unit="×",
              note=f"{1e3 * case['seconds']:.2f} ms",
          )
          for name, case in found.items()
      ],
  }


if __name__ == "__main__":
  if hasattr(os, "sched_setaffinity"):
    # Before JAX starts a thread for every core.
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
  harness.keep_memory()
  harness.main(measure, repeats=9)
