"""Write an exported model as one ONNX file, which needs no library of ours.

The graph takes examples as `preprocessing.row` makes them, [n, ...] in the
shape and dtype of model.json: uint8 [n, height, width, channels] for images of
8 bits, else float32. Its output is "embeddings" float32[n, d]. An adapted model
has "probabilities" float32[n, way] and "classes", the names of the classes as
texts [way]. All are functions of one example, so that a graph exists: an
embedding by the moments of public examples, a classifier by those or by the
moments of its support set.

The metadata of the file are texts: "model" and "privacy_statement" are JSON of
the exported folder. "classes" is a JSON list of an adapted model's labels;
ONNX Runtime for JavaScript does not show metadata, so they are an output, too.
A model that was adapted with a guarantee has "adaptation_statement" as well.

The nodes are written here, one for each operation of `models.networks`; longer
formulas are functions in ONNX's own text, which are inlined at the end.
jax2onnx 0.17 would trace them instead, but it asks for versions of
orbax-checkpoint that are older than those of training.
"""

from collections.abc import Sequence
import json
import math
import os
from typing import Any

import numpy as np

from episodic_dp import _version
from episodic_dp import options
from episodic_dp.data import backbone as backbone_lib
from episodic_dp.errors import DataError
from episodic_dp.errors import RunError
from episodic_dp.export import folder as folder_lib
from episodic_dp.export.predictor import Adapted
from episodic_dp.export.predictor import Predictor
from episodic_dp.export.prototypes import SHARPNESS
from episodic_dp.learners import naming
from episodic_dp.models import model as model_lib
from episodic_dp.models import networks
from episodic_dp.models import parts
from episodic_dp.output import files
from episodic_dp.output import quoting

Arrays = dict[str, np.ndarray]  # Name of a parameter or moment -> array.

_OLDEST = 13  # Version of operators that have the form of those here.
_SLOPE = 0.01  # Of the LeakyReLU of `networks.Conv4`.
_KINDS = {"uint8": "UINT8", "float32": "FLOAT"}
_OWN = "episodic_dp"  # Domain of the functions.
# A model without nodes, and the functions that it may call. ONNX Runtime reads
# these versions since 1.12, of 2022.
_MODEL = """
<ir_version: 8, opset_import: ["": 17, "episodic_dp": 1],
 producer_name: "episodic_dp">
model () => () {}

# `networks.norm_by_moments` of x [n, C, H, W] before scale and shift, with the
# given moments [C, 1, 1].
<domain: "episodic_dp", opset_import: ["": 17]>
by_moments (x, mean, variance, epsilon, own) => (y) {
  one = Constant <value_float = 1.0> ()
  given = Sub (one, own)
  own_mean = GlobalAveragePool (x)
  centred = Sub (x, own_mean)
  centred_squares = Mul (centred, centred)
  own_variance = GlobalAveragePool (centred_squares)
  apart = Sub (own_mean, mean)
  apart_squares = Mul (apart, apart)
  both = Mul (own, given)
  part_1 = Mul (given, variance)
  part_2 = Mul (own, own_variance)
  part_3 = Mul (both, apart_squares)
  total = Sum (part_1, part_2, part_3, epsilon)
  deviation = Sqrt (total)
  moved = Mul (own, apart)
  middle = Add (mean, moved)
  difference = Sub (x, middle)
  y = Div (difference, deviation)
}

# x [n, d], each row divided by its length.
<domain: "episodic_dp", opset_import: ["": 17]>
unit (x) => (y) {
  squares = Mul (x, x)
  axis = Constant <value_ints = [1]> ()
  sums = ReduceSum (squares, axis)
  least = Constant <value_float = 1e-12> ()
  total = Add (sums, least)
  length = Sqrt (total)
  y = Div (x, length)
}

# `prototypes.directions` of x [n, d]: no square underflows or overflows, and a
# row that is zero or not finite has the direction zero.
<domain: "episodic_dp", opset_import: ["": 17]>
direction (x) => (y) {
  axis = Constant <value_ints = [1]> ()
  least = Constant <value_float = 1e-37> ()
  sizes = Abs (x)
  size = ReduceSum (sizes, axis)
  divisor = Max (size, least)
  ratios = Div (x, divisor)
  wrong = IsNaN (ratios)
  zero = Constant <value_float = 0.0> ()
  values = Where (wrong, zero, ratios)
  squares = Mul (values, values)
  sums = ReduceSum (squares, axis)
  total = Max (sums, least)
  length = Sqrt (total)
  y = Div (values, length)
}

# Squared distances [n, way] of x [n, d] to prototypes [1, way, d].
<domain: "episodic_dp", opset_import: ["": 17]>
distances (x, prototypes) => (y) {
  middle = Constant <value_ints = [1]> ()
  rows = Unsqueeze (x, middle)
  apart = Sub (rows, prototypes)
  squares = Mul (apart, apart)
  last = Constant <value_ints = [2]> ()
  y = ReduceSum <keepdims = 0> (squares, last)
}
"""


