"""Partitioned variational inference, and its private forms."""

from episodic_dp.pvi.federation import Absence
from episodic_dp.pvi.federation import Client
from episodic_dp.pvi.federation import make_clients
from episodic_dp.pvi.likelihoods import BayesianNetwork
from episodic_dp.pvi.likelihoods import Examples
from episodic_dp.pvi.likelihoods import LinearRegression
from episodic_dp.pvi.likelihoods import LogisticRegression
from episodic_dp.pvi.likelihoods import VariationalLearner
from episodic_dp.pvi.program import Budgets
from episodic_dp.pvi.program import Result
from episodic_dp.pvi.program import run
from episodic_dp.pvi.program import Spec

__all__ = [
    "Absence",
    "BayesianNetwork",
    "Budgets",
    "Client",
    "Examples",
    "LinearRegression",
    "LogisticRegression",
    "Result",
    "Spec",
    "VariationalLearner",
    "make_clients",
    "run",
]
