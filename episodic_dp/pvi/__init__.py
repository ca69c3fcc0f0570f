"""Partitioned variational inference, and its private forms."""

from episodic_dp.pvi.clients import Absence
from episodic_dp.pvi.clients import Client
from episodic_dp.pvi.clients import make_clients
from episodic_dp.pvi.clients import releases
from episodic_dp.pvi.clients import usual_delta
from episodic_dp.pvi.factors import Factor
from episodic_dp.pvi.factors import Posterior
from episodic_dp.pvi.federation import Federation
from episodic_dp.pvi.gaussian import Full
from episodic_dp.pvi.gaussian import MeanField
from episodic_dp.pvi.learner import VariationalLearner
from episodic_dp.pvi.likelihoods import BayesianNetwork
from episodic_dp.pvi.likelihoods import Examples
from episodic_dp.pvi.likelihoods import LinearRegression
from episodic_dp.pvi.likelihoods import LogisticRegression
from episodic_dp.pvi.loop import Result
from episodic_dp.pvi.loop import run
from episodic_dp.pvi.loop import Spec
from episodic_dp.pvi.spending import Budgets

__all__ = [
    "Absence",
    "BayesianNetwork",
    "Budgets",
    "Client",
    "Examples",
    "Factor",
    "Federation",
    "Full",
    "LinearRegression",
    "LogisticRegression",
    "MeanField",
    "Posterior",
    "Result",
    "Spec",
    "VariationalLearner",
    "make_clients",
    "releases",
    "run",
    "usual_delta",
]
