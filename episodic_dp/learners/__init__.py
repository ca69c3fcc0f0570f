"""Meta-learners: init, adapt, loss, predict, over a Model."""

from episodic_dp.learners.anil import ANIL
from episodic_dp.learners.description import describe
from episodic_dp.learners.description import Description
from episodic_dp.learners.description import LEARNERS
from episodic_dp.learners.fine_tuning import FineTuning
from episodic_dp.learners.learner import BaseLearner
from episodic_dp.learners.learner import Learner
from episodic_dp.learners.losses import accuracy
from episodic_dp.learners.losses import cross_entropy
from episodic_dp.learners.losses import squared_error
from episodic_dp.learners.maml import MAML
from episodic_dp.learners.meta_sgd import MetaSGD
from episodic_dp.learners.multi_step import annealed
from episodic_dp.learners.naming import by_name
from episodic_dp.learners.naming import make_fine_tuning
from episodic_dp.learners.naming import OPTIMIZERS
from episodic_dp.learners.protonet import ProtoNet
from episodic_dp.learners.reptile import Reptile
from episodic_dp.learners.ridge import RidgeHead
from episodic_dp.learners.supervised import Supervised

__all__ = [
    "ANIL",
    "BaseLearner",
    "Description",
    "FineTuning",
    "LEARNERS",
    "Learner",
    "MAML",
    "MetaSGD",
    "OPTIMIZERS",
    "ProtoNet",
    "Reptile",
    "RidgeHead",
    "Supervised",
    "accuracy",
    "annealed",
    "by_name",
    "cross_entropy",
    "describe",
    "make_fine_tuning",
    "squared_error",
]
