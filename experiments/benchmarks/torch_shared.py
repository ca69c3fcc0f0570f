"""PyTorch's ways to clipped sums of tasks that share their weights.

ProtoNet and the ridge head by tasks, supervised learning by single examples:

  loop   a task after the other: autograd, clip, add
  vmap   `vmap` of `grad` over the tasks: every gradient at once
  ghost  one pass forward and back over the batch of all tasks, which gives what
         goes into every convolution and the gradient of what comes out of it;
         from these every task's norm, then the sum of the clipped gradients

In all of them images lie channels last and the pool goes before the LeakyReLU:
both are quicker there. JAX is not imported: the programs run in processes of
their own.
"""

from collections.abc import Callable, Mapping
import functools
import math
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.nn import functional

from experiments.benchmarks import shared_problem
from experiments.benchmarks import torch_kernels

BLOCKS, EPSILON, SLOPE, MAX_GROUPS = 4, 1e-5, 0.01, 8

Weights = dict[str, torch.Tensor]


class _Tasks(NamedTuple):
  """Tensors of a problem: images [tasks, n, C, H, W], channels last."""

  learner: str
  weights: Weights
  support: tuple[torch.Tensor, torch.Tensor]
  query: tuple[torch.Tensor, torch.Tensor]
  clip: float

  @property
  def tasks(self) -> int:
    return len(self.query[1])

  @property
  def sets(self) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Those that hold examples."""
    return [s for s in (self.support, self.query) if s[1].shape[1]]


def make(name: str, problem: shared_problem.Problem) -> Callable[[], Any]:
  """A function without arguments -> the sum, a nested dict like the params.

  Args:
    name: "loop", "vmap" or "ghost".
    problem: what to add up.
  """
  program = {"loop": _loop, "vmap": _vmap, "ghost": _ghost}[name]
  run = program(_tensors(problem))
  return lambda: _nested(problem.params, run())


def _tensors(problem: shared_problem.Problem) -> _Tasks:
  dtype = np.dtype(problem.dtype)

  def examples(images, labels):
    return (
        torch.tensor(images.astype(dtype)).movedim(-1, 2),
        torch.tensor(labels.astype(np.int64)),
    )

  def turned(array):
    array = torch.tensor(np.asarray(array, dtype))
    return array.permute(3, 2, 0, 1) if array.ndim == 4 else array

  return _Tasks(
      problem.learner,
      {name: turned(a) for name, a in _flat(problem.params).items()},
      examples(*problem.support),
      examples(*problem.query),
      problem.clip,
  )


def _flat(tree: Any, before: str = "") -> dict[str, Any]:
  """Arrays by "block_0.kernel" and the like; "model." is left out."""
  if not isinstance(tree, Mapping):
    return {before: tree}
  found: dict[str, Any] = {}
  for name, value in tree.items():
    place = before if name == "model" else f"{before}.{name}".lstrip(".")
    found |= _flat(value, place)
  return found


def _nested(tree: Any, sums: Weights, before: str = "") -> Any:
  if not isinstance(tree, Mapping):
    found = sums[before].detach()
    return (found.permute(2, 3, 1, 0) if found.ndim == 4 else found).numpy()
  return {
      name: _nested(
          value,
          sums,
          before if name == "model" else f"{before}.{name}".lstrip("."),
      )
      for name, value in tree.items()
  }


def _groups(channels: int) -> int:
  return math.gcd(channels, MAX_GROUPS)


def _channels_last(x: torch.Tensor) -> torch.Tensor:
  """The same where it lies so: one channel alone does not say how it lies."""
  return x.contiguous(memory_format=torch.channels_last)


def _embed(
    learner: str,
    weights: Weights,
    x: torch.Tensor,
    lay: Callable[[torch.Tensor], torch.Tensor] = _channels_last,
) -> torch.Tensor:
  """Conv4 of one task's images [n, C, H, W] -> features [n, d]."""
  for i in range(BLOCKS):
    of_block = functools.partial("block_{}.{}".format, i)
    x = lay(functional.conv2d(x, weights[of_block("kernel")], padding=1))
    affine = weights[of_block("scale")], weights[of_block("bias")]
    if learner == "supervised":
      x = functional.group_norm(x, _groups(x.shape[1]), *affine, EPSILON)
    else:
      x = functional.batch_norm(x, None, None, *affine, True, 0.0, EPSILON)
    x = functional.leaky_relu(functional.max_pool2d(x, 2), SLOPE)
  return x.permute(0, 2, 3, 1).flatten(1)


def _losses(
    learner: str,
    weights: Weights,
    features: list[torch.Tensor],
    labels: list[torch.Tensor],
) -> torch.Tensor:
  """The mean query loss, of one task or, with a leading axis, of each.

  Args:
    learner: see `shared_problem.Problem`.
    weights: those that are not of a block; numbers may be one a task.
    features: [..., n, d] of the support set and of the query set.
    labels: [..., n] likewise.
  """
  query = features[-1]
  if learner == "supervised":
    logits = query @ weights["head.kernel"] + weights["head.bias"]
  else:
    support = features[0]
    way = support.shape[-2]  # One shot.
    members = (labels[0][..., None] == torch.arange(way)).to(support)
    if learner == "protonet":
      prototypes = members.transpose(-1, -2) @ support
      apart = query[..., :, None, :] - prototypes[..., None, :, :]
      logits = -apart.square().sum(-1)
    else:
      ridge = weights["log_ridge"].exp()[..., None, None]
      gram = support @ support.transpose(-1, -2)
      factor = torch.linalg.cholesky(gram + ridge * torch.eye(way).to(gram))
      dual = torch.cholesky_solve(members, factor)
      outputs = query @ (support.transpose(-1, -2) @ dual)
      logits = weights["log_scale"].exp()[..., None, None] * outputs
  logs = logits.log_softmax(-1).gather(-1, labels[-1][..., None])
  return -logs.mean((-1, -2))


