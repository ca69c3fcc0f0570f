"""How programs are compiled: one place for every backend.

On a CPU most of the time goes into LLVM's passes over one loop for each array
operation (docs/decisions/compiling.md). Two settings shorten it and leave a
step as quick as it was: loops written the short way, and LLVM's first level of
optimisation, which already makes them vectors.
"""

from collections.abc import Callable
from typing import Any

import jax

_ON_A_CPU = {
    "xla_cpu_use_fusion_emitters": False,
    "xla_backend_optimization_level": 1,
}


def jit(function: Callable[..., Any], **options: Any) -> Any:
  """`jax.jit` for a program that a user waits for; not inside another one.

  Args:
    function: of arrays.
    **options: as `jax.jit` takes them.
  """
  return jax.jit(function, compiler_options=compiler_options(), **options)


def compiler_options() -> dict[str, Any] | None:
  """What `jax.jit` takes on the default backend; None for XLA's own."""
  if jax.default_backend() != "cpu":
    return None
  if jax.config.values["jax_disable_most_optimizations"]:
    return None  # Asked for: even less than this.
  return dict(_ON_A_CPU)
