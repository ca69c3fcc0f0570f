"""Descriptions of private runs as plain NumPy data.

The sampler and the training step read these objects in JAX; the accountant
reads the same objects in NumPy.
"""

from episodic_dp.errors import PlanError
from episodic_dp.errors import UnsoundPlanError
from episodic_dp.plan.hierarchy import Hierarchy
from episodic_dp.plan.mechanism import EPISODE
from episodic_dp.plan.mechanism import Mechanism
from episodic_dp.plan.release import Release
from episodic_dp.plan.sampler_error import capacities
from episodic_dp.plan.sampler_error import EXACT as EXACT
from episodic_dp.plan.sampler_error import SamplerError
from episodic_dp.plan.sampler_error import sampling_error
from episodic_dp.plan.serialization import from_dict
from episodic_dp.plan.serialization import to_dict
from episodic_dp.plan.soundness import check_level
from episodic_dp.plan.stages import All
from episodic_dp.plan.stages import class_level
from episodic_dp.plan.stages import Episode
from episodic_dp.plan.stages import FixedSize
from episodic_dp.plan.stages import inclusion_rate
from episodic_dp.plan.stages import Poisson
from episodic_dp.plan.stages import RandomAllocation
from episodic_dp.plan.stages import rate_paths
from episodic_dp.plan.stages import SamplingPlan
from episodic_dp.plan.stages import Stage
from episodic_dp.plan.text import parse_stage
from episodic_dp.plan.text import stage_text
from episodic_dp.plan.validation import examples_per_step
from episodic_dp.plan.validation import task_plan
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
    "SamplerError",
    "SamplingPlan",
    "Stage",
    "UnsoundPlanError",
    "capacities",
    "check_level",
    "class_level",
    "examples_per_step",
    "from_dict",
    "inclusion_rate",
    "parse_stage",
    "rate_paths",
    "sampling_error",
    "stage_text",
    "task_plan",
    "tasks_per_step",
    "to_dict",
    "validate",
]