def write(
    path: str | os.PathLike[str], model: Predictor | Adapted
) -> None:
  """Write the embedding of a model, or the classifier of an adapted one.

  Args:
    path: path of the file, which is replaced.
    model: of a learner with a head in closed form, on a network of the library.

  Raises:
    RunError: no one graph computes it, or the package onnx is missing; one
      sentence.
  """
  try:
    # Lazy import: an extra.
    import onnx
    import onnx.compose
    import onnx.inliner
  except ImportError as e:
    raise RunError(
        "an ONNX file needs the package onnx: pip install -e '.[onnx]'"
    ) from e
  predictor = model.predictor if isinstance(model, Adapted) else model
  found = predictor.description
  _check(predictor, isinstance(model, Predictor))
  graph = _Graph(onnx)
  metadata = {
      "model": predictor.contents[folder_lib.MODEL].decode(),
      "privacy_statement": predictor.contents[folder_lib.STATEMENT].decode(),
  }
  how, network = found.preprocessing, predictor.backbone
  batch: int | str = "n"
  if network is not None and not _takes_several(network):
    batch = 1
  x = graph.input(_KINDS[how.dtype], batch, *how.shape)
  x = graph.add("Cast", x, to=onnx.TensorProto.FLOAT)
  if how.dtype == "uint8":
    x = graph.add("Div", x, np.float32(255))
  if network is not None:
    shape = predictor.network.input_shape
    assert shape is not None  # Known of every network of the library.
    # An output for one image may lack its axis.
    x = graph.add("Reshape", _joined(graph, network, x), np.array([-1, *shape]))
  if isinstance(model, Adapted):
    mean = graph.add("Mean", *_classified(graph, model, x))
    graph.output(mean, "probabilities", "FLOAT", "n", len(model.classes))
    # Names of folders may be no UTF-8.
    texts = [quoting.printable(str(label)) for label in model.classes]
    names = np.array(texts, object)
    graph.output(names, "classes", "STRING", len(names))
    metadata["classes"] = json.dumps(model.classes)
    if model.released is not None:
      metadata["adaptation_statement"] = json.dumps(model.released.statement)
  else:
    ((params, moments),) = predictor.members
    rows = _embedded(graph, predictor, params, moments, model_lib.OWN, x)
    graph.output(rows, "embeddings", "FLOAT", "n", None)
  files.write_bytes(path, graph.content(metadata))


def _check(predictor: Predictor, alone: bool) -> None:
  """Raise RunError for a model that has no graph.

  Args:
    predictor: the model.
    alone: whether it is not adapted.
  """
  found, reason = predictor.description, None
  if found.network.is_own:
    reason = (
        f"its network is own code ({found.network.name}), and only networks of"
        " the library are known here: export a run with one of them"
    )
  elif found.learner.adaptation != options.CLOSED_FORM:
    known = " or ".join(options.named(options.CLOSED_FORM))
    reason = (
        f"{found.learner.name} changes the layers of its network by gradient"
        f" steps on each support set: export a run of {known}"
    )
  elif alone and len(found.weights) > 1:
    reason = (
        "an ensemble has an embedding for each checkpoint: adapt it first, or"
        " export the last or the best checkpoint alone"
    )
  elif alone and predictor.network.mixes_examples and not found.moments:
    reason = (
        "its batch normalisation takes the moments of each support set: adapt"
        " it first, or train with norm=group"
    )
  if reason is not None:
    raise RunError(f"no one ONNX graph computes this model: {reason}")


