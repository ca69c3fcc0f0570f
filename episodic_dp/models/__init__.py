"""Networks as pairs of pure functions, with convolutions as matrix products."""

from episodic_dp.models.model import from_flax
from episodic_dp.models.model import from_haiku
from episodic_dp.models.model import from_nnx
from episodic_dp.models.model import Model
from episodic_dp.models.networks import conv4
from episodic_dp.models.networks import mlp
from episodic_dp.models.networks import resnet12
from episodic_dp.models.parts import read_weights
from episodic_dp.models.parts import start_from
from episodic_dp.models.parts import write_weights

__all__ = [
    "Model",
    "conv4",
    "from_flax",
    "from_haiku",
    "from_nnx",
    "mlp",
    "read_weights",
    "resnet12",
    "start_from",
    "write_weights",
]

__dir__ = __all__.copy
