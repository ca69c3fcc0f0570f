"""Learners: the adaptation to a task, and the direction that is clipped."""

from episodic_dp.learners.fine_tuning import FineTuning
from episodic_dp.learners.heads import ProtoNet
from episodic_dp.learners.heads import RidgeHead
from episodic_dp.learners.learner import cross_entropy
from episodic_dp.learners.learner import Learner
from episodic_dp.learners.learner import squared_error
from episodic_dp.learners.learner import Supervised
from episodic_dp.learners.maml import ANIL
from episodic_dp.learners.maml import MAML
from episodic_dp.learners.maml import MetaSGD
from episodic_dp.learners.reptile import Reptile
from episodic_dp.options import LEARNERS

__all__ = [
    "ANIL",
    "FineTuning",
    "LEARNERS",
    "Learner",
    "MAML",
    "MetaSGD",
    "ProtoNet",
    "Reptile",
    "RidgeHead",
    "Supervised",
    "cross_entropy",
    "squared_error",
]

__dir__ = __all__.copy
