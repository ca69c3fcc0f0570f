"""Features of own images by a public network, an ONNX file (a backbone).

ONNX Runtime computes the graph of the file, and nothing else in it is executed.
Each image is computed by itself: a network that mixes the images of a batch
would carry one person's images into another's features.

An operator with random numbers would do so, too: each image moves them on. So
would batch normalisation in training: ONNX Runtime changes its means in place.

A file may come from anyone. It is read up to 2 GiB and has no part outside it,
no function or operator that runs other graphs, no texts, at most 4 GiB of
arrays, and a limit of time for an image, which is read between operators.
"""

from collections.abc import Iterator
import contextlib
import dataclasses
import functools
import os
import stat
import threading
from typing import Any, Literal

import numpy as np

from episodic_dp import foreign
from episodic_dp import plain
from episodic_dp.errors import DataError
from episodic_dp.output import files

_MOST_BYTES, _MOST_ARRAYS, _MOST_FEATURES = 2**31, 2**32, 2**16
# Height and width of images for a graph that takes any size, and the largest.
_SIDE, _MOST_SIDE = 224, 2048
_SECONDS = 600.0  # The longest time of an image.
_PIP = "pip install -e '.[onnx]'"
# Dropout is random if it has its third input, whether it trains.
_RANDOM = (
    "Bernoulli", "Dropout", "Multinomial", "RandomNormal", "RandomNormalLike",
    "RandomUniform", "RandomUniformLike",
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Backbone:
  """A public network that makes features of images, and its preprocessing.

  A channel of an input is (value / 255 - mean) / std. The defaults are those of
  networks that were trained on ImageNet.

  Attributes:
    file: an ONNX file with one input, float32 [n, 3, H, W] or [n, H, W, 3],
      whose first output has the features; in an exported folder its name there.
    size: height and width of an image; None for those of the input, or 224.
    mean: subtracted from the red, green and blue of an image.
    std: divides red, green and blue.
    order: order of the channels of an input.
    digest: required SHA-256 of the file; a run records it.
    features: number of features; an exported folder records it.
  """

  file: str
  size: plain.Count | None = None
  mean: tuple[float, float, float] = (0.485, 0.456, 0.406)
  std: tuple[plain.Positive, plain.Positive, plain.Positive] = (
      0.229, 0.224, 0.225
  )
  order: Literal["rgb", "bgr"] = "rgb"
  digest: str | None = None
  features: plain.Count | None = None

  def recorded(self) -> "Backbone":
    """Return it with its absolute path and its digest, for a run."""
    digest = files.sha256(read(self.file))
    path = str(files.path_of(self.file).absolute())
    return dataclasses.replace(self, file=path, digest=self.digest or digest)

  def opened(self) -> "Network":
    """Open its file; raise as `read` and `opened` do."""
    return opened(self, read(self.file), self.file)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Network:
  """A backbone that can be computed.

  Attributes:
    backbone: its description, with its digest and size.
    content: content of the file.
    session: of ONNX Runtime.
    place: name of the file, for messages.
    first: whether its input has the channels before height and width.
  """

  backbone: Backbone
  content: bytes = dataclasses.field(repr=False)
  session: Any = dataclasses.field(repr=False)
  place: str
  first: bool

  @property
  def shape(self) -> tuple[int, int, int]:
    """Return (height, width, channels) of an image."""
    size = self.backbone.size
    assert size is not None  # `opened` fills it in.
    return size, size, 3

  def features(self, image: np.ndarray) -> np.ndarray:
    """Return the features of an image, float32[d].

    Args:
      image: uint8[`shape`].

    Raises:
      DataError: the graph fails, takes too long, or makes no finite features.
    """
    found = self.outputs(image[None])
    if not (
        found.dtype == np.float32
        and 1 <= found.size <= _MOST_FEATURES
        and found.size == (self.backbone.features or found.size)
        and np.isfinite(found).all()
    ):
      raise DataError(
          f"{self.place} makes {found.size} values of {found.dtype} of an"
          " image, which are no features or not those of before: give a"
          f" backbone with 1 to {_MOST_FEATURES} finite features float32 as its"
          " first output"
      )
    return found

  def outputs(self, images: np.ndarray) -> np.ndarray:
    """Return all values of the first output for images together, [m].

    Args:
      images: uint8[n, ...] of `shape`; n is 1 for features, since the graph may
        mix images.

    Raises:
      DataError: the graph fails or takes too long.
    """
    mean = np.asarray(self.backbone.mean, np.float32)
    std = np.asarray(self.backbone.std, np.float32)
    values = (images.astype(np.float32) / np.float32(255) - mean) / std
    if self.backbone.order == "bgr":
      values = values[..., ::-1]
    if self.first:
      values = values.transpose(0, 3, 1, 2)
    name = self.session.get_inputs()[0].name
    with _failing(self.place), _limited() as options:
      output = self.session.get_outputs()[0].name
      (found,) = self.session.run(
          [output], {name: np.ascontiguousarray(values)}, options
      )
      return found.ravel()  # A sequence has none.


def read(path: str | os.PathLike[str]) -> bytes:
  """Return the content of a backbone's file.

  Raises:
    FileNotFoundError, DataError: there is none, or it is too large or no file.
  """
  place = files.path_of(path)
  if not place.exists():
    raise FileNotFoundError(
        f"{place} does not exist: give an ONNX file, or put that of the run"
        " back there"
    )
  status = place.stat()
  if not stat.S_ISREG(status.st_mode) or status.st_size > _MOST_BYTES:
    raise DataError(
        f"{place} is no file of at most {_MOST_BYTES} bytes: give an ONNX file"
    )
  return place.read_bytes()


def opened(backbone: Backbone, content: bytes, place: str) -> Network:
  """Open a backbone.

  Args:
    backbone: its description, whose digest is compared.
    content: content of the file.
    place: name of the file, for messages.

  Raises:
    DataError: it is another file than before, or cannot be used, or ONNX
      Runtime is missing; one sentence.
    PlanError: a field of the description is out of range.
  """
  backbone = plain.read(Backbone, vars(backbone), name="backbone")
  digest = files.sha256(content)
  if backbone.digest not in (None, digest):
    raise DataError(
        f"{place} is another backbone than that of the run (its SHA-256"
        f" differs): give the file with SHA-256 {backbone.digest}"
    )
  try:
    # Lazy imports: an extra.
    import onnx
    import onnxruntime
  except ImportError as e:
    raise DataError(f"a backbone needs the package {e.name}: {_PIP}") from e
  with _failing(place):
    _check(onnx.load_model_from_string(content))
    session = onnxruntime.InferenceSession(
        content, _bounded(onnxruntime), providers=["CPUExecutionProvider"],
        # It would compute while opening, where nothing is bounded.
        disabled_optimizers=["ConstantFolding"],
    )
    inputs = session.get_inputs()
    shape = inputs[0].shape if inputs else []
    channels = [axis for axis in (1, 3) if shape[axis:][:1] == [3]]
    if (
        len(inputs) != 1 or len(shape) != 4 or not channels
        or inputs[0].type != "tensor(float)"
        or (isinstance(shape[0], int) and shape[0] != 1)
    ):
      raise DataError(
          f"its inputs are {[(i.type, i.shape) for i in inputs]}, and it must"
          " have one, float32 [n, 3, H, W] or [n, H, W, 3]"
      )
    first = channels[0] == 1
    sides = shape[2:] if first else shape[1:3]
    fixed = [side for side in sides if isinstance(side, int)]
    size = backbone.size or (*fixed, _SIDE)[0]
    if {*fixed} - {size} or not 1 <= size <= _MOST_SIDE:
      raise DataError(
          f"its images have the shape {shape}, not size={size} of at most"
          f" {_MOST_SIDE}"
      )
  return Network(
      backbone=dataclasses.replace(backbone, digest=digest, size=size),
      content=content, session=session, place=place, first=first,
  )


def _check(model: Any) -> None:
  """Raise DataError for a graph that reads other files, or repeats parts.

  So is one that keeps something from image to image, or has texts, whose
  length has no bound.
  """
  if model.functions:  # A few may stand for any number of operators.
    raise DataError(
        "it defines functions: save it after"
        " onnx.inliner.inline_local_functions"
    )
  arrays = [*model.graph.initializer]
  sparse, texts = bool(model.graph.sparse_initializer), False
  for node in model.graph.node:
    kind = node.op_type
    if (
        kind in _RANDOM and (kind != "Dropout" or len(node.input) > 2)
        or kind == "BatchNormalization" and _trains(node)
    ):
      raise DataError(
          f"its operator {kind} is random or trains, so features depend on the"
          " images before: export the network for inference"
      )
    texts |= node.domain == "ai.onnx.ml"
    for attribute in node.attribute:
      if attribute.HasField("g") or attribute.graphs:
        raise DataError(f"its operator {kind} runs another graph")
      arrays += [attribute.t, *attribute.tensors]
      sparse |= attribute.HasField("sparse_tensor")
      texts |= attribute.name.startswith("value_string")
      texts |= attribute.name == "to" and attribute.i == attribute.t.STRING
  if sparse or any(
      array.external_data or array.data_location for array in arrays
  ):
    raise DataError("some of its arrays are in other files, or sparse")
  if texts or any(array.data_type == array.STRING for array in arrays):
    raise DataError("it computes with texts, or is no network of images")


def _trains(node: Any) -> bool:
  """Return whether a batch normalisation moves its means by every image."""
  # Before version 14 only the number of outputs says so.
  return len(node.output) > 1 or any(
      attribute.name == "training_mode" and attribute.i
      for attribute in node.attribute
  )


def _bounded(onnxruntime: Any) -> Any:
  """Return the options of a session in bounded memory, on one thread."""
  _bound_memory(onnxruntime)
  options = onnxruntime.SessionOptions()
  options.intra_op_num_threads = options.inter_op_num_threads = 1
  options.log_severity_level = 4  # Its errors are raised, too.
  options.add_session_config_entry("session.use_env_allocators", "1")
  # A file may be read as one of this format and as another of ORT's own.
  options.add_session_config_entry("session.load_model_format", "ONNX")
  return options


@functools.cache
def _bound_memory(onnxruntime: Any) -> None:
  """Limit the arrays of all bounded sessions of this process."""
  onnxruntime.create_and_register_allocator(
      onnxruntime.OrtMemoryInfo(
          "Cpu", onnxruntime.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0,
          onnxruntime.OrtMemType.DEFAULT,
      ),
      onnxruntime.OrtArenaCfg({"max_mem": _MOST_ARRAYS}),
  )


@contextlib.contextmanager
def _limited() -> Iterator[Any]:
  """Yield options of a run that ends after a time."""
  import onnxruntime

  options = onnxruntime.RunOptions()
  options.log_severity_level = 4
  timer = threading.Timer(_SECONDS, setattr, (options, "terminate", True))
  timer.daemon = True
  timer.start()
  try:
    yield options
  finally:
    timer.cancel()


def _failing(place: str) -> contextlib.AbstractContextManager[None]:
  """Report every error as that of a backbone that cannot be used."""
  return foreign.reading(
      f"the backbone {place}", "cannot be used",
      "give an ONNX file of a network from images to features",
  )
