"""The networks that the library brings, as Models."""

from collections.abc import Callable
from typing import Literal

from flax import linen as nn
import haiku as hk

from episodic_dp import _validate
from episodic_dp import options
from episodic_dp.models import block
from episodic_dp.models import conv1d as conv1d_lib
from episodic_dp.models import conv4 as conv4_flax
from episodic_dp.models import conv4_haiku
from episodic_dp.models import libraries
from episodic_dp.models import mlp as mlp_lib
from episodic_dp.models import resnet12 as resnet12_lib
from episodic_dp.models.model import Model


def mlp(
    outputs: int,
    widths: tuple[int, ...] = (40, 40),
    input_shape: tuple[int, ...] = (1, 1, 1),
) -> Model:
  """Hidden layers with ReLU, matrix products only; see `mlp.MLP`.

  Args:
    outputs: the number of classes, or of numbers to predict.
    widths: those of the hidden layers.
    input_shape: of an example, of any one to three axes: it is flattened.

  Raises:
    ValueError: a size below 1.

  Examples:
    >>> import jax
    >>> from episodic_dp import models
    >>> network = models.mlp(5, (8,), (28, 28, 1))
    >>> params = jax.eval_shape(network.init, jax.random.key(0))
    >>> images = jax.ShapeDtypeStruct((3, 28, 28, 1), jax.numpy.float32)
    >>> jax.eval_shape(network.apply, params, images).shape
    (3, 5)
  """
  if min((outputs, *widths, *input_shape)) < 1:
    raise ValueError(
        f"outputs {outputs}, widths {widths} and input_shape {input_shape}"
        " must all be at least 1"
    )
  module = mlp_lib.MLP(outputs=outputs, widths=tuple(widths))
  return _known(module, input_shape, mixes_examples=False)


def conv4(
    way: int | None,
    width: int = 64,
    norm: block.Norm = "batch",
    input_shape: tuple[int, ...] = (28, 28, 1),
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
  _check_way(way)
  block.check(width, norm, _images(input_shape, "conv4"))
  if library == "flax":
    module = conv4_flax.Conv4(way=way, width=width, norm=norm)
    return _known(module, input_shape, mixes_examples=norm == "batch")
  if library != "haiku":
    raise ValueError(f"library {library!r} must be 'flax' or 'haiku'")
  network = hk.transform(
      lambda images: conv4_haiku.Conv4(way, width, norm)(images)
  )
  model = libraries.from_haiku(network, input_shape)
  return model._replace(mixes_examples=norm == "batch")


def conv6(
    way: int | None,
    width: int = 64,
    norm: block.Norm = "batch",
    input_shape: tuple[int, ...] = (28, 28, 1),
) -> Model:
  """Conv4 and two blocks without a pool; arguments and errors as there."""
  _check_way(way)
  block.check(width, norm, _images(input_shape, "conv6"), after=2)
  module = conv4_flax.Conv4(way=way, width=width, norm=norm, after=2)
  return _known(module, input_shape, mixes_examples=norm == "batch")


def resnet12(
    way: int | None,
    width: int = 64,
    norm: block.Norm = "batch",
    input_shape: tuple[int, ...] = (84, 84, 3),
) -> Model:
  """ResNet-12; see `resnet12.ResNet12`.

  Args:
    way: the number of classes; None for no head: features [n, 10 width].
    width: channels of the first of four blocks; those of the others are 2.5, 5
      and 10 times as many (64, 160, 320 and 640 in the literature).
    norm: "batch", "group" or "none".
    input_shape: (H, W, C), at least 16x16 pixels.

  Raises:
    ValueError: an unknown norm, or images that are too small.
  """
  _check_way(way)
  block.check(width, norm, _images(input_shape, "resnet12"))
  module = resnet12_lib.ResNet12(way=way, width=width, norm=norm)
  return _known(module, input_shape, mixes_examples=norm == "batch")


def conv1d(
    way: int | None,
    width: int = 64,
    norm: block.Norm = "batch",
    input_shape: tuple[int, ...] = (128, 1),
) -> Model:
  """Convolutions along time; see `conv1d.Conv1D`.

  Args:
    way: the number of classes; None for no head: features [n, width].
    width: channels of every block.
    norm: "batch", "group" or "none".
    input_shape: (time, channels), at least 16 steps.

  Raises:
    ValueError: an unknown norm, or series that are too short.
  """
  _check_way(way)
  if len(input_shape) != 2:
    raise ValueError(
        f"conv1d takes series (time, channels), and an example is {input_shape}"
        ": use another network, such as mlp, which flattens any example"
    )
  block.check(width, norm, input_shape[:1])
  module = conv1d_lib.Conv1D(way=way, width=width, norm=norm)
  return _known(module, input_shape, mixes_examples=norm == "batch")


_CONVOLUTIONS: dict[str, Callable[..., Model]] = {
    "conv4": conv4,
    "conv6": conv6,
    "resnet12": resnet12,
    "conv1d": conv1d,
}


def by_name(
    network: options.Network,
    outputs: int | None,
    input_shape: tuple[int, ...],
) -> Model:
  """Build a network of the library.

  Args:
    network: its settings.
    outputs: number of logits; None for features (not of an mlp).
    input_shape: of one example.

  Raises:
    ValueError: there is no such network.
  """
  _validate.one_of("model.name", network.name, tuple(options.NETWORKS))
  if network.name == "mlp":
    if outputs is None:
      raise ValueError("an mlp has no features of its own: give its outputs")
    return mlp(outputs, network.widths, input_shape)
  library = {"library": network.library} if network.name == "conv4" else {}
  return _CONVOLUTIONS[network.name](
      outputs, network.width, network.norm, input_shape, **library
  )


def _known(
    module: nn.Module, input_shape: tuple[int, ...], *, mixes_examples: bool
) -> Model:
  """The Model; whether it mixes is known: no second of trying it."""
  model = libraries.from_flax(module, input_shape)
  return model._replace(mixes_examples=mixes_examples)


def _check_way(way: int | None) -> None:
  if way is not None and way < 1:
    raise ValueError(f"way {way} must be at least 1")


def _images(input_shape: tuple[int, ...], name: str) -> tuple[int, ...]:
  """(H, W) of images; ValueError for other examples."""
  if len(input_shape) != 3:
    raise ValueError(
        f"{name} takes images (height, width, channels), and an example is"
        f" {input_shape}: use mlp, or conv1d for series (time, channels)"
    )
  return input_shape[:2]
