"""The private meta-step's gradients beside other ways to compute them.

  python -m experiments.benchmarks.meta_step --out=meta_step.json

5-way 1-shot tasks of 28 x 28, Conv4 with batch normalisation and max-pool,
second-order MAML, every task's gradient clipped and summed; (a) 1 inner step
and 15 queries per class, (b) 5 and 1, both of width 64, and a narrow network.

  ours   the learner of this library, tasks in a loop or few at a time
  lax    `vmap` over the tasks at once with `lax.conv_general_dilated`, where
         the network is narrow
  torch  PyTorch: a loop that clips each task, `functional_call` and autograd

All start from the same weights and images. Our sums must agree within 1e-3 with
lax in float32 and with torch in float64: five inner steps in float32 may take
another maximum of a pool, which torch does on these images (how far its own
float32 is from ours is recorded as `torch_float32`). The
floor of a task is the operations of its plain convolutions over the measured
rate of a matrix product; `parts` goes into the blocks of the network.
"""

import functools
import os
from typing import Any

import jax
from jax import lax
import jax.numpy as jnp
import numpy as np

from episodic_dp import learners
from episodic_dp import models
from episodic_dp import private
from experiments.benchmarks import harness
from experiments.benchmarks import parts

WAY, RATE, CLIP, EPSILON, SLOPE = 5, 0.1, 1.0, 1e-5, 0.01
NARROW = 16
THREADS = os.cpu_count() or 1
# width, inner steps, queries per class, tasks, tasks at once.
CASES = {
    "a": (64, 1, 15, 2, 1),
    "b": (64, 5, 1, 4, 4),
    "narrow": (16, 1, 1, 8, 4),
}


def draw(query: int, tasks: int) -> tuple[np.ndarray, np.ndarray]:
  """Support [tasks, way, 28, 28, 1] and query images, float32."""
  rng = np.random.default_rng(0)
  shape = (28, 28, 1)
  return (
      rng.random((tasks, WAY, *shape), np.float32),
      rng.random((tasks, WAY * query, *shape), np.float32),
  )


def plain_conv4(params: Any, x: jax.Array) -> jax.Array:
  """Conv4 of XLA's own convolution and pool, as one writes it first."""
  for i in range(4):
    block = params[f"block_{i}"]
    x = lax.conv_general_dilated(
        x,
        block["kernel"],
        (1, 1),
        "SAME",
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
    )
    mean, variance = x.mean((0, 1, 2)), x.var((0, 1, 2))
    x = (x - mean) * lax.rsqrt(variance + EPSILON)
    x = jax.nn.leaky_relu(x * block["scale"] + block["bias"], SLOPE)
    window = (1, 2, 2, 1)
    x = lax.reduce_window(x, -jnp.inf, lax.max, window, window, "VALID")
  head = params["head"]
  return x.reshape(len(x), -1) @ head["kernel"] + head["bias"]