def _task_loss(learner, weights, images, labels, lay=_channels_last):
  features = [_embed(learner, weights, x, lay) for x in images]
  return _losses(learner, weights, features, labels)


def _loop(tasks: _Tasks) -> Callable[[], Weights]:
  names = list(tasks.weights)
  leaves = [w.requires_grad_() for w in tasks.weights.values()]

  def total():
    sums = [torch.zeros_like(w) for w in leaves]
    for i in range(tasks.tasks):
      loss = _task_loss(
          tasks.learner,
          tasks.weights,
          [images[i] for images, _ in tasks.sets],
          [labels[i] for _, labels in tasks.sets],
      )
      gradient = torch.autograd.grad(loss, leaves)
      norm = torch.stack([g.square().sum() for g in gradient]).sum().sqrt()
      factor = torch.clamp(tasks.clip / norm, max=1.0)
      for s, g in zip(sums, gradient):
        s.add_(factor * g)
    return dict(zip(names, sums))

  return total


def _vmap(tasks: _Tasks) -> Callable[[], Weights]:
  def loss(weights, images, labels):
    # `vmap` knows no layouts.
    return _task_loss(tasks.learner, weights, images, labels, lambda x: x)

  each = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0, 0))
  images, labels = (list(part) for part in zip(*tasks.sets))

  def total():
    gradients = each(tasks.weights, images, labels)
    square = sum(g.flatten(1).square().sum(1) if g.ndim > 1 else g.square()
                 for g in gradients.values())  # fmt: skip
    factors = torch.clamp(tasks.clip / square.sqrt(), max=1.0)
    return {
        name: torch.tensordot(factors, g, 1) for name, g in gradients.items()
    }

  return total


def _ghost(tasks: _Tasks) -> Callable[[], Weights]:
  kernels = torch_kernels.Chooser()
  few = [name for name in tasks.weights if not name.endswith("kernel")]

  def total():
    count = tasks.tasks
    # One a task, so that their gradients are too.
    own = {
        name: tasks.weights[name]
        .expand(count, *tasks.weights[name].shape)
        .clone()
        .requires_grad_()
        for name in few
    }
    inputs, outputs, features = [], [], []
    for images, _ in tasks.sets:
      x = images.flatten(0, 1)
      for i in range(BLOCKS):
        kernel = tasks.weights[f"block_{i}.kernel"]
        y = functional.conv2d(x, kernel, padding=1)
        if not i:
          y = _channels_last(y).requires_grad_()
        inputs.append((f"block_{i}.kernel", x.detach()))
        outputs.append(y)
        scale, bias = own[f"block_{i}.scale"], own[f"block_{i}.bias"]
        if tasks.learner == "supervised":
          y = functional.group_norm(y, _groups(y.shape[1]), eps=EPSILON)
          y = torch.addcmul(
              bias[..., None, None], y, scale[..., None, None]
          )
        else:
          y = torch_kernels.TaskNorm.apply(y, scale, bias, EPSILON)
        x = functional.leaky_relu(functional.max_pool2d(y, 2), SLOPE)
      x = x.permute(0, 2, 3, 1).reshape(count, -1, x[0].numel())
      features.append(x)
    others = tasks.weights | own
    if tasks.learner == "supervised":
      others["head.bias"] = own["head.bias"][:, None]
    losses = _losses(
        tasks.learner, others, features, [labels for _, labels in tasks.sets]
    )
    slopes = torch.autograd.grad(losses.sum(), [*outputs, *own.values()])
    given = list(slopes[: len(outputs)])
    found = dict(zip(own, slopes[len(outputs) :]))
    parts: dict[str, torch_kernels.Pairs] = {}
    for (name, x), g in zip(inputs, given):
      parts.setdefault(name, []).append((x, g))
    with torch.no_grad():
      squares = [g.flatten(1).square().sum(1) if g.ndim > 1 else g.square()
                 for g in found.values()]  # fmt: skip
      of_kernels = {n: kernels(count, p) for n, p in parts.items()}
      squares += [square for square, _ in of_kernels.values()]
      if "head.kernel" in tasks.weights:
        # An outer product, whose norm is the product of the norms.
        of_logits, last = found["head.bias"], features[-1][:, 0].detach()
        squares.append(
            of_logits.square().sum(1) * last.square().sum(1)
        )
      factors = torch.clamp(tasks.clip / sum(squares).sqrt(), max=1.0)
      sums = {n: torch.tensordot(factors, g, 1) for n, g in found.items()}
      sums |= {n: weigh(factors) for n, (_, weigh) in of_kernels.items()}
      if "head.kernel" in tasks.weights:
        sums["head.kernel"] = last.T @ (factors[:, None] * of_logits)
    return sums

  return total
