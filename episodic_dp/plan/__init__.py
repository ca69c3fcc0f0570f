"""Descriptions of private runs as plain NumPy data.

The sampler and the training step read these objects in JAX; the accountant
reads the same objects in NumPy.
"""

from episodic_dp.errors import PlanError
from episodic_dp.errors import UnsoundPlanError
from episodic_dp.plan.hierarchy import Hierarchy
from episodic_dp.plan.mechanism import EPISODE
from episodic_dp.plan.mechanism import Mechanism
from episodic_dp.plan.release import from_dict
from episodic_dp.plan.release import Release
from episodic_dp.plan.release import to_dict
from episodic_dp.plan.stages import All
from episodic_dp.plan.stages import Episode
from episodic_dp.plan.stages import FixedSize
from episodic_dp.plan.stages import inclusion_rate
from episodic_dp.plan.stages import parse_stage
from episodic_dp.plan.stages import Poisson
from episodic_dp.plan.stages import RandomAllocation
from episodic_dp.plan.stages import SamplingPlan
from episodic_dp.plan.stages import Stage
from episodic_dp.plan.validation import tasks_per_step
from episodic_dp.plan.validation import validate

__all__ = [
    "EPISODE",
    "All",
    "Episode",
    "FixedSize",
    "Hierarchy",
    "Mechanism",
    "PlanError",
    "Poisson",
    "RandomAllocation",
    "Release",
    "SamplingPlan",
    "Stage",
    "UnsoundPlanError",
    "from_dict",
    "inclusion_rate",
    "parse_stage",
    "tasks_per_step",
    "to_dict",
    "validate",
]

__dir__ = __all__.copy
