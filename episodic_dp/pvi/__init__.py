"""Partitioned variational inference, and its private forms."""

from episodic_dp.pvi.federation import make_clients
from episodic_dp.pvi.federation import Spec
from episodic_dp.pvi.likelihoods import Examples
from episodic_dp.pvi.likelihoods import LinearRegression
from episodic_dp.pvi.likelihoods import LogisticRegression
from episodic_dp.pvi.likelihoods import VariationalLearner
from episodic_dp.pvi.program import run

__all__ = [
    "Examples",
    "LinearRegression",
    "LogisticRegression",
    "Spec",
    "VariationalLearner",
    "make_clients",
    "run",
]

__dir__ = __all__.copy
