"""Networks as pairs of pure functions, with convolutions as matrix products."""

from typing import Literal

import haiku as hk

from episodic_dp.models import block
from episodic_dp.models import conv4 as conv4_flax
from episodic_dp.models import conv4_haiku
from episodic_dp.models import mlp as mlp_flax
from episodic_dp.models.convolution import conv_general_dilated
from episodic_dp.models.convolution import convolve
from episodic_dp.models.model import from_flax
from episodic_dp.models.model import from_haiku
from episodic_dp.models.model import from_nnx
from episodic_dp.models.model import Model
from episodic_dp.models.pooling import max_pool

__all__ = [
    "Model",
    "conv4",
    "conv_general_dilated",
    "convolve",
    "from_flax",
    "from_haiku",
    "from_nnx",
    "max_pool",
    "mlp",
]


def mlp(
    outputs: int,
    widths: tuple[int, ...] = (40, 40),
    input_shape: tuple[int, int, int] = (1, 1, 1),
) -> Model:
  """Hidden layers with ReLU, matrix products only; see `mlp.MLP`.

  Args:
    outputs: the number of classes, or of numbers to predict.
    widths: those of the hidden layers.
    input_shape: (H, W, C); a point of f features is (1, 1, f).

  Raises:
    ValueError: a size below 1.
  """
  if min((outputs, *widths, *input_shape)) < 1:
    raise ValueError(
        f"outputs {outputs}, widths {widths} and input_shape {input_shape}"
        " must all be at least 1"
    )
  module = mlp_flax.MLP(outputs=outputs, widths=tuple(widths))
  # Known to treat every example alone, and so not tried on random weights.
  return from_flax(module, input_shape)._replace(mixes_examples=False)


def conv4(
    way: int | None,
    width: int = 64,
    norm: block.Norm = "batch",
    input_shape: tuple[int, int, int] = (28, 28, 1),
    library: Literal["flax", "haiku"] = "flax",
) -> Model:
  """Conv4 of any width; see `conv4.Conv4` for the norms.

  Args:
    way: the number of classes; None for no head, so that the outputs are the
      features [n, d] that metric learners compare, d = (H // 16) (W // 16)
      width.
    width: channels of every block (64 in the literature).
    norm: "batch", "group" or "none".
    input_shape: (H, W, C), at least 16x16 pixels.
    library: which library holds the layers; the outputs are the same.

  Raises:
    ValueError: an unknown norm or library, or images that are too small.
  """
  if way is not None and way < 1:
    raise ValueError(f"way {way} must be at least 1")
  block.check(width, norm, input_shape[:2])
  if library == "flax":
    module = conv4_flax.Conv4(way=way, width=width, norm=norm)
    model = from_flax(module, input_shape)
  elif library == "haiku":
    network = hk.transform(
        lambda images: conv4_haiku.Conv4(way, width, norm)(images)
    )
    model = from_haiku(network, input_shape)
  else:
    raise ValueError(f"library {library!r} must be 'flax' or 'haiku'")
  # Known, and so not tried on random weights, which takes a second.
  return model._replace(mixes_examples=norm == "batch")
