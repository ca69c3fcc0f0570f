"""Programs that a user waits for, compiled as `backends` says."""

from collections.abc import Callable
from typing import Any

import jax

from episodic_dp import backends


def jit(function: Callable[..., Any], **options: Any) -> Any:
  """`jax.jit` for a program that is called from outside of others.

  Args:
    function: of arrays.
    **options: as `jax.jit` takes them.
  """
  return jax.jit(function, compiler_options=compiler_options(), **options)


def compiler_options() -> dict[str, Any] | None:
  """What `jax.jit` takes on this backend; None for XLA's own."""
  if jax.config.values["jax_disable_most_optimizations"]:
    return None  # Asked for: even less than these.
  chosen = backends.choices().compiler_options
  return None if chosen is None else dict(chosen)
