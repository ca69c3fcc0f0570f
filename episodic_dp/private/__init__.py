"""The private step: clip each task's gradient, sum, add noise, update."""

from episodic_dp.private.clipping import clip
from episodic_dp.private.clipping import sensitivity
from episodic_dp.private.keys import secret_key
from episodic_dp.private.meta_step import make_meta_step
from episodic_dp.private.meta_step import Step
from episodic_dp.private.noise import add_noise
from episodic_dp.private.state import init
from episodic_dp.private.state import State
from episodic_dp.private.step import Compute

__all__ = [
    "Compute",
    "State",
    "Step",
    "add_noise",
    "clip",
    "init",
    "make_meta_step",
    "secret_key",
    "sensitivity",
]

__dir__ = __all__.copy
