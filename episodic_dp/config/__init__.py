"""From a text to a run.

A preset or another file gives a ConfigDict; `RunConfig.parse` reads and checks
it, without JAX; `build.build` makes of it what is trained.
"""

from episodic_dp.config.run_config import RunConfig

__all__ = ["RunConfig"]