class _Graph:
  """A model to which nodes and constants are added.

  Attributes:
    onnx: the package.
    model: its model.
  """

  def __init__(self, onnx: Any) -> None:
    self.onnx = onnx
    self.model = onnx.parser.parse_model(_MODEL)

  def add(
      self, kind: str, *inputs: Any, output: str = "", **attributes: Any
  ) -> str:
    """Add a node, and return the name of its output.

    Args:
      kind: its operator.
      *inputs: names of outputs or inputs, and arrays.
      output: the name of its output; "" for a new one.
      **attributes: as in the specification of the operator.
    """
    graph = self.model.graph
    output = output or f"{kind}_{len(graph.node)}"
    names = []
    for value in inputs:
      if not isinstance(value, str):
        array, value = np.asarray(value), f"constant_{len(graph.initializer)}"
        graph.initializer.append(
            self.onnx.numpy_helper.from_array(array, value)
        )
      names.append(value)
    graph.node.append(
        self.onnx.helper.make_node(kind, names, [output], **attributes)
    )
    return output

  def output(self, value: Any, name: str, kind: str, *shape: Any) -> None:
    """Add an output of the graph: a name or an array under another name."""
    self.add("Identity", value, output=name)
    self.model.graph.output.append(self._value(name, kind, shape))

  def input(self, kind: str, *shape: Any) -> str:
    """Add the input of the graph, and return its name."""
    self.model.graph.input.append(self._value("examples", kind, shape))
    return "examples"

  def _value(self, name: str, kind: str, shape: Sequence[Any]) -> Any:
    number = self.onnx.TensorProto.DataType.Value(kind)
    return self.onnx.helper.make_tensor_value_info(name, number, shape)

  def content(self, metadata: dict[str, str]) -> bytes:
    """Return the content of a file."""
    model = self.onnx.inliner.inline_local_functions(self.model)
    model.producer_version = _version.__version__
    self.onnx.helper.set_model_props(model, metadata)
    self.onnx.checker.check_model(model, full_check=True)
    return model.SerializeToString()


def _takes_several(network: backbone_lib.Network) -> bool:
  """Return whether a backbone makes of two images what it makes of each."""
  rng = np.random.default_rng(0)
  images = rng.integers(0, 256, (2, *network.shape), np.uint8)
  images[0] //= 4
  each = np.concatenate([network.features(one) for one in images])
  try:
    both = network.outputs(images)
  except DataError:  # A graph for one image.
    return False
  least = 1e-5 * np.abs(each).max()
  return both.shape == each.shape and np.allclose(both, each, 1e-4, least)


def _joined(graph: _Graph, network: backbone_lib.Network, x: str) -> str:
  """Add a backbone, from scaled images [n, H, W, 3] to features.

  Raises:
    RunError: its operators are of an older version.
  """
  how, given = network.backbone, network.session.get_inputs()[0].name
  x = graph.add("Sub", x, np.asarray(how.mean, np.float32))
  x = graph.add("Div", x, np.asarray(how.std, np.float32))
  if how.order == "bgr":
    x = graph.add("Gather", x, np.array([2, 1, 0]), axis=3)
  if network.first:
    x = graph.add("Transpose", x, perm=[0, 3, 1, 2])
  graph.add("Identity", x, output=f"backbone/{given}")
  model, inner = graph.model, graph.onnx.compose.add_prefix(
      graph.onnx.load_model_from_string(network.content), "backbone/"
  )
  for found in inner.opset_import:
    if found.domain not in ("", "ai.onnx"):
      model.opset_import.append(found)
      continue
    if found.version < _OLDEST:
      raise RunError(
          f"the backbone has operators of version {found.version}, before"
          f" {_OLDEST}: convert it by onnx.version_converter, and train again"
      )
    for own in (model, *model.functions):
      own.opset_import[0].version = found.version
  model.ir_version = max(model.ir_version, inner.ir_version)
  model.graph.node.extend(inner.graph.node)
  model.graph.initializer.extend(inner.graph.initializer)
  return inner.graph.output[0].name


