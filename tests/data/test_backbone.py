"""Features of own images by a network in an ONNX file."""

import json
import os
import pickle
import sys

import numpy as np
import onnx
from onnx import helper
from onnx import numpy_helper
import onnxruntime
from PIL import Image
import pytest

from episodic_dp import accounting
from episodic_dp import errors
from episodic_dp import export
from episodic_dp import training
from episodic_dp.accounting import report
from episodic_dp.config import presets
from episodic_dp.data import backbone as backbone_lib
from episodic_dp.data import cifar_fs
from episodic_dp.data import originals
from episodic_dp.data.own_data import rows as rows_lib
from episodic_dp.export import folder
from episodic_dp.export import onnx_graph
from episodic_dp.export import writing
from tests.data import own_images
from tests.data import small_sets
from tests.refusals import assert_refused

FLOAT = onnx.TensorProto.FLOAT
KERNEL = np.random.default_rng(0).standard_normal((7, 3, 1, 1), np.float32)
LEVELS = "levels=writer/glyph/drawing,way=2,steps=2,rate=0.3"


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
  monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path / "cache"))


def graph(nodes=None, shape=("n", 3, 8, 8), kernel=KERNEL):
  """A file: a convolution of 1 x 1, ReLU and the mean over space."""
  nodes = nodes or [
      helper.make_node("Conv", ["x", "kernel"], ["y"]),
      helper.make_node("Relu", ["y"], ["z"]),
      helper.make_node("GlobalAveragePool", ["z"], ["found"]),
  ]
  return helper.make_model(
      helper.make_graph(
          nodes,
          "backbone",
          [helper.make_tensor_value_info("x", FLOAT, shape)],
          [helper.make_tensor_value_info("found", FLOAT, None)],
          [numpy_helper.from_array(kernel, "kernel")],
      ),
      ir_version=8,
      opset_imports=[helper.make_opsetid("", 17)],
  )


def content_of(*arguments, **options):
  """The bytes of `graph`."""
  return graph(*arguments, **options).SerializeToString()


def graph_with_channels_last():
  """A file for one image [1, H, W, 3] of any size: the largest of channels."""
  nodes = [
      helper.make_node("Transpose", ["x"], ["t"], perm=[0, 3, 1, 2]),
      helper.make_node("Conv", ["t", "kernel"], ["y"]),
      helper.make_node("GlobalMaxPool", ["y"], ["found"]),
  ]
  return graph(nodes, (1, "h", "w", 3))


def plain_features(images, mean, std):
  """The features of `graph` in NumPy: uint8[n, H, W, 3] -> [n, 7]."""
  values = (images / 255 - np.asarray(mean)) / np.asarray(std)
  rows = np.maximum(values @ KERNEL[:, :, 0, 0].T, 0)
  return rows.mean((1, 2))


def opened(content, **options):
  backbone = backbone_lib.Backbone(file="b.onnx", **options)
  return backbone_lib.opened(backbone, content, "b.onnx")


@pytest.mark.parametrize("order", ["rgb", "bgr"])
def test_features_are_those_of_a_plain_loop(order):
  images = np.random.default_rng(1).integers(0, 256, (3, 8, 8, 3), np.uint8)
  mean, std = (0.1, 0.2, 0.3), (0.5, 0.6, 0.7)
  network = opened(
      content_of(), mean=mean, std=std, order=order
  )
  kernel = KERNEL if order == "rgb" else KERNEL[:, ::-1]
  values = (images / 255 - np.asarray(mean)) / np.asarray(std)
  wanted = np.maximum(values @ kernel[:, :, 0, 0].T, 0).mean((1, 2))
  found = [network.features(image) for image in images]
  np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


def test_sizes_and_the_place_of_channels_come_from_the_input():
  network = opened(graph_with_channels_last().SerializeToString())
  assert (network.first, network.backbone.size) == (False, 224)
  image = np.zeros((5, 5, 3), np.uint8)
  assert network.features(image).shape == (7,)
  content = content_of()
  assert opened(content).backbone.size == 8
  assert_refused(errors.DataError, "not size=9", opened, content, size=9)


