"""The same sums of clipped gradients by other libraries, and by hand.

PyTorch is configured to be fast on a CPU: images have their channels last, the
pool precedes the LeakyReLU, freed memory is kept, and one single-threaded
process for every core takes a share of the tasks. These processes block on a
queue between two runs, so that they do not slow the other cases.
"""

from collections.abc import Callable
from concurrent import futures
import functools
import importlib.util
import multiprocessing
import os
from typing import Any

from absl import logging
import jax
import jax.numpy as jnp
import numpy as np
import optax

from episodic_dp import sampling
from experiments.benchmarks import harness
from experiments.benchmarks import settings

RATE, CLIP, EPSILON, SLOPE = 0.01, 1.0, 1e-5, 0.01
CORES = os.cpu_count() or 1


def installed(package: str) -> bool:
  """Return whether a peer is installed; warn if it is not."""
  if importlib.util.find_spec(package):
    return True
  logging.warning(
      "ours is measured alone: %s is not installed: pip install -e '.[bench]'",
      package,
  )
  return False


def difference(a: Any, b: Any) -> float:
  """Return the norm of the difference of two trees over that of the second."""
  x, y = (
      np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(tree)])
      for tree in (a, b)
  )
  return float(np.linalg.norm(x - y) / np.linalg.norm(y))


# PyTorch ----------------------------------------------------------------------


def torch_sum(
    params: Any, inner_steps: int, tasks: Any, dtype: str = "float32"
) -> Callable[[], Any]:
  """Return a function -> the sum of clipped gradients, a tree like `params`.

  A loop clips each task. The task is second-order MAML of Conv4 with batch
  normalisation, or a prototypical network without inner steps.

  Args:
    params: weights of the JAX network.
    inner_steps: of MAML; 0 for a prototypical network.
    tasks: images [tasks, examples, 28, 28, 1] and labels, one shot.
    dtype: dtype of the computation.
  """
  import torch  # Lazy import: it may not be installed.
  from torch.nn import functional

  flat, tree = jax.tree.flatten(params)

  def turned(array: Any) -> Any:
    found = torch.tensor(np.asarray(array, dtype))
    return found.permute(3, 2, 0, 1) if found.ndim == 4 else found

  start = [turned(array).requires_grad_() for array in flat]

  def network(weights: Any, x: Any) -> Any:
    """Return logits, or features without a head."""
    parts = jax.tree.unflatten(tree, weights)
    parts = parts.get("model", parts)
    for i in range(4):
      block = parts[f"block_{i}"]
      x = functional.conv2d(x, block["kernel"], padding=1)
      x = x.contiguous(memory_format=torch.channels_last)
      x = functional.batch_norm(
          x, None, None, block["scale"], block["bias"], True, 0.0, EPSILON
      )
      x = functional.leaky_relu(functional.max_pool2d(x, 2), SLOPE)
    x = x.permute(0, 2, 3, 1).flatten(1)
    if "head" not in parts:
      return x
    return x @ parts["head"]["kernel"] + parts["head"]["bias"]

  def loss(weights: Any, images: Any, labels: Any) -> Any:
    return functional.cross_entropy(network(weights, images), labels)

  def task_loss(support: Any, query: Any) -> Any:
    if not inner_steps:
      prototypes = network(start, support[0])[torch.argsort(support[1])]
      features = network(start, query[0])
      apart = features[:, None, :] - prototypes[None, :, :]
      return functional.cross_entropy(-apart.square().sum(-1), query[1])
    weights = start
    for _ in range(inner_steps):
      slopes = torch.autograd.grad(
          loss(weights, *support), weights, create_graph=True
      )
      weights = [w - RATE * g for w, g in zip(weights, slopes)]
    return loss(weights, *query)

  def examples(part: Any, i: int) -> tuple[Any, Any]:
    images = torch.tensor(part.images[i].astype(dtype)).movedim(-1, 1)
    return images, torch.tensor(part.labels[i].astype(np.int64))

  every = [
      [examples(part, i) for part in tasks]
      for i in range(len(tasks.support.labels))
  ]

  def total() -> Any:
    sums = [torch.zeros_like(w) for w in start]
    for support, query in every:
      gradient = torch.autograd.grad(task_loss(support, query), start)
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


