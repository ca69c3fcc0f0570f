"""Networks as pairs of pure functions, with convolutions as matrix products."""

from episodic_dp.models.convolution import conv_general_dilated
from episodic_dp.models.layers import batch_norm
from episodic_dp.models.layers import group_norm
from episodic_dp.models.layers import max_pool
from episodic_dp.models.libraries import from_flax
from episodic_dp.models.libraries import from_haiku
from episodic_dp.models.libraries import from_nnx
from episodic_dp.models.model import Model
from episodic_dp.models.networks import by_name
from episodic_dp.models.networks import conv1d
from episodic_dp.models.networks import conv4
from episodic_dp.models.networks import mlp
from episodic_dp.models.networks import resnet12
from episodic_dp.models.start import read_weights
from episodic_dp.models.start import start_from
from episodic_dp.models.start import write_weights

__all__ = [
    "Model",
    "batch_norm",
    "by_name",
    "conv1d",
    "conv4",
    "conv_general_dilated",
    "from_flax",
    "from_haiku",
    "from_nnx",
    "group_norm",
    "max_pool",
    "mlp",
    "read_weights",
    "resnet12",
    "start_from",
    "write_weights",
]
