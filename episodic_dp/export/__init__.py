"""The model that leaves: a folder that says all of itself, and its reader.

`episodic_dp.export.writing` makes the folder of a run; this package's face is
what its consumers need, without anything that trains.
"""

from episodic_dp.errors import RunError
from episodic_dp.export.predictor import Adapted
from episodic_dp.export.predictor import Predictions
from episodic_dp.export.predictor import Predictor

__all__ = ["Adapted", "RunError", "Predictions", "Predictor"]
