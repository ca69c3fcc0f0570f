"""Privacy accounting: from a release to epsilon, in NumPy and SciPy.

Nothing here imports JAX.
"""

from episodic_dp.accounting.calibration import calibrate
from episodic_dp.accounting.calibration import max_steps
from episodic_dp.accounting.calibration import max_tasks
from episodic_dp.accounting.guarantee import epsilon
from episodic_dp.accounting.guarantee import guarantee
from episodic_dp.accounting.guarantee import guarantees
from episodic_dp.accounting.ledger import Ledger
from episodic_dp.accounting.lower_bounds import lower_bound
from episodic_dp.accounting.report import Guarantee
from episodic_dp.accounting.sensitivity import unit_profiles
from episodic_dp.accounting.statement import run_statement
from episodic_dp.accounting.statement import verify

__all__ = [
    "Guarantee",
    "Ledger",
    "calibrate",
    "epsilon",
    "guarantee",
    "guarantees",
    "lower_bound",
    "max_steps",
    "max_tasks",
    "run_statement",
    "unit_profiles",
    "verify",
]

__dir__ = __all__.copy
