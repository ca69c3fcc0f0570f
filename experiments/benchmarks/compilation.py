"""Count of the programs that JAX compiles, and of the time it takes."""

import jax

# Compiling, or reading from the persistent cache what was compiled before.
_COMPILED = "/jax/core/compile/backend_compile_duration"
_ALL = (
    _COMPILED,
    "/jax/core/compile/jaxpr_trace_duration",
    "/jax/core/compile/jaxpr_to_mlir_module_duration",
)


class Compilations:
  """Count programs while it is entered, in every thread of the process.

  Attributes:
    count: programs compiled, or read from the persistent cache.
    seconds: of tracing, lowering and compiling.
  """

  def __init__(self) -> None:
    self.count = 0
    self.seconds = 0.0

  def _count_event(
      self, event: str, duration_secs: float, **kwargs: object
  ) -> None:
    del kwargs
    self.count += event == _COMPILED
    self.seconds += duration_secs if event in _ALL else 0.0

  def __enter__(self) -> "Compilations":
    jax.monitoring.register_event_duration_secs_listener(self._count_event)
    return self

  def __exit__(self, *unused: object) -> None:
    jax.monitoring.unregister_event_duration_listener(self._count_event)
