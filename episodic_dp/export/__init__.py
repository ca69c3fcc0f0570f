"""Export trained models as folders, and use them elsewhere.

`episodic_dp.export.writing` makes the folder of a run; the public names here
are those of its users, without anything that trains.
"""

from episodic_dp.errors import RunError
from episodic_dp.export.predictor import Adapted
from episodic_dp.export.predictor import Predictions
from episodic_dp.export.predictor import Predictor

__all__ = ["Adapted", "Predictions", "Predictor", "RunError"]
