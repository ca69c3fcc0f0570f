"""The private meta-step's gradients beside other ways to compute them.

  python -m experiments.benchmarks.meta_step --out=meta_step.json

5-way 1-shot tasks of 28 x 28, Conv4 with batch normalisation and max-pool,
second-order MAML, every task's gradient clipped and summed; (a) 1 inner step
and 15 queries per class, (b) 5 and 1, both of width 64, and a narrow network.

  ours   what `private.make_meta_step` makes, up to the noise: the tasks shared
         out over the devices (a CPU counts as one for every core), on each as
         many at once as `private.Compute` says by default
  one    the same on one device, whose products use all cores
  lax    `vmap` over all tasks with `lax.conv_general_dilated`, where the
         network is narrow
  torch  PyTorch: a loop that clips each task, `functional_call` and autograd

All start from the same weights and images. Our sums must agree within 1e-2 with
torch in float64 (and with lax): rounding to float32 may take another maximum of
a pool, which changes a task's gradient, and the more so the larger the inner
steps, hence small ones. How far torch's own float32 is from ours is recorded as
`torch_float32`.

The floor of a task is the operations of its plain convolutions over the
measured rate of a matrix product; `parts` goes into the blocks of the network.
"""

from collections.abc import Callable
import functools
import os
from typing import Any

import jax
from jax import lax
import jax.numpy as jnp
import numpy as np

from episodic_dp import learners
from episodic_dp import models
from episodic_dp import plan
from episodic_dp import private
from episodic_dp import sampling
from episodic_dp import training
from episodic_dp.cli import devices
from episodic_dp.private import sharding
from episodic_dp.private import task_sum
from experiments.benchmarks import harness
from experiments.benchmarks import parts

WAY, RATE, CLIP, EPSILON, SLOPE = 5, 0.01, 1.0, 1e-5, 0.01
APART = 1e-2  # At most, relatively.
SEED = 0  # Of images, weights and the labels' order.
NARROW = 16
THREADS = os.cpu_count() or 1
# width, inner steps, queries per class, tasks.
CASES = {
    "a": (64, 1, 15, 16),
    "b": (64, 5, 1, 16),
    "narrow": (16, 1, 1, 32),
}


def draw(query: int, tasks: int) -> tuple[task_sum.Tasks, Any]:
  """Tasks as the step draws them, and as episodes [tasks, ...]."""
  shape = (tasks, WAY, 1 + query)
  rng = np.random.default_rng(SEED)
  images: Any = rng.random((*shape, 28, 28, 1), np.float32)
  rows = jnp.arange(tasks * WAY * (1 + query), dtype=jnp.int32)
  drawn = task_sum.Tasks(
      jnp.asarray(images.reshape(-1, 28, 28, 1)),
      rows.reshape(shape),
      jnp.ones(tasks, bool),
  )
  key = jax.random.key(SEED)
  keys = jax.vmap(lambda i: jax.random.fold_in(key, i))(jnp.arange(tasks))
  make = functools.partial(sampling.make_episode, episode=episode(query))
  return drawn, jax.device_get(jax.vmap(make)(keys, images))


def episode(query: int) -> plan.Episode:
  return plan.Episode(way=WAY, shot=1, query=query)


def our_sum(
    learner: Any,
    params: Any,
    drawn: task_sum.Tasks,
    query: int,
    mesh: jax.sharding.Mesh,
) -> Callable[[], Any]:
  """A function without arguments -> the sum of the clipped gradients."""
  mechanism = plan.Mechanism(
      clip_unit="participant", clip_norm=CLIP, noise_multiplier=1.0
  )
  chunk = private.Compute().microbatch_size

  def begin(params, slots):
    return task_sum.zeros(
        params, diagnostics=False, slots=slots + -slots % chunk
    )

  def add(params, totals, tasks, first, stride):
    return task_sum.add_tasks(
        learner,
        mechanism,
        params,
        totals,
        tasks,
        jax.random.key(SEED),
        first=first,
        stride=stride,
        episode=episode(query),
        microbatch_size=chunk,
    )

  total = jax.jit(
      lambda *both: sharding.summed(mesh, begin, add)(*both).sum
  )
  return functools.partial(total, *sharding.replicate(mesh, (params, drawn)))


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


