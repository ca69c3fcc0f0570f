"""Sums of clipped gradients as one writes them first, in JAX and in PyTorch.

Second-order MAML of Conv4 with batch normalisation, from the weights of
`models.conv4`.
"""

from collections.abc import Callable, Sequence
import functools
from typing import Any

import jax
from jax import lax
import jax.numpy as jnp
import numpy as np

from episodic_dp import private

RATE, CLIP, EPSILON, SLOPE = 0.01, 1.0, 1e-5, 0.01


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

  Images lie channels last and the pool goes before the LeakyReLU: both are
  quicker there.

  Args:
    params: weights of the JAX network.
    steps: inner steps.
    episodes: images [tasks, examples, 28, 28, 1] and labels.
    dtype: in which to compute.

  Raises:
    ImportError: PyTorch is not installed.
  """
  import torch  # Lazy import: it may not be installed.
  from torch.nn import functional

  flat, tree = jax.tree.flatten(params)

  def turned(array):
    array = torch.tensor(np.asarray(array, dtype))
    return array.permute(3, 2, 0, 1) if array.ndim == 4 else array

  class Network(torch.nn.Module):
    """Conv4 with the parameters of the JAX one, in their order."""

    def __init__(self) -> None:
      super().__init__()
      self.weights = torch.nn.ParameterList(turned(a) for a in flat)

    def forward(self, x):
      tree_of = jax.tree.unflatten(tree, list(self.weights))
      for i in range(4):
        block = tree_of[f"block_{i}"]
        x = functional.conv2d(x, block["kernel"], padding=1)
        x = x.contiguous(memory_format=torch.channels_last)
        x = functional.batch_norm(
            x, None, None, block["scale"], block["bias"], True, 0.0, EPSILON
        )
        x = functional.leaky_relu(functional.max_pool2d(x, 2), SLOPE)
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


def shares(tree: Any, count: int) -> list[Any]:
  """A tree of arrays [tasks, ...] dealt out to so many."""

  def share(i: int) -> Any:
    return jax.tree.map(lambda a: a[i::count], tree)

  return [share(i) for i in range(count)]


def added(trees: Sequence[Any]) -> Any:
  """The sum of trees of arrays."""
  return jax.tree.map(lambda *arrays: sum(arrays), *trees)


def difference(a: Any, b: Any) -> float:
  """The norm of the difference of two trees over the norm of the second."""
  a, b = (
      np.concatenate([np.ravel(x) for x in jax.tree.leaves(t)]) for t in (a, b)
  )
  return float(np.linalg.norm(a - b) / np.linalg.norm(b))
