"""The training loop: checkpoints, evaluation, reports."""

from episodic_dp.errors import RunError
from episodic_dp.training.checkpoint import Checkpoints
from episodic_dp.training.evaluation import Accuracy
from episodic_dp.training.evaluation import draw
from episodic_dp.training.evaluation import Evaluator
from episodic_dp.training.evaluation import interval
from episodic_dp.training.evaluation import Score
from episodic_dp.training.evaluation import SquaredError
from episodic_dp.training.evaluation import Tasks
from episodic_dp.training.evaluation import unpack
from episodic_dp.training.loop import train
from episodic_dp.training.mesh import make_mesh
from episodic_dp.training.opening import opened
from episodic_dp.training.spec import Result
from episodic_dp.training.spec import TrainingSpec
from episodic_dp.training.time_limit import TimeLimit

__all__ = [
    "Accuracy",
    "Checkpoints",
    "Evaluator",
    "Result",
    "RunError",
    "Score",
    "SquaredError",
    "Tasks",
    "TimeLimit",
    "TrainingSpec",
    "draw",
    "interval",
    "make_mesh",
    "opened",
    "train",
    "unpack",
]
