"""What is chosen by the kind of device, and why: the one place for all of it.

A CPU ("cpu") has forms of its own for some convolutions, which only exist
because it is slow at the plain ones (`models/cpu`); computes one task at a
time, since batched products are slower there than single ones; and is told to
compile in haste (docs/decisions/compiling.md).

An accelerator ("gpu", "tpu") takes products of patches for all of them, 32
tasks at a time, because only wide products keep it busy, and XLA's own options.
Its products of float32 arrays have operands of fewer bits unless
JAX_DEFAULT_MATMUL_PRECISION says otherwise, TF32 on a GPU and bfloat16 on a
TPU, and are added up in float32. None of this has been measured on one yet;
docs/accelerators.md has what can be read from the programs.
"""

from collections.abc import Iterator, Mapping
import contextlib
import contextvars
import dataclasses
from typing import Any

import jax

_ASSUMED: contextvars.ContextVar[str | None] = contextvars.ContextVar(
    "assumed backend", default=None
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Choices:
  """How programs are made for one kind of device.

  Attributes:
    own_forms: whether a convolution takes the form of `models.cpu` that fits.
    microbatch_size: tasks that a device computes together.
    compiler_options: of XLA, for programs that a user waits for; None for its
      own.
  """

  own_forms: bool
  microbatch_size: int
  compiler_options: Mapping[str, Any] | None


_CPU = Choices(
    own_forms=True,
    microbatch_size=1,
    compiler_options={
        "xla_cpu_use_fusion_emitters": False,
        "xla_backend_optimization_level": 1,
    },
)
_ACCELERATOR = Choices(
    own_forms=False, microbatch_size=32, compiler_options=None
)


def name() -> str:
  """JAX's default backend ("cpu", "gpu", "tpu"), or the one assumed."""
  return _ASSUMED.get() or jax.default_backend()


def choices() -> Choices:
  """Those of the backend."""
  return _CPU if name() == "cpu" else _ACCELERATOR


@contextlib.contextmanager
def assumed(backend: str) -> Iterator[None]:
  """Programs made meanwhile are those of a backend that need not be here.

  Args:
    backend: "cpu", "gpu" or "tpu".
  """
  token = _ASSUMED.set(backend)
  try:
    yield
  finally:
    _ASSUMED.reset(token)
