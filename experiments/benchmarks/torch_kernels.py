"""Gradients of every task apart, of kernels and norms, by hand in PyTorch."""

from collections.abc import Callable
import time
from typing import Any

import torch
from torch.nn import functional

# (what went in [tasks * n, C, H, W], gradient of what came out [.., O, H, W]),
# task by task, once for every pass of the network.
Pairs = list[tuple[torch.Tensor, torch.Tensor]]
# Squared norms [tasks], and factors [tasks] -> the weighted sum [O, C, 3, 3].
Found = tuple[torch.Tensor, Callable[[torch.Tensor], torch.Tensor]]

_SMALL = 2**13  # Numbers of a task: fewer are normalised for all at once.
_MOST_POSITIONS = 256  # Beyond, `_gram` can only lose.


class TaskNorm(torch.autograd.Function):
  """Batch normalisation by the statistics of every task's own examples."""

  @staticmethod
  def forward(
      ctx: Any,
      x: torch.Tensor,
      scale: torch.Tensor,
      bias: torch.Tensor,
      epsilon: float,
  ) -> torch.Tensor:
    """x [tasks * n, C, H, W], scale and bias [tasks, C]."""
    tasks = len(scale)
    ctx.epsilon, ctx.small = epsilon, x.numel() < tasks * _SMALL
    if ctx.small:
      flat = _by_task(x, tasks)
      variance, mean = torch.var_mean(flat, 1, correction=0, keepdim=True)
      inverse = (variance + epsilon).rsqrt()
      slope = inverse * scale[:, None]
      found = _like(
          torch.addcmul(bias[:, None] - mean * slope, flat, slope), x
      )
    else:
      found = torch.empty_like(x)
      mean, inverse = torch.empty_like(scale), torch.empty_like(scale)
      for i in range(tasks):
        torch.ops.aten.native_batch_norm.out(
            _slice(x, tasks, i), scale[i], bias[i], None, None, True, 0.0,
            epsilon, out=_slice(found, tasks, i), save_mean=mean[i],
            save_invstd=inverse[i],
        )  # fmt: skip
      slope = scale
    ctx.save_for_backward(x, mean, inverse, slope)
    return found

  @staticmethod
  def backward(
      ctx: Any, gradient: torch.Tensor
  ) -> tuple[torch.Tensor | None, ...]:
    """Gradients of x, and of scale and bias task by task."""
    x, mean, inverse, slope = ctx.saved_tensors
    tasks = len(mean)
    if not ctx.small:
      gradient = gradient.contiguous(memory_format=torch.channels_last)
      found = torch.empty_like(x)
      of_scale, of_bias = torch.empty_like(mean), torch.empty_like(mean)
      for i in range(tasks):
        torch.ops.aten.native_batch_norm_backward.out(
            _slice(gradient, tasks, i), _slice(x, tasks, i), slope[i], None,
            None, mean[i], inverse[i], True, ctx.epsilon, [True, True, True],
            out0=_slice(found, tasks, i), out1=of_scale[i], out2=of_bias[i],
        )  # fmt: skip
      return found, of_scale, of_bias, None
    flat, given = (_by_task(a, tasks) for a in (x, gradient))
    of_bias = given.sum(1, keepdim=True)
    along = (given * flat).sum(1, keepdim=True)
    of_scale = (along - mean * of_bias) * inverse
    count = flat.shape[1]
    by_input = -slope * inverse * of_scale / count
    rest = -mean * by_input - slope * of_bias / count
    found = torch.addcmul(torch.addcmul(rest, flat, by_input), given, slope)
    return _like(found, x), of_scale[:, 0], of_bias[:, 0], None


def _slice(a, tasks, i):
  """The examples of a task, of [tasks * n, ...]."""
  n = len(a) // tasks
  return a[i * n : (i + 1) * n]


def _by_task(x, tasks):
  """[tasks * n, C, H, W] -> [tasks, n * H * W, C], a view of channels last."""
  return x.permute(0, 2, 3, 1).reshape(tasks, -1, x.shape[1])


