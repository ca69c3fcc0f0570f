"""The same sums of clipped gradients by other libraries, and by hand.

PyTorch is configured to be fast on a CPU: images have their channels last, the
pool precedes the LeakyReLU, and one single-threaded process for every core
takes a share of the tasks. These processes block on a queue between two runs,
so that they do not slow the other cases. They and our process keep freed
memory.
"""

from collections.abc import Callable
from concurrent import futures
import ctypes
import functools
import importlib
import importlib.util
import math
import multiprocessing
import os
from typing import Any, NamedTuple

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
# Not a plain import: it may not be installed.
torch: Any = None
functional: Any = None
if importlib.util.find_spec("torch"):
  torch = importlib.import_module("torch")
  functional = importlib.import_module("torch.nn.functional")


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


class Problem(NamedTuple):
  """Tasks whose clipped gradients are added up.

  Attributes:
    kind: of the learner.
    params: weights of the JAX network.
    tasks: images [tasks, examples, H, W, C] and labels, class by class; the
      support set has one image of a class.
    inner_steps: of MAML.
    dtype: dtype of the computation.
  """

  kind: settings.Kind
  params: Any
  tasks: Any
  inner_steps: int = 0
  dtype: str = "float32"

  def torch_sum(self, way: str = "loop") -> Callable[[], Any]:
    """Return a function -> the sum of clipped gradients, like `params`.

    Args:
      way: of `WAYS`; MAML has a loop only.
    """
    flat, tree = jax.tree.flatten(self.params)
    weights = [self._tensor(w).requires_grad_() for w in flat]
    unflatten = functools.partial(jax.tree.unflatten, tree)
    program = WAYS[way](self, weights, unflatten)

    def total() -> Any:
      arrays = [
          (s.permute(2, 3, 1, 0) if s.ndim == 4 else s).numpy()
          for s in program()
      ]
      return unflatten(arrays)

    return total

  def _tensor(self, array: Any) -> Any:
    found = torch.tensor(np.asarray(array, self.dtype))
    return found.permute(3, 2, 0, 1) if found.ndim == 4 else found

  def tensors(self) -> tuple[list[Any], Any]:
    """Return the images [tasks, n, C, H, W] of each pass, and query labels."""
    labels = torch.tensor(np.asarray(self.tasks.query.labels, np.int64))
    both = [
        torch.tensor(np.asarray(part.images, self.dtype)).movedim(-1, 2)
        for part in self.tasks
        if part.labels.shape[1]  # Single examples have no support set.
    ]
    if self.kind != "turns":
      return both, labels
    classes = [x.unflatten(1, (settings.WAY, -1)) for x in both]
    return [torch.cat(classes, 2).flatten(1, 2)], labels


def _conv4(kind: str, parts: Any, x: Any, passed: Any = None) -> Any:
  """Return features [n, d] of images [n, C, H, W].

  Args:
    kind: of the learner.
    parts: weights; those of a norm [C], or [tasks, C] for the images of tasks.
    x: the images.
    passed: a list for each convolution, to which its input and output go.
  """
  for i in range(4):
    block = parts[f"block_{i}"]
    y = functional.conv2d(x, block["kernel"], padding=1)
    y = y.contiguous(memory_format=torch.channels_last)
    if passed is not None:
      passed[i].append((x.detach(), y if i else y.requires_grad_()))
    y = _norm(kind, y, block["scale"], block["bias"])
    x = functional.leaky_relu(functional.max_pool2d(y, 2), SLOPE)
  return x.permute(0, 2, 3, 1).flatten(1)


# Numbers of a task below which all tasks are normalised by the same operations.
_SMALL = 2**13


def _norm(kind: str, x: Any, scale: Any, bias: Any) -> Any:
  """Normalise the images of one task, or of tasks with their own scales."""
  if kind == "supervised":
    x = functional.group_norm(x, math.gcd(x.shape[1], 8), eps=EPSILON)
    return torch.addcmul(bias[..., None, None], x, scale[..., None, None])
  if scale.ndim == 1:
    return functional.batch_norm(x, None, None, scale, bias, True, 0.0, EPSILON)
  if x.numel() >= len(scale) * _SMALL:
    parts = zip(x.chunk(len(scale)), scale, bias)
    return torch.cat([_norm(kind, *part) for part in parts])
  last = x.permute(0, 2, 3, 1)
  flat = last.reshape(len(scale), -1, x.shape[1])
  variance, mean = torch.var_mean(flat, 1, correction=0, keepdim=True)
  slope = scale[:, None] * (variance + EPSILON).rsqrt()
  flat = torch.addcmul(bias[:, None] - mean * slope, flat, slope)
  return flat.view(last.shape).permute(0, 3, 1, 2)