def jax_sum(apply: Any, steps: int, chunk: int):
  """(params, support, query) -> the sum of the clipped gradients."""

  def loss(params, images):
    labels = jnp.repeat(jnp.arange(WAY), len(images) // WAY)
    logs = jax.nn.log_softmax(apply(params, images))
    return -jnp.take_along_axis(logs, labels[:, None], 1).mean()

  def after(params, support, query):
    for _ in range(steps):
      slope = jax.grad(loss)(params, support)
      params = jax.tree.map(lambda p, g: p - RATE * g, params, slope)
    return loss(params, query)

  def one(params, support, query):
    return private.clip(jax.grad(after)(params, support, query), CLIP).gradient

  @jax.jit
  def total(params, support, query):
    def add(total, both):
      parts = jax.vmap(one, (None, 0, 0))(params, *both)
      return jax.tree.map(lambda t, p: t + p.sum(0), total, parts), None

    cut = [a.reshape(-1, chunk, *a.shape[1:]) for a in (support, query)]
    zeros = jax.tree.map(jnp.zeros_like, params)
    return lax.scan(add, zeros, tuple(cut))[0]

  return total


def torch_sum(
    params: Any, steps: int, support: Any, query: Any, dtype: Any = np.float32
):
  """A function without arguments -> the same sum, as a tree of NumPy arrays.

  Args:
    params: weights of the JAX network.
    steps: inner steps.
    support: images [tasks, way, 28, 28, 1].
    query: images [tasks, way * queries, 28, 28, 1].
    dtype: in which to compute.

  Raises:
    ImportError: PyTorch is not installed.
  """
  import torch  # Optional: pip install -e .[bench]
  from torch.nn import functional

  torch.set_num_threads(THREADS)
  flat, tree = jax.tree.flatten(params)

  def turned(array):
    array = np.asarray(array, dtype)
    return torch.tensor(
        array.transpose(3, 2, 0, 1) if array.ndim == 4 else array
    )

  class Network(torch.nn.Module):
    """Conv4 with the parameters of the JAX one, in their order."""

    def __init__(self):
      super().__init__()
      self.weights = torch.nn.ParameterList(turned(a) for a in flat)

    def forward(self, x):
      tree_of = jax.tree.unflatten(tree, list(self.weights))
      for i in range(4):
        block = tree_of[f"block_{i}"]
        x = functional.conv2d(x, block["kernel"], padding=1)
        x = functional.batch_norm(
            x, None, None, block["scale"], block["bias"], True, 0.0, EPSILON
        )
        x = functional.max_pool2d(functional.leaky_relu(x, SLOPE), 2)
      head = tree_of["head"]
      # One by one pixel is left: channels need no reordering.
      return x.flatten(1) @ head["kernel"] + head["bias"]

  network = Network()
  names = [name for name, _ in network.named_parameters()]
  support, query = (
      torch.tensor(a.astype(dtype)).movedim(-1, 2).contiguous()
      for a in (support, query)
  )

  def loss(weights, images):
    labels = torch.arange(WAY).repeat_interleave(len(images) // WAY)
    outputs = torch.func.functional_call(
        network, dict(zip(names, weights)), (images,)
    )
    return functional.cross_entropy(outputs, labels)

  def total():
    start = list(network.parameters())
    sums = [torch.zeros_like(p) for p in start]
    for images, queries in zip(support, query):
      weights = start
      for _ in range(steps):
        slopes = torch.autograd.grad(
            loss(weights, images), weights, create_graph=True
        )
        weights = [w - RATE * g for w, g in zip(weights, slopes)]
      gradient = torch.autograd.grad(loss(weights, queries), start)
      norm = torch.sqrt(sum(g.square().sum() for g in gradient))
      factor = torch.clamp(CLIP / norm, max=1.0)
      for s, g in zip(sums, gradient):
        s.add_(factor * g)
    arrays = [
        s.permute(2, 3, 1, 0).numpy() if s.ndim == 4 else s.numpy()
        for s in sums
    ]
    return jax.tree.unflatten(tree, arrays)

  return total


def difference(a: Any, b: Any) -> float:
  """The norm of the difference of two trees over the norm of the second."""
  a, b = (
      np.concatenate([np.ravel(x) for x in jax.tree.leaves(t)]) for t in (a, b)
  )
  return float(np.linalg.norm(a - b) / np.linalg.norm(b))


def operations(width: int, steps: int, query: int) -> float:
  """Of a task's convolutions, were each of them a plain one.

  A gradient costs three forward passes, and differentiating it thrice that;
  the images themselves need no gradient.
  """
  total = 0.0
  for i, (shape, kernel) in enumerate(parts.shapes(width, 1)):
    inner, outer = (5, 2) if i == 0 else (9, 3)
    images = WAY * (steps * inner + query * outer)
    total += parts.operations(shape, kernel) * images
  return total


def measure_case(
    width: int,
    steps: int,
    query: int,
    tasks: int,
    chunk: int,
    options: harness.Options,
) -> dict[str, Any]:
  """One setting: its cases, what their sums differ by, and the ratios."""
  model = models.conv4(WAY, width=width, input_shape=(28, 28, 1))
  params = learners.MAML(model).init(jax.random.key(0))
  images = draw(query, tasks)
  skipped = {}
  functions = {
      "ours": functools.partial(
          jax_sum(model.apply, steps, chunk), params, *images
      ),
  }
  if width <= NARROW:
    functions["lax"] = functools.partial(
        jax_sum(plain_conv4, steps, chunk), params, *images
    )
  else:
    skipped["lax"] = f"takes seconds a task where width {width} > {NARROW}"
  try:
    functions["torch"] = torch_sum(params, steps, *images)
  except ImportError as error:
    skipped["torch"] = f"{error}: pip install -e .[bench]"
  sums = {name: jax.device_get(f()) for name, f in functions.items()}
  if "torch" in sums:
    sums["torch_float32"] = sums["torch"]
    sums["torch"] = torch_sum(params, steps, *images, np.float64)()
  apart = {name: difference(sums["ours"], found) for name, found in
           sums.items() if name != "ours"}  # fmt: skip
  wrong = {
      name: value
      for name, value in apart.items()
      if name != "torch_float32" and not value < 1e-3
  }
  if wrong:
    raise ValueError(f"sums of clipped gradients differ from ours by {wrong}")
  turns = harness.interleaved(
      {n: functools.partial(harness.timed, f) for n, f in functions.items()},
      options.repeats,
  )
  return {
      "settings": {
          "width": width,
          "inner_steps": steps,
          "query": query,
          "tasks": tasks,
          "tasks_at_once": chunk,
          "threads": THREADS,
      },
      "per_task": {n: harness.summary(t, tasks) for n, t in turns.items()},
      "relative_difference_of_sums": apart,
      "skipped": skipped,
      "ratios": {
          f"{name}_to_ours": harness.ratio(turns[name], turns["ours"])
          for name in functions
          if name != "ours"
      },
  }


def measure(options: harness.Options) -> dict[str, Any]:
  cases = {"narrow": (4, 1, 1, 2, 2)} if options.smoke else CASES
  rates = harness.floors(options.smoke)
  found = {name: measure_case(*c, options) for name, c in cases.items()}
  for name, (width, steps, query, _, _) in cases.items():
    found[name]["floor_seconds"] = operations(width, steps, query) / (
        1e9 * rates["matmul_gflops"]
    )
  targets = {"a": 1.5, "b": 2.0}
  return {
      "floors": rates,
      "cases": found,
      "rows": [
          harness.row(
              f"meta-step ({name}): ours / its floor",
              one["per_task"]["ours"]["seconds"] / one["floor_seconds"],
              unit="×",
              note=f"{1e3 * one['per_task']['ours']['seconds']:.1f} ms a task",
          )
          for name, one in found.items()
      ]
      + [
          harness.row(
              f"meta-step ({name}): {ratio.removesuffix('_to_ours')} / ours",
              value,
              at_least=(
                  targets.get(name) if ratio.startswith("torch") else None
              ),
              unit="×",
          )
          for name, one in found.items()
          for ratio, value in one["ratios"].items()
      ],
  }


if __name__ == "__main__":
  harness.main(measure, repeats=5)