class Loops:
  """PyTorch loops in single-threaded processes, each with a share of the tasks.

  Args:
    params, inner_steps, tasks: see `torch_sum`.
  """

  def __init__(self, params: Any, inner_steps: int, tasks: Any) -> None:
    context = multiprocessing.get_context("spawn")
    os.environ.update(_KEEP_MEMORY)  # For processes that start later.
    count = min(CORES, len(tasks.support.labels))
    self._workers = []
    for i in range(count):
      share = jax.tree.map(lambda a, i=i: np.asarray(a)[i::count], tasks)
      self._workers.append(futures.ProcessPoolExecutor(
          1, context, _begin, (params, inner_steps, share)
      ))

  def turn(self) -> harness.Turn:
    """Run all of them."""
    return harness.timed(self._answers, sum)

  def _answers(self) -> list[float]:
    waiting = [worker.submit(_answer) for worker in self._workers]
    return [one.result() for one in waiting]

  def close(self) -> None:
    """End the processes."""
    for worker in self._workers:
      worker.shutdown()


_program: Callable[[], Any]
# New pages for every large array take a third of PyTorch's time (mallopt(3)).
_KEEP_MEMORY = {
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": str(2**31 - 1),
    "MALLOC_TOP_PAD_": str(2**26),
}


def _begin(*arguments: Any) -> None:
  """Make the program of a worker."""
  global _program
  import torch  # Lazy import: it may not be installed.

  torch.set_num_threads(1)
  _program = torch_sum(*arguments)


def _answer() -> float:
  """Return the processor time that the program of a worker took."""
  return harness.timed(_program).cpu_seconds


# jax_privacy ------------------------------------------------------------------


def jax_privacy_step(run: settings.Run, chunk: int) -> Callable[[], Any]:
  """Return a case built on jax_privacy: a task is its example.

  Only the sampling is ours.
  """
  # Lazy import: it may not be installed.
  from jax_privacy import clipping
  from jax_privacy import noise_addition

  clip_norm = run.mechanism.clip_norm
  gradient = clipping.clipped_grad(
      run.learner.loss,
      l2_clip_norm=clip_norm,
      keep_batch_dim=False,
      microbatch_size=chunk,
  )
  privatizer = noise_addition.gaussian_privatizer(
      stddev=clip_norm * run.mechanism.noise_multiplier,
      prng_key=jax.random.key(1),
  )
  images = jnp.asarray(run.dataset.images)
  episode = run.plan.episode
  assert episode is not None  # All plans of the benchmarks have tasks.

  @functools.partial(jax.jit, donate_argnums=0)
  def update(both: Any, images: jax.Array) -> Any:
    state, carried = both
    key = jax.random.fold_in(state.key, state.step)
    drawn = sampling.sample(key, run.dataset.hierarchy, run.plan, state.step)
    rows, _ = sampling.task_indices(*drawn, run.dataset.hierarchy, run.plan)
    tasks = jax.vmap(
        functools.partial(sampling.make_episode, episode=episode)
    )(jax.random.split(key, rows.shape[0]), images[run.dataset.rows(rows)])
    total, carried = privatizer.update(gradient(state.params, tasks), carried)
    mean = jax.tree.map(lambda g: g / rows.shape[0], total)
    updates, opt_state = run.optimizer.update(
        mean, state.opt_state, state.params
    )
    state = state._replace(
        params=optax.apply_updates(state.params, updates),
        opt_state=opt_state,
        step=state.step + 1,
    )
    return (state, carried), {}

  return harness.steps(
      lambda both: update(both, images),
      (run.init(), privatizer.init(run.init().params)),
  )