def _head_loss(kind: str, parts: Any, features: Any, labels: Any) -> Any:
  """Return a task's loss, from the features [n, d] of `Problem.tensors`."""
  if "head" in parts:
    logits = features[-1] @ parts["head"]["kernel"] + parts["head"]["bias"]
    return functional.cross_entropy(logits, labels)
  classes = torch.arange(settings.WAY)
  if kind == "turns":
    x = features[0].unflatten(0, (settings.WAY, -1))
    n = x.shape[1]
    # By turn, class and number of the query, and class of the support.
    apart = x[None, :, :, None] - x.transpose(0, 1)[:, None, None]
    losses = functional.cross_entropy(
        -apart.square().sum(-1).flatten(0, 2),
        classes[None, :, None].expand(n, -1, n).flatten(),
        reduction="none",
    )
    others = 1 - torch.eye(n)[:, None].to(losses)
    return (losses.unflatten(0, (n, -1, n)) * others).sum() / (
        settings.WAY * n * (n - 1)
    )
  support, query = features
  if kind == "ridge":
    unit = torch.eye(settings.WAY).to(support)
    gram = support @ support.T + parts["log_ridge"].exp() * unit
    logits = query @ (support.T @ torch.linalg.solve(gram, unit))
    logits = parts["log_scale"].exp() * logits
  else:
    logits = -(query[:, None] - support).square().sum(-1)
  return functional.cross_entropy(
      logits, classes.repeat_interleave(len(query) // settings.WAY)
  )


def _by_name(tree: Any) -> Any:
  """Return the arrays outside of the network and its blocks, by name."""
  return tree | tree.get("model", {})


def _loop(problem: Problem, weights: Any, unflatten: Any) -> Any:
  """Sum task by task: differentiate, clip, add."""
  sets, labels = problem.tensors()

  def adapted(images: Any, labels: Any) -> Any:
    found = weights
    for _ in range(problem.inner_steps):
      slopes = torch.autograd.grad(
          loss(found, [images], labels), found, create_graph=True
      )
      found = [w - RATE * g for w, g in zip(found, slopes)]
    return found

  def loss(weights: Any, images: Any, labels: Any) -> Any:
    parts = _by_name(unflatten(weights))
    features = [_conv4(problem.kind, parts, x) for x in images]
    return _head_loss(problem.kind, parts, features, labels)

  def total() -> Any:
    sums = [torch.zeros_like(w) for w in weights]
    for i, wanted in enumerate(labels):
      images, found = [x[i] for x in sets], weights
      if problem.kind == "maml":
        classes = torch.tensor(problem.tasks.support.labels[i].astype(np.int64))
        found, images = adapted(images[0], classes), images[1:]
      gradient = torch.autograd.grad(loss(found, images, wanted), weights)
      norm = sum(g.square().sum() for g in gradient).sqrt()
      for s, g in zip(sums, gradient):
        s.add_(torch.clamp(CLIP / norm, max=1.0) * g)
    return sums

  return total


_PASS = 2**22  # Most outputs of a convolution in a pass over several tasks.
_GROUPED = 32  # Pixels: up to here single examples are faster as groups.


def _kernels(x: Any, slope: Any, tasks: int) -> Any:
  """Return each task's gradient of a kernel, [tasks, O, C, 3, 3]."""
  if len(x) == tasks and x.shape[2] <= _GROUPED:
    return _kernel(
        x.flatten(0, 1)[None], slope.flatten(0, 1)[None], tasks
    ).unflatten(0, (tasks, -1))
  return torch.stack([
      _kernel(*part) for part in zip(x.chunk(tasks), slope.chunk(tasks))
  ])


def _kernel(x: Any, slope: Any, groups: int = 1) -> Any:
  shape = slope.shape[1], x.shape[1] // groups, 3, 3
  return torch.ops.aten.convolution_backward(
      slope, x, x.new_empty(()).expand(shape), None, [1, 1], [1, 1], [1, 1],
      False, [0, 0], groups, [False, True, False],
  )[1]


def _batch(problem: Problem, weights: Any, unflatten: Any) -> Any:
  """Sum after one pass over the images of some tasks ("ghost norms").

  It yields the input of every convolution and the gradient of its output, from
  which follow each task's gradients of the kernels.
  """
  sets, labels = problem.tensors()
  width = max(len(w) for w in weights if w.ndim == 4)
  outputs = width * sum(x[0, :, 0].numel() for x in sets)
  at_once = max(1, min(_PASS // outputs, 32))

  def some(*group: Any) -> Any:
    *sets, labels = group
    tasks = len(labels)
    # The kernels are shared, all else is repeated for each task.
    own = [
        w.detach() if w.ndim == 4
        else w.detach().expand(tasks, *w.shape).clone().requires_grad_()
        for w in weights
    ]
    parts = _by_name(unflatten(own))
    passed: list[list[Any]] = [[] for _ in range(4)]
    features = [
        _conv4(problem.kind, parts, x.flatten(0, 1), passed)
        .unflatten(0, (tasks, -1))
        for x in sets
    ]
    head = {
        name: parts[name]
        for name in ("head", "log_ridge", "log_scale") if name in parts
    }
    losses = torch.vmap(functools.partial(_head_loss, problem.kind))(
        head, features, labels
    )
    outputs = [y for pairs in passed for _, y in pairs]
    repeated = [w for w in own if w.requires_grad]
    slopes = iter(torch.autograd.grad(losses.sum(), outputs + repeated))
    kernels = iter([
        sum(_kernels(x, next(slopes), tasks) for x, _ in pairs)
        for pairs in passed
    ])
    found = [next(kernels) if w.ndim == 4 else next(slopes) for w in own]
    squares = sum(g.reshape(tasks, -1).square().sum(1) for g in found)
    factors = torch.clamp(CLIP / squares.sqrt(), max=1.0)
    return [torch.tensordot(factors, g, 1) for g in found]

  def total() -> Any:
    groups = zip(*(x.split(at_once) for x in (*sets, labels)))
    return [sum(s) for s in zip(*(some(*group) for group in groups))]

  return total


WAYS = {"loop": _loop, "batch": _batch}


class Workers:
  """Single-threaded processes for PyTorch, each with a share of the tasks."""

  def __init__(self) -> None:
    context = multiprocessing.get_context("spawn")
    _keep_memory()
    self._workers = [
        futures.ProcessPoolExecutor(1, context) for _ in range(CORES)
    ]

  def case(self, problem: Problem, way: str) -> Callable[[], harness.Turn]:
    """Return a case that runs a program of `Problem.torch_sum`."""
    workers = self._workers[: len(problem.tasks.query.labels)]
    for i, worker in enumerate(workers):
      share = problem._replace(tasks=jax.tree.map(
          lambda a, i=i: np.asarray(a)[i :: len(workers)], problem.tasks
      ))
      worker.submit(_begin, share, way).result()

    def answers() -> list[float]:
      waiting = [worker.submit(_answer, way) for worker in workers]
      return [one.result() for one in waiting]

    return lambda: harness.timed(answers, sum)

  def close(self) -> None:
    """End the processes."""
    for worker in self._workers:
      worker.shutdown()


_programs: dict[str, Callable[[], Any]] = {}


def _keep_memory() -> None:
  """Keep freed memory: new pages took a third of PyTorch's time.

  A step of a run has hundreds of tasks to share this time, here a few.
  """
  library: Any = ctypes.CDLL(None)
  if hasattr(library, "mallopt"):  # As in glibc, mallopt(3).
    # The most arrays in pages of their own, the free bytes that are given back,
    # and the bytes that are fetched in advance.
    for option, value in ((-4, 0), (-1, 2**31 - 1), (-2, 2**26)):
      library.mallopt(option, value)


def _begin(problem: Problem, way: str) -> None:
  """Make a program of a worker."""
  _keep_memory()
  torch.set_num_threads(1)
  _programs[way] = problem.torch_sum(way)


def _answer(way: str) -> float:
  """Return the processor time that the program of a worker took."""
  return harness.timed(_programs[way]).cpu_seconds


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
    updates, opt_state = run.optimizer.update(
        jax.tree.map(lambda g: g / rows.shape[0], total),
        state.opt_state,
        state.params,
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
