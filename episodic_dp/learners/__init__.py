"""Meta-learners: init, adapt, loss, predict, over a Model."""

from episodic_dp.learners.maml import accuracy
from episodic_dp.learners.maml import cross_entropy
from episodic_dp.learners.maml import MAML
from episodic_dp.learners.maml import squared_error

__all__ = ["MAML", "accuracy", "cross_entropy", "squared_error"]