def _classified(graph: _Graph, model: Adapted, x: str) -> list[str]:
  """Add the class probabilities by each checkpoint."""
  found, members = model.predictor.description, model.predictor.members
  each = []
  for member, (params, moments) in enumerate(members):
    own, head = model_lib.OWN, np.zeros(0)
    if model.released is None:
      adapted, seen = model.prepared[member]
      params, head = adapted.params, np.asarray(adapted.head)
      if moments is None:
        moments, own = seen, 0.0
    rows = _embedded(graph, model.predictor, params, moments, own, x)
    if model.released is not None:
      rows = graph.add("Sub", rows, model.released.centre[member])
      rows = graph.add("direction", rows, domain=_OWN)
      prototypes = model.released.prototypes[:, member].T
      scores = graph.add("MatMul", rows, np.float32(SHARPNESS) * prototypes)
    elif found.learner.name == "protonet":
      squares = graph.add("distances", rows, head[None], domain=_OWN)
      factor = np.float32(-found.learner.metric_scale)
      scores = graph.add("Mul", squares, factor)
    else:
      scale = np.exp(np.asarray(params["log_scale"]))
      scores = graph.add("MatMul", rows, scale * head)
    each.append(graph.add("Softmax", scores, axis=1))
  return each


def _embedded(
    graph: _Graph,
    predictor: Predictor,
    params: Any,
    moments: Any,
    own: float,
    x: str,
) -> str:
  """Add the network of a checkpoint, [n, ...] to [n, d].

  Args:
    graph: the graph.
    predictor: the model.
    params: the parameters of its learner.
    moments: of every batch normalisation; None without any.
    own: the share of an example's own moments.
    x: scaled examples.
  """
  network, whole = predictor.description.network, predictor.network.whole
  learner = naming.make_learner(
      predictor.description.learner, predictor.network, way=2
  )
  params = learner.network_params(params)
  if whole is not None:
    params = whole(params)
  named = parts.by_name(params) | parts.by_name(moments)
  arrays = {name: np.asarray(array) for name, array in named.items()}
  if network.name == "mlp":
    return _mlp(graph, arrays, graph.add("Flatten", x))
  if network.name == "features":
    return _features(graph, network, arrays, graph.add("Flatten", x))
  pool = [2, 2]
  if network.name == "conv1d":  # A series is an image of one row.
    x, pool = graph.add("Unsqueeze", x, np.array([1])), [1, 2]
  seen_twice = moments is not None and own > 0 and network.name != "conv1d"
  if seen_twice:
    x = _views(graph, x, predictor.network.mirror)
  x = graph.add("Transpose", x, perm=[0, 3, 1, 2])
  for i in range(networks.BLOCKS):
    layer, slope = f"block_{i}", _SLOPE
    if network.name == "resnet12":
      slope = networks.RESIDUAL_SLOPE
      x = _residual(graph, arrays, own, layer, x)
    else:
      x = _convolved(graph, arrays, own, layer, x)
    x = graph.add("MaxPool", x, kernel_shape=pool, strides=pool)
    x = graph.add("LeakyRelu", x, alpha=slope)
  if network.name == "conv4":
    x = graph.add("Transpose", x, perm=[0, 2, 3, 1])
  else:
    x = graph.add("GlobalAveragePool", x)
  x = graph.add("Flatten", x)
  if network.cosine:
    if "directions/mean" in arrays:
      x = graph.add("Sub", x, arrays["directions/mean"])
    x = graph.add("unit", x, domain=_OWN)
    x = graph.add("Mul", x, np.float32(networks.LENGTH))
  if not seen_twice:
    return x
  x = graph.add("Reshape", x, np.array([2, -1, predictor.network.way]))
  return graph.add("ReduceMean", x, axes=[0], keepdims=0)


