"""Configs of runs: presets, one checked dataclass, and the builders.

A preset or another file returns a ConfigDict. `RunConfig.parse` reads and
checks it without JAX. `build.build` returns the run and its data.
"""

from episodic_dp.config.run_config import RunConfig

__all__ = ["RunConfig"]

__dir__ = __all__.copy
