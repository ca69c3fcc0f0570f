"""The options that programs are compiled with."""

import jax

from episodic_dp import backends
from episodic_dp.private import programs


def test_a_cpu_has_options_of_its_own_unless_less_is_asked_for():
  name = "jax_disable_most_optimizations"
  before = jax.config.values[name]
  try:
    jax.config.update(name, False)
    assert programs.compiler_options()["xla_backend_optimization_level"] == 1
    compiled = programs.jit(lambda x: 2 * x)
    assert compiled(3.0) == 6.0
    with backends.assumed("gpu"):
      assert programs.compiler_options() is None
    jax.config.update(name, True)
    assert programs.compiler_options() is None
  finally:
    jax.config.update(name, before)