def plain_sum(params: Any, steps: int, episodes: Any) -> Callable[[], Any]:
  """A function without arguments -> the same, as one writes it first."""

  def loss(params, examples):
    logs = jax.nn.log_softmax(plain_conv4(params, examples.images))
    return -jnp.take_along_axis(logs, examples.labels[:, None], 1).mean()

  def after(params, support, query):
    for _ in range(steps):
      slope = jax.grad(loss)(params, support)
      params = jax.tree.map(lambda p, g: p - RATE * g, params, slope)
    return loss(params, query)

  def one(params, support, query):
    return private.clip(jax.grad(after)(params, support, query), CLIP).gradient

  @jax.jit
  def total(params, episodes):
    parts = jax.vmap(one, (None, 0, 0))(params, *episodes)
    return jax.tree.map(lambda p: p.sum(0), parts)

  return functools.partial(total, params, episodes)


def torch_sum(
    params: Any, steps: int, episodes: Any, dtype: Any = np.float32
) -> Callable[[], Any]:
  """A function without arguments -> the same sum, as a tree of NumPy arrays.

  Args:
    params: weights of the JAX network.
    steps: inner steps.
    episodes: images [tasks, examples, 28, 28, 1] and labels.
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
  tasks = [
      [
          (
              torch.tensor(part.images[i].astype(dtype)).movedim(-1, 1),
              torch.tensor(part.labels[i].astype(np.int64)),
          )
          for part in episodes
      ]
      for i in range(len(episodes.support.labels))
  ]

  def loss(weights, images, labels):
    outputs = torch.func.functional_call(
        network, dict(zip(names, weights)), (images,)
    )
    return functional.cross_entropy(outputs, labels)

  def total():
    start = list(network.parameters())
    sums = [torch.zeros_like(p) for p in start]
    for support, query in tasks:
      weights = start
      for _ in range(steps):
        slopes = torch.autograd.grad(
            loss(weights, *support), weights, create_graph=True
        )
        weights = [w - RATE * g for w, g in zip(weights, slopes)]
      gradient = torch.autograd.grad(loss(weights, *query), start)
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
    options: harness.Options,
) -> dict[str, Any]:
  """One setting: its cases, what their sums differ by, and the ratios."""
  model = models.conv4(WAY, width=width, input_shape=(28, 28, 1))
  learner = learners.MAML(model, inner_steps=steps, inner_rate=RATE)
  params = learner.init(jax.random.key(SEED))
  drawn, episodes = draw(query, tasks)
  skipped = {}
  functions = {
      "ours": our_sum(learner, params, drawn, query, training.make_mesh())
  }
  if jax.device_count() > 1:
    one = training.make_mesh(1)
    functions["one"] = our_sum(learner, params, drawn, query, one)
  if width <= NARROW:
    functions["lax"] = plain_sum(params, steps, episodes)
  else:
    skipped["lax"] = f"takes seconds a task where width {width} > {NARROW}"
  try:
    functions["torch"] = torch_sum(params, steps, episodes)
  except ImportError as error:
    skipped["torch"] = f"{error}: pip install -e .[bench]"
  sums = {name: jax.device_get(f()) for name, f in functions.items()}
  if "torch" in sums:
    sums["torch_float32"] = sums["torch"]
    sums["torch"] = torch_sum(params, steps, episodes, np.float64)()
  apart = {name: difference(sums["ours"], found) for name, found in
           sums.items() if name != "ours"}  # fmt: skip
  wrong = {
      name: value
      for name, value in apart.items()
      if name != "torch_float32" and not value < APART
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
          "microbatch_size": private.Compute().microbatch_size,
          "devices": jax.device_count(),
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


_PEERS = {
    "one_to_ours": "one device",
    "lax_to_ours": "vmap of lax.conv",
    "torch_to_ours": "PyTorch loop",
}


def measure(options: harness.Options) -> dict[str, Any]:
  cases = {"narrow": (4, 1, 1, 2)} if options.smoke else CASES
  rates = harness.floors(options.smoke)
  found = {name: measure_case(*c, options) for name, c in cases.items()}
  for name, (width, steps, query, _) in cases.items():
    found[name]["floor_seconds"] = operations(width, steps, query) / (
        1e9 * rates["matmul_gflops"]
    )
  targets = {"a": 1.5, "b": 2.0}
  return {
      "floors": rates,
      "cases": found,
      "rows": [
          harness.row(
              f"meta-step ({name}): all cores / the floor",
              one["per_task"]["ours"]["seconds"] / one["floor_seconds"],
              unit="×",
              note=f"{1e3 * one['per_task']['ours']['seconds']:.1f} ms a task",
          )
          for name, one in found.items()
      ]
      + [
          harness.row(
              f"meta-step ({name}): {_PEERS[ratio]} / all cores",
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
  devices.use_cores()
  harness.main(measure, repeats=5)