def with_node(kind, inputs, **attributes):
  """The content of a file with one more node before the others."""
  model = graph()
  model.graph.node.insert(
      0, helper.make_node(kind, inputs, ["more"], **attributes)
  )
  return model.SerializeToString()


def with_constant(**attributes):
  return with_node("Constant", [], **attributes)


def wrong_files():
  """Name -> content, and what the message says."""
  whole = content_of()
  outside = graph()
  array = outside.graph.initializer[0]
  array.ClearField("raw_data")
  array.data_location = onnx.TensorProto.EXTERNAL
  array.external_data.add(key="location", value="/etc/passwd")
  branch = helper.make_graph([], "branch", [], [])
  chooses = helper.make_node(
      "If", ["x"], ["found"], then_branch=branch, else_branch=branch
  )
  doubles = graph()
  doubles.functions.append(helper.make_function(
      "own", "twice", ["a"], ["b"], [helper.make_node("Relu", ["a"], ["b"])],
      [helper.make_opsetid("", 17)],
  ))
  unknown = helper.make_node("Foreign", ["x"], ["found"], domain="some.where")
  ones = numpy_helper.from_array(np.ones(1, np.float32), "ones")
  sparse = onnx.SparseTensorProto(values=ones, indices=ones, dims=[2**40])
  trained = helper.make_node("BatchNormalization", ["x"], ["found", "mean"])
  unused = graph([helper.make_node("Identity", ["kernel"], ["found"])])
  del unused.graph.input[:]
  return {
      "nothing": (b"", "b.onnx cannot be used"),
      "text": (b"import os" * 99, "b.onnx cannot be used"),
      "half": (whole[: len(whole) // 2], "b.onnx cannot be used"),
      "other files": (outside.SerializeToString(), "in other files"),
      "branches": (content_of([chooses]), "runs another graph"),
      "functions": (doubles.SerializeToString(), "inline_local_functions"),
      "operators": (content_of([unknown]), "Foreign"),
      "inputs": (unused.SerializeToString(), "must have one"),
      "zeros": (with_constant(sparse_value=sparse), "sparse"),
      "texts": (with_constant(value_strings=["a"]), "texts"),
      "an array of texts": (
          with_constant(
              value=numpy_helper.from_array(np.array(["a"], object))
          ),
          "texts",
      ),
      "numbers as texts": (
          with_node("Cast", ["x"], to=onnx.TensorProto.STRING), "texts"
      ),
      "names": (with_node("LabelEncoder", ["x"], domain="ai.onnx.ml"), "texts"),
      "grey": (content_of(shape=("n", 1, 8, 8)), "3, H, W"),
      "batches": (content_of(shape=(4, 3, 8, 8)), "3, H, W"),
      "too large": (
          content_of(shape=("n", 3, 9999, 9999)), "at most 2048"
      ),
      "means": (content_of([trained]), "or trains"),
      "empty": (content_of(shape=("n", 3, 0, 0)), "size=0"),
  }


@pytest.mark.parametrize("name", wrong_files())
def test_a_wrong_file_ends_in_one_sentence(name):
  content, match = wrong_files()[name]
  assert len(assert_refused(errors.DataError, match, opened, content)) < 600


@pytest.mark.parametrize("kind, inputs", [
    ("RandomNormalLike", ["x"]), ("RandomUniformLike", ["x"]),
    ("RandomNormal", []), ("RandomUniform", []), ("Bernoulli", ["x"]),
    ("Multinomial", ["x"]), ("Dropout", ["x", "", "training"]),
    ("BatchNormalization", ["x"]),
])
def test_an_image_moves_no_random_numbers_of_others(kind, inputs):
  """A seeded operator goes on from image to image, which shows their number.

  ONNX Runtime writes the means of training over those of the file.
  """
  with pytest.raises(errors.DataError, match=f"operator {kind} is random"):
    opened(with_node(kind, inputs, seed=1.0, training_mode=1))
  assert opened(with_node("Dropout", ["x"]))


@pytest.mark.parametrize("name, value", [
    ("mean", (0.0, 0.0)), ("std", (0.0, 1.0, 1.0)), ("size", 0),
])
def test_a_description_is_checked_at_every_door(name, value):
  with pytest.raises(errors.PlanError, match=f"backbone.{name}"):
    opened(content_of(), **{name: value})


def test_a_file_is_one_of_onnx_alone():
  """ONNX Runtime takes bytes 4 to 8 as a sign of its own format."""
  producer = b"\x12\x06abORTM"  # Field 2, of six bytes.
  content = producer + content_of()
  image = np.zeros((8, 8, 3), np.uint8)
  np.testing.assert_array_equal(
      opened(content).features(image),
      opened(content_of()).features(image),
  )


@pytest.mark.parametrize("what, match", [
    ("memory", "FAIL .*while running Expand"), ("time", "terminate flag"),
    ("constants", "FAIL .*while running Expand"),
    ("infinity", "192 values of float32"), ("numbers", "192 values of int64"),
])
def test_a_hostile_graph_is_bounded(what, match, monkeypatch):
  # Seven GiB, which a machine may have.
  size = numpy_helper.from_array(np.array([10**7, 3, 8, 8]), "size")
  nodes = {
      "memory": [
          helper.make_node("Expand", ["x", "size"], ["y"]),
          helper.make_node("ReduceMax", ["y"], ["found"], axes=[0, 2, 3]),
      ],
      "time": [
          helper.make_node("Softmax", [f"x{i or ''}"], [f"x{i + 1}"])
          for i in range(300)
      ] + [helper.make_node("Identity", ["x300"], ["found"])],
      "infinity": [
          helper.make_node("Exp", ["x"], ["y"]),
          helper.make_node("Exp", ["y"], ["z"]),
          helper.make_node("Exp", ["z"], ["found"]),
      ],
      "constants": [  # Which could be computed before any image.
          helper.make_node("Expand", ["one", "size"], ["y"]),
          helper.make_node("ReduceMax", ["y"], ["z"], keepdims=0),
          helper.make_node("Add", ["x", "z"], ["found"]),
      ],
      "numbers": [
          helper.make_node("Cast", ["x"], ["found"], to=onnx.TensorProto.INT64),
      ],
  }
  model = graph(nodes[what], ("n", 3, "h", "w"))
  one = numpy_helper.from_array(np.ones(1, np.float32), "one")
  model.graph.initializer.extend([size, one])
  if what == "numbers":
    model.graph.output[0].type.tensor_type.elem_type = onnx.TensorProto.INT64
  network = opened(model.SerializeToString())
  side = 8
  if what == "time":
    monkeypatch.setattr(backbone_lib, "_SECONDS", 0.01)
    side = 500
  with pytest.raises(errors.DataError, match=match):
    network.features(np.full((side, side, 3), 255, np.uint8))


def test_an_output_that_is_no_array_ends_in_one_sentence():
  lists = graph([helper.make_node("SequenceConstruct", ["x"], ["found"])])
  lists.graph.output[0].CopyFrom(
      helper.make_tensor_sequence_value_info("found", FLOAT, None)
  )
  nothing = graph()
  del nothing.graph.output[:]
  for model in (lists, nothing):
    with pytest.raises(errors.DataError, match="cannot be used"):
      opened(model.SerializeToString()).features(np.zeros((8, 8, 3), np.uint8))


def test_a_missing_package_or_file_is_named(monkeypatch, tmp_path):
  with pytest.raises(FileNotFoundError, match="give an ONNX file"):
    backbone_lib.read(tmp_path / "none.onnx")
  os.mkfifo(tmp_path / "pipe.onnx")
  with pytest.raises(errors.DataError, match="is no file"):
    backbone_lib.read(tmp_path / "pipe.onnx")
  monkeypatch.setitem(sys.modules, "onnxruntime", None)
  with pytest.raises(errors.DataError, match=r"-e '.\[onnx\]'"):
    opened(content_of())


@pytest.fixture
def people(tmp_path):
  """A tree of 12 writers with 2 glyphs of 3 drawings, and a backbone."""
  (tmp_path / "b.onnx").write_bytes(content_of())
  return own_images.tree(
      tmp_path / "writers",
      {f"writer{w:02d}/glyph{g}": 3 for w in range(12) for g in range(2)},
  )


def described(people, **options):
  run = presets.load(f"own_data:{LEVELS},backbone={people.parent / 'b.onnx'}")
  changes = {f"data.options.backbone.{k}": v for k, v in options.items()}
  return run.replace(changes).resolved(people)


def pictures(people, count):
  """The first files of the tree as images of the backbone's size."""
  return [
      Image.open(path).convert("RGB").resize((8, 8), Image.Resampling.BILINEAR)
      for path in sorted(people.rglob("*.png"))[:count]
  ]


def test_people_and_a_file_become_features(people, tmp_path):
  mean = (0.5, 0.4, 0.3)
  run = described(people, mean=mean)
  assert (run.model.name, run.model.cosine, run.model.linear) == (
      "features", True, False
  )
  splits = run.data.load(data_dir=people)
  assert splits.train.images.shape[1:] == (7,)
  every = np.concatenate([
      np.asarray(part.images)
      for part in (splits.train, splits.validation, splits.test)
  ])
  images = pictures(people, 72)
  wanted = plain_features(
      np.stack([np.asarray(i) for i in images]), mean, (0.229, 0.224, 0.225)
  )
  np.testing.assert_allclose(
      np.sort(every, 0), np.sort(wanted, 0), rtol=1e-4, atol=1e-5
  )
  (prepared,) = (tmp_path / "cache" / "own_data").glob("*.npy")
  # The same file elsewhere is the same backbone.
  os.rename(tmp_path / "b.onnx", tmp_path / "c.onnx")
  (tmp_path / "b.onnx").symlink_to(tmp_path / "c.onnx")
  described(people, mean=mean).data.load(data_dir=people)
  assert [*(tmp_path / "cache" / "own_data").glob("*.npy")] == [prepared]


def test_every_image_has_as_many_features(people):
  """A single one would be repeated to the number of the first image."""
  nodes = [
      helper.make_node("Relu", ["x"], ["y"]),
      helper.make_node("NonZero", ["y"], ["z"]),
      helper.make_node("Cast", ["z"], ["found"], to=FLOAT),
  ]
  content = content_of(nodes)
  (people.parent / "b.onnx").write_bytes(content)
  with pytest.raises(errors.DataError, match="another shape than the first"):
    described(people).data.load(data_dir=people)
  images = np.zeros((2, 8, 8, 3), np.uint8)
  images[0], images[1, :4] = 255, 255
  with pytest.raises(errors.DataError, match="another number of features"):
    list(rows_lib.features(images, opened(content)))


def test_participants_of_cifar_fs_own_features(tmp_path, monkeypatch):
  small, root = small_sets.SETS["sheets"], tmp_path / "sheets"
  root.mkdir()
  small.write(root)
  small.shrink(monkeypatch, root)
  (tmp_path / "b.onnx").write_bytes(content_of())
  run = presets.load(
      f"cifar_fs:participants=9,way=2,query=1,backbone={tmp_path / 'b.onnx'}"
  ).resolved(root)
  assert run.data.backbone and run.model.cosine and not run.model.linear
  train = run.data.load(data_dir=root).train
  assert train.hierarchy.sizes == (9, 2, 2)
  images = cifar_fs.load_images(originals.Where(data_dir=root))[0]
  scaled = [rows_lib.resized(image, (8, 8, 3)) for image in images]
  wanted = plain_features(
      np.stack(scaled), run.data.options["backbone"]["mean"],
      run.data.options["backbone"]["std"],
  )
  np.testing.assert_allclose(train.images[: len(images)], wanted, rtol=1e-4)
  # Computed once.
  monkeypatch.setattr(backbone_lib.Network, "features", None)
  again = run.data.load(data_dir=root).train
  np.testing.assert_array_equal(again.images, train.images)


@pytest.mark.slow
def test_a_trained_model_takes_images(people, tmp_path):
  run = described(people)
  training.train(run.build(data_dir=people), tmp_path / "run")
  done = writing.write(tmp_path / "run", tmp_path / "model")
  stated = done.statement["guarantees"]["writer"]
  assert report.EMBEDDED in stated["caveat"]
  assert report.EMBEDDED in (tmp_path / "model" / folder.CARD).read_text()
  assert str(tmp_path) not in (tmp_path / "model/model.json").read_text()
  loaded = export.Predictor.load(tmp_path / "model")
  images = pictures(people, 6)
  backbone = loaded.description.backbone
  pixels = np.stack([np.asarray(image) for image in images])
  wanted = plain_features(pixels, backbone.mean, backbone.std)
  adapted = loaded.adapt(images, list("aaabbb"))
  found = adapted.predict(images).probabilities
  onnx_graph.write(tmp_path / "adapted.onnx", adapted)
  session = onnxruntime.InferenceSession(tmp_path / "adapted.onnx")
  joined = session.run(["probabilities"], {"examples": pixels})[0]
  np.testing.assert_allclose(joined, found, atol=1e-5)
  again = pickle.loads(pickle.dumps(loaded)).adapt(images, list("aaabbb"))
  np.testing.assert_allclose(again.predict(images).probabilities, found)
  assert found.shape == (6, 2)
  # Prototypes of equal length by the learned scales: nothing but arithmetic.
  params = {k: np.asarray(v) for k, v in loaded.members[0][0].items()}
  rows = wanted * np.exp(params["log_scale"])
  rows /= np.linalg.norm(rows, axis=1, keepdims=True)
  means = np.stack([rows[:3].mean(0), rows[3:].mean(0)])
  squares = np.square(rows[:, None] - means).sum(-1)
  logits = -np.exp(params["log_temperature"]) * squares
  shares = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
  np.testing.assert_allclose(found, shares, atol=1e-4)


@pytest.mark.slow
def test_a_large_backbone_is_given_and_compared(people, tmp_path, monkeypatch):
  run = described(people)
  training.train(run.build(data_dir=people), tmp_path / "run")
  monkeypatch.setattr(writing, "_HELD", 10)
  writing.write(tmp_path / "run", tmp_path / "model")
  assert not (tmp_path / "model" / folder.BACKBONE).exists()
  with pytest.raises(errors.RunError, match="backbone=FILE"):
    export.Predictor.load(tmp_path / "model")
  loaded = export.Predictor.load(
      tmp_path / "model", backbone=tmp_path / "b.onnx"
  )
  assert loaded.guarantees["writer"]["epsilon"] > 0
  loaded.save(tmp_path / "saved")
  assert not (tmp_path / "saved" / folder.BACKBONE).exists()
  about = json.loads(loaded.contents[folder.MODEL]) | {"backbone": None}
  contents = {**loaded.contents, folder.MODEL: json.dumps(about).encode()}
  with pytest.raises(errors.RunError, match="without a backbone"):
    export.Predictor.of_contents(contents, tmp_path)
  other = content_of(kernel=2 * KERNEL)
  (tmp_path / "b.onnx").write_bytes(other)
  for use in (
      lambda: export.Predictor.load(
          tmp_path / "model", backbone=tmp_path / "b.onnx"
      ),
      lambda: run.data.load(data_dir=people),
      lambda: writing.write(tmp_path / "run", tmp_path / "more"),
  ):
    assert_refused(errors.DataError, "SHA-256", use)


def test_the_assumption_stands_with_every_epsilon(people):
  run = described(people)
  written = run.as_json()["data"]["options"]["backbone"]
  assert written["digest"] == run.data.backbone
  ledger = accounting.Ledger().add(run.release, 2, continued=False)
  statement = accounting.run_statement(
      ledger, delta=1e-5, backbone=run.data.backbone
  )
  for stated in accounting.verify(statement).stated["guarantees"].values():
    assert report.EMBEDDED in stated["assumptions"]
