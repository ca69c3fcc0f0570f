"""Training in a work directory: checkpoints, evaluation, reports."""

from episodic_dp.errors import RunError
from episodic_dp.training.evaluation import Evaluator
from episodic_dp.training.evaluation import sample_tasks
from episodic_dp.training.loop import Program
from episodic_dp.training.loop import run
from episodic_dp.training.meta_training import train
from episodic_dp.training.reporting import Result
from episodic_dp.training.spec import make_mesh
from episodic_dp.training.spec import TrainingSpec

__all__ = [
    "Evaluator",
    "Program",
    "Result",
    "RunError",
    "TrainingSpec",
    "make_mesh",
    "run",
    "sample_tasks",
    "train",
]

__dir__ = __all__.copy
