"""Drawing examples, and the tasks made of them, on the accelerator.

`sample` reads the same `plan` objects as the accountant: what is accounted is
what is drawn.
"""

from episodic_dp.sampling.augment import rotate_classes
from episodic_dp.sampling.episodes import EpisodeBatch
from episodic_dp.sampling.episodes import Examples
from episodic_dp.sampling.episodes import make_episode
from episodic_dp.sampling.episodes import single_example
from episodic_dp.sampling.episodes import task_indices
from episodic_dp.sampling.sampler import sample
from episodic_dp.sampling.synthetic import synthetic_participants

__all__ = [
    "EpisodeBatch",
    "Examples",
    "make_episode",
    "rotate_classes",
    "sample",
    "single_example",
    "synthetic_participants",
    "task_indices",
]
