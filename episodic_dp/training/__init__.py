"""Training in a work directory: checkpoints, evaluation, reports."""

from episodic_dp.errors import RunError
from episodic_dp.training.checkpoint import Checkpoints
from episodic_dp.training.evaluation import Accuracy
from episodic_dp.training.evaluation import draw
from episodic_dp.training.evaluation import Evaluator
from episodic_dp.training.evaluation import Score
from episodic_dp.training.evaluation import SquaredError
from episodic_dp.training.evaluation import Tasks
from episodic_dp.training.loop import Program
from episodic_dp.training.loop import run
from episodic_dp.training.meta_training import train
from episodic_dp.training.spec import make_mesh
from episodic_dp.training.spec import Result
from episodic_dp.training.spec import TrainingSpec

__all__ = [
    "Accuracy",
    "Checkpoints",
    "Evaluator",
    "Program",
    "Result",
    "RunError",
    "Score",
    "SquaredError",
    "Tasks",
    "TrainingSpec",
    "draw",
    "make_mesh",
    "run",
    "train",
]
