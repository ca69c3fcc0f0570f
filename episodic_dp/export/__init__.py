"""Export trained models as folders, and use them elsewhere.

`episodic_dp.export.writing` makes the folder of a run; the public name here
loads it, without anything that trains.
"""

from episodic_dp.export.predictor import Predictor

__all__ = ["Predictor"]

__dir__ = __all__.copy
