"""Meta-learners: init, adapt, loss, predict, over a Model."""

from episodic_dp.learners.anil import ANIL
from episodic_dp.learners.fine_tuning import FineTuning
from episodic_dp.learners.learner import Learner
from episodic_dp.learners.losses import accuracy
from episodic_dp.learners.losses import cross_entropy
from episodic_dp.learners.losses import squared_error
from episodic_dp.learners.maml import MAML
from episodic_dp.learners.meta_sgd import MetaSGD
from episodic_dp.learners.protonet import ProtoNet
from episodic_dp.learners.reptile import Reptile
from episodic_dp.learners.ridge import RidgeHead

__all__ = [
    "ANIL",
    "FineTuning",
    "Learner",
    "MAML",
    "MetaSGD",
    "ProtoNet",
    "Reptile",
    "RidgeHead",
    "accuracy",
    "cross_entropy",
    "squared_error",
]
