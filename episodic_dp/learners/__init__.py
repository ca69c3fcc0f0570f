"""Learners: what a task adapts, and which direction of it is clipped."""

from episodic_dp.learners.fine_tuning import FineTuning
from episodic_dp.learners.learner import BaseLearner
from episodic_dp.learners.learner import cross_entropy
from episodic_dp.learners.learner import Learner
from episodic_dp.learners.learner import squared_error
from episodic_dp.learners.maml import ANIL
from episodic_dp.learners.maml import annealed
from episodic_dp.learners.maml import MAML
from episodic_dp.learners.maml import MetaSGD
from episodic_dp.learners.naming import by_name
from episodic_dp.learners.naming import describe
from episodic_dp.learners.naming import LEARNERS
from episodic_dp.learners.protonet import ProtoNet
from episodic_dp.learners.reptile import Reptile
from episodic_dp.learners.ridge import RidgeHead
from episodic_dp.learners.supervised import Supervised

__all__ = [
    "ANIL",
    "BaseLearner",
    "FineTuning",
    "LEARNERS",
    "Learner",
    "MAML",
    "MetaSGD",
    "ProtoNet",
    "Reptile",
    "RidgeHead",
    "Supervised",
    "annealed",
    "by_name",
    "cross_entropy",
    "describe",
    "squared_error",
]