def _like(flat, x):
  n, channels, height, width = x.shape
  return flat.view(n, height, width, channels).permute(0, 3, 1, 2)


class Chooser:
  """Squared norms and weighted sums of a kernel's gradients, by task.

  At its first sight of some sizes it tries every form and keeps the quickest.
  """

  def __init__(self) -> None:
    self._chosen: dict[tuple, Callable[[int, Pairs], Found]] = {}

  def __call__(self, tasks: int, pairs: Pairs) -> Found:
    """By the form that is quickest for these sizes."""
    key = tuple(a.shape for pair in pairs for a in pair)
    if key not in self._chosen:
      positions = sum(x.shape[0] * x[0, 0].numel() for x, _ in pairs) / tasks
      forms = [_one_by_one, _grouped, _unfolded]
      forms += [_gram] * (positions <= _MOST_POSITIONS)
      self._chosen[key] = min(forms, key=lambda f: _seconds(f, tasks, pairs))
    return self._chosen[key](tasks, pairs)


def _seconds(form, tasks, pairs):
  least = float("inf")
  for _ in range(2):
    began = time.perf_counter()
    square, weigh = form(tasks, pairs)
    weigh(square)
    least = min(least, time.perf_counter() - began)
  return least


def _apart(gradients):
  """What `Found` says, of gradients [tasks, O, C, 3, 3]."""
  return (
      gradients.flatten(1).square().sum(1),
      lambda factors: torch.tensordot(factors, gradients, 1),
  )


def _kernel_gradient(x, g, groups=1):
  shape = (g.shape[1], x.shape[1] // groups, 3, 3)
  return torch.ops.aten.convolution_backward(
      g, x, x.new_empty(()).expand(shape), None, [1, 1], [1, 1], [1, 1], False,
      [0, 0], groups, [False, True, False],
  )[1]  # fmt: skip


def _one_by_one(tasks, pairs):
  def of_task(i):
    return sum(
        _kernel_gradient(_slice(x, tasks, i), _slice(g, tasks, i))
        for x, g in pairs
    )

  return _apart(torch.stack([of_task(i) for i in range(tasks)]))


def _grouped(tasks, pairs):
  """A convolution of as many groups as there are tasks."""

  def beside(a):
    return a.unflatten(0, (tasks, -1)).transpose(0, 1).flatten(1, 2)

  found = sum(
      _kernel_gradient(beside(x), beside(g), tasks) for x, g in pairs
  )
  return _apart(found.unflatten(0, (tasks, -1)))


def _patches(x, tasks):
  """Shape [tasks, n, C * 9, H * W]."""
  return functional.unfold(x, 3, padding=1).unflatten(0, (tasks, -1))


def _unfolded(tasks, pairs):
  def product(x, g):
    g = g.unflatten(0, (tasks, -1)).flatten(3)
    return (g @ _patches(x, tasks).transpose(-1, -2)).sum(1)

  x, g = pairs[0]
  found = sum(product(x, g) for x, g in pairs)
  return _apart(found.view(tasks, g.shape[1], x.shape[1], 3, 3))


def _gram(tasks, pairs):
  """Norms without gradients: both sides' products of positions."""

  def rows(parts):
    return torch.cat([p.transpose(2, 3).flatten(1, 2) for p in parts], 1)

  inner = rows([_patches(x, tasks) for x, _ in pairs])
  outer = rows([g.unflatten(0, (tasks, -1)).flatten(3) for _, g in pairs])
  square = (
      (inner @ inner.transpose(1, 2)) * (outer @ outer.transpose(1, 2))
  ).sum((1, 2))

  def weigh(factors):
    return sum(
        _kernel_gradient(
            x,
            g * factors.repeat_interleave(len(g) // tasks)[:, None, None, None],
        )
        for x, g in pairs
    )

  return square, weigh