def _views(graph: _Graph, x: str, mirror: bool) -> str:
  """Add the two `model.views` of [n, H, W, C], [2 n, H, W, C]."""
  end = np.iinfo(np.int64).max
  x = graph.add("Pad", x, np.array([0, 1, 1, 0, 0, 1, 1, 0]), mode="edge")
  axes = np.array([1, 2])
  first = graph.add("Slice", x, np.array([0, 0]), np.array([-2, -2]), axes)
  second = graph.add("Slice", x, np.array([2, 2]), np.array([end, end]), axes)
  if mirror:
    second = graph.add(
        "Slice", second, np.array([-1]), np.array([-end]), axes[1:],
        np.array([-1]),
    )
  return graph.add("Concat", first, second, axis=0)


def _mlp(graph: _Graph, arrays: Arrays, x: str) -> str:
  """Add a `networks.MLP` for [n, values]."""
  for i in range(len(arrays) // 2 - 1):
    layer = f"hidden_{i}"
    x = graph.add("Gemm", x, arrays[f"{layer}/kernel"], arrays[f"{layer}/bias"])
    x = graph.add("Relu", x)
  return graph.add("Gemm", x, arrays["head/kernel"], arrays["head/bias"])


def _features(
    graph: _Graph, network: options.Network, arrays: Arrays, x: str
) -> str:
  """Add a `networks.Features` for [n, d]."""
  if network.linear:
    x = graph.add("MatMul", x, arrays["kernel"])
  if not network.cosine:
    scale = arrays["scale"]
    return graph.add("Mul", x, scale / np.float32(math.sqrt(scale.size)))
  x = graph.add("Mul", x, np.exp(arrays["log_scale"]))
  x = graph.add("unit", x, domain=_OWN)
  return graph.add("Mul", x, np.exp(arrays["log_temperature"] / 2))


def _residual(
    graph: _Graph, arrays: Arrays, own: float, name: str, x: str
) -> str:
  """Add a `networks.Residual` for [n, C, H, W], without its pool."""
  shortcut = _convolved(graph, arrays, own, f"{name}/shortcut", x)
  for i in range(3):
    if i:
      x = graph.add("LeakyRelu", x, alpha=networks.RESIDUAL_SLOPE)
    x = _convolved(graph, arrays, own, f"{name}/conv_{i}", x)
  return graph.add("Add", x, shortcut)


def _convolved(
    graph: _Graph, arrays: Arrays, own: float, name: str, x: str
) -> str:
  """Add a `networks.Convolution` for [n, C, H, W], without its pool."""
  kernel = arrays[f"{name}/kernel"]
  rows, columns = (k // 2 for k in kernel.shape[:2])
  x = graph.add(
      "Conv", x, kernel.transpose(3, 2, 0, 1),
      pads=[rows, columns, rows, columns],
  )
  # Of each channel, [C, 1, 1].
  of_channels = {
      key: arrays[f"{name}/{key}"][:, None, None]
      for key in ("scale", "bias", "mean", "variance")
      if f"{name}/{key}" in arrays
  }
  if "mean" in of_channels:
    x = graph.add(
        "by_moments", x, of_channels["mean"], of_channels["variance"],
        np.float32(networks.EPSILON), np.float32(own), domain=_OWN,
    )
  elif "scale" in of_channels:
    x = _grouped(graph, kernel.shape[3], x)
  if "scale" in of_channels:
    x = graph.add("Mul", x, of_channels["scale"])
  return graph.add("Add", x, of_channels["bias"])


def _grouped(graph: _Graph, channels: int, x: str) -> str:
  """Add the normalisation of `networks.group_norm`."""
  groups = math.gcd(channels, networks.MAX_GROUPS)
  shape = graph.add("Shape", x)
  x = graph.add("Reshape", x, np.array([0, groups, -1]))
  ones = np.ones(groups, np.float32)
  x = graph.add(
      "InstanceNormalization", x, ones, 0 * ones, epsilon=networks.EPSILON
  )
  return graph.add("Reshape", x, shape)
