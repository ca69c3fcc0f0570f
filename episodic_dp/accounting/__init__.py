"""What a private run costs: hierarchy, plan and mechanism to epsilon, in NumPy.

Nothing here imports JAX; dp_accounting is loaded when first needed.
"""

from episodic_dp.accounting import gaussian
from episodic_dp.accounting.accountants import Accountant
from episodic_dp.accounting.amplification import Amplification
from episodic_dp.accounting.calibration import calibrate
from episodic_dp.accounting.calibration import max_steps
from episodic_dp.accounting.calibration import max_tasks
from episodic_dp.accounting.comparison import theorem3_as_printed
from episodic_dp.accounting.distances import kinds
from episodic_dp.accounting.ledger import Ledger
from episodic_dp.accounting.record import run_statement
from episodic_dp.accounting.record import verify
from episodic_dp.accounting.recurrence import Recurrence
from episodic_dp.accounting.report import Guarantee
from episodic_dp.accounting.statement import epsilon
from episodic_dp.accounting.statement import epsilon_curve
from episodic_dp.accounting.statement import guarantee
from episodic_dp.accounting.statement import guarantees

__all__ = [
    "Accountant",
    "Amplification",
    "Guarantee",
    "Ledger",
    "Recurrence",
    "calibrate",
    "epsilon",
    "epsilon_curve",
    "gaussian",
    "guarantee",
    "guarantees",
    "kinds",
    "max_steps",
    "max_tasks",
    "run_statement",
    "theorem3_as_printed",
    "verify",
]
