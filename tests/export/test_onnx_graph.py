"""A file for ONNX Runtime computes what the predictor does."""

import dataclasses
import json
import sys

import jax
import numpy as np
import onnx
import onnxruntime
import pytest

from episodic_dp import accounting
from episodic_dp import errors
from episodic_dp import export
from episodic_dp import models
from episodic_dp import options
from episodic_dp import plain
from episodic_dp.accounting import report
from episodic_dp.data.own_data import rows
from episodic_dp.export import folder
from episodic_dp.export import onnx_graph
from episodic_dp.learners import naming
from episodic_dp.models import networks
from tests.data import test_backbone
from tests.refusals import assert_refused

WAY = 3
# Every third is quick.
NETWORKS = {
    "conv4": (options.Network(width=4), (20, 17, 3)),
    "conv4 by groups": (options.Network(width=12, norm="group"), (16, 16, 1)),
    "conv4 without norm": (options.Network(width=4, norm="none"), (16, 18, 1)),
    "conv1d by groups": (
        options.Network(
            name="conv1d", width=6, norm="group", cosine=True
        ),
        (16, 2),
    ),
    "glyphs": (options.Network(width=32, start="glyphs"), (28, 28, 1)),
    "scenes": (options.Network(width=32, start="scenes"), (32, 32, 3)),
    "mlp": (options.Network(name="mlp", widths=(9, 7)), (5, 4, 1)),
    "resnet12": (options.Network(name="resnet12", width=4), (16, 18, 1)),
    "resnet12 by groups": (
        options.Network(name="resnet12", width=4, norm="group"), (16, 16, 3)
    ),
    "features by scale": (
        options.Network(name="features", linear=False, cosine=True), (6,)
    ),
    "features": (options.Network(name="features"), (6,)),
    "conv1d": (options.Network(name="conv1d", width=6), (21, 2)),
}


def examples(predictor, count):
  """Random examples, as a reader returns them."""
  how = predictor.description.preprocessing
  values = np.random.default_rng(1).random((count, *how.shape), np.float32)
  if how.dtype == "uint8":
    return np.uint8(255 * values)
  return values


def predictor_of(run, network, shape, learner="protonet", members=1):
  """A model with random weights, or with those of a start of the library."""
  rng = np.random.default_rng(0)
  dtype = "uint8" if len(shape) == 3 else "float32"
  made = networks.by_name(network, None, shape)
  made = made._replace(mirror=network.name == "resnet12")
  chosen = options.LearnerOptions(name=learner, metric_scale=0.1)
  built = naming.make_learner(chosen, made, way=WAY)
  start = {}
  if network.start is not None:
    start = models.read_weights(network.start)
  found = []
  for _ in range(members):
    params = jax.tree.map(
        lambda a: a + 0.1 * rng.standard_normal(a.shape, np.float32),
        built.init(jax.random.key(0)),
    )
    if start:
      params = models.parts.of_names(params, start)
    public = rng.random((20, *shape), np.float32)
    moments = None
    if made.moments is not None:
      moments = made.moments(built.network_params(params), public, None)
    found.append((params, moments))
  loaded = export.Predictor.load(run.model)
  return dataclasses.replace(
      loaded,
      description=dataclasses.replace(
          loaded.description,
          network=dataclasses.replace(network, start=None),
          learner=chosen,
          moments=made.moments is not None,
          weights=tuple("abcdef"[:members]),
          preprocessing=folder.Preprocessing(
              kind="image" if len(shape) == 3 else "features",
              shape=shape, dtype=dtype, resample="bilinear",
          ),
      ),
      network=made,
      members=tuple(found),
      compiled={},
  )


def written(folder, model):
  """A session of ONNX Runtime, and the metadata of the file."""
  path = folder / "model.onnx"
  onnx_graph.write(path, model)
  session = onnxruntime.InferenceSession(path)
  return session, session.get_modelmeta().custom_metadata_map


def assert_same(session, model, images):
  """Return the probabilities of a session, which are those of a model."""
  found, _ = session.run(None, {"examples": images})
  wanted = model.predict(images).probabilities
  np.testing.assert_allclose(found, wanted, atol=1e-5)
  return found


def adapted(predictor, names=("a", "ß", "c")):
  shown = examples(predictor, 4 * WAY)[: 2 * WAY]
  return predictor.adapt(shown, [*names] * 2)


def test_names_of_folders_of_any_bytes_are_texts(run, tmp_path):
  model = adapted(
      predictor_of(run, *NETWORKS["mlp"]), ("a", "b\nc", "d\udcff")
  )
  session, metadata = written(tmp_path, model)
  images = examples(model.predictor, 2)
  _, classes = session.run(None, {"examples": images})
  assert [*classes] == ["a", r"b\nc", r"d\udcff"]
  assert json.loads(metadata["classes"]) == [*model.classes]


@pytest.mark.few(4)
@pytest.mark.parametrize("name", NETWORKS)
def test_every_network_is_that_of_the_predictor(name, run, tmp_path):
  predictor = predictor_of(run, *NETWORKS[name])
  session, metadata = written(tmp_path, predictor)
  images = examples(predictor, 5)
  (found,) = session.run(["embeddings"], {"examples": images})
  ((params, moments),) = predictor.members
  own = predictor.network
  if moments is not None:
    own = own.normalised(moments)
  scaled = rows.scaled(images)
  wanted = np.asarray(jax.jit(own.apply)(params, scaled))
  np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)
  assert "classes" not in metadata
  # The classes of an adapted model, too; one example at a time or several.
  model = adapted(predictor)
  session, metadata = written(tmp_path, model)
  found = assert_same(session, model, images)
  alone, classes = session.run(None, {"examples": images[3:4]})
  np.testing.assert_allclose(alone, found[3:4], atol=1e-6)
  assert json.loads(metadata["classes"]) == ["a", "c", "ß"] == [*classes]
  stated = json.loads(metadata["privacy_statement"])
  assert stated["guarantees"].keys() == predictor.guarantees.keys()


@pytest.mark.slow
@pytest.mark.parametrize("learner", ["protonet", "ridge"])
def test_an_adapted_ensemble_without_public_moments_is_joined(
    learner, run, tmp_path
):
  predictor = predictor_of(run, *NETWORKS["conv4"], learner, members=3)
  model = adapted(dataclasses.replace(
      predictor,
      members=tuple((params, None) for params, _ in predictor.members),
  ))
  session, _ = written(tmp_path, model)
  assert_same(session, model, examples(predictor, 5))


@pytest.mark.parametrize("members", [1, 2])
def test_prototypes_under_noise_have_both_statements(members, run, tmp_path):
  predictor = predictor_of(run, *NETWORKS["mlp"], members=members)
  images = examples(predictor, 60)
  model = predictor.adapt(
      images, ["a", "b", "c"] * 20, epsilon=5.0, delta=1e-3, private_seed=1
  )
  session, metadata = written(tmp_path, model)
  assert_same(session, model, images)
  stated = accounting.verify(json.loads(metadata["adaptation_statement"]))
  assert not stated.differences and "privacy_statement" in metadata


@pytest.mark.parametrize("scale", [1e-7, 1e25])
def test_prototypes_of_tiny_and_huge_features_are_joined(scale, run, tmp_path):
  predictor = predictor_of(run, *NETWORKS["features"])
  images = examples(predictor, 20) * np.float32(scale)
  images[-1] = 0
  model = predictor.adapt(images, ["a", "b"] * 10, epsilon=1.0, delta=1e-3)
  assert_same(written(tmp_path, model)[0], model, images)


def with_backbone(predictor, network):
  """A model on features, which takes images of a backbone instead."""
  return dataclasses.replace(
      predictor,
      backbone=network,
      description=dataclasses.replace(
          predictor.description,
          backbone=network.backbone,
          preprocessing=folder.Preprocessing(
              kind="image", shape=network.shape, dtype="uint8",
              resample="bilinear",
          ),
      ),
  )


@pytest.mark.parametrize("first", [True, False])
def test_a_backbone_is_joined_with_what_was_learned(first, run, tmp_path):
  predictor = predictor_of(run, NETWORKS["features by scale"][0], (7,))
  content = test_backbone.graph()
  if not first:
    content = test_backbone.graph_with_channels_last()
    content.opset_import[0].version, content.ir_version = 21, 10
  network = test_backbone.opened(
      content.SerializeToString(), mean=(0.1, 0.2, 0.3), size=8,
      order="rgb" if first else "bgr",
  )
  predictor = with_backbone(predictor, network)
  images = examples(predictor, 40)
  noised = predictor.adapt(images, ["a", "b"] * 20, epsilon=9, private_seed=1)
  assert report.EMBEDDED in noised.guarantee.caveat
  for model in (adapted(predictor), noised):
    session, _ = written(tmp_path, model)
    each = [session.run(None, {"examples": one[None]})[0] for one in images]
    wanted = model.predict(images).probabilities
    np.testing.assert_allclose(np.concatenate(each), wanted, atol=1e-5)
  content.opset_import[0].version = 12
  old = dataclasses.replace(network, content=content.SerializeToString())
  with pytest.raises(errors.RunError, match="version 12, before 13"):
    onnx_graph.write(
        tmp_path / "old.onnx", dataclasses.replace(predictor, backbone=old)
    )


@pytest.mark.parametrize("name", ["squeezed", "cells", "mixing"])
def test_a_joined_backbone_takes_each_image_by_itself(name, run, tmp_path):
  """Some outputs lack the axis of one image, or depend on all of several."""
  node, arrays = onnx.helper.make_node, {}
  nodes = [node("Conv", ["x", "kernel"], ["y"])]
  if name == "squeezed":
    nodes += [
        node("GlobalAveragePool", ["y"], ["z"]),
        node("Squeeze", ["z"], ["found"]),
    ]
  elif name == "cells":
    arrays = {"rows": np.array([-1, 7])}
    nodes += [
        node("Transpose", ["y"], ["z"], perm=[0, 2, 3, 1]),
        node("Reshape", ["z", "rows"], ["found"]),
    ]
  else:
    nodes += [
        node("ReduceMean", ["y"], ["mean"], axes=[0]),
        node("Add", ["y", "mean"], ["found"]),
    ]
  content = test_backbone.graph(nodes)
  content.graph.initializer.extend(
      onnx.numpy_helper.from_array(a, n) for n, a in arrays.items()
  )
  network = test_backbone.opened(content.SerializeToString())
  size = network.features(np.zeros((8, 8, 3), np.uint8)).size
  predictor = predictor_of(
      run, NETWORKS["features by scale"][0], (size,)
  )
  model = adapted(with_backbone(predictor, network))
  images = examples(model.predictor, 5)
  session, _ = written(tmp_path, model)
  wanted = model.predict(images).probabilities
  for one, own in zip(images, wanted):
    found = session.run(None, {"examples": one[None]})[0]
    np.testing.assert_allclose(found, own[None], atol=1e-5)
  several = session.get_inputs()[0].shape[0]
  assert several == (1 if name == "mixing" else "n")
  if several == "n":
    assert_same(session, model, images)


def test_a_folder_and_its_backbone_have_images_of_one_size(run, tmp_path):
  """The size of a folder is bounded, and decides how much memory is taken."""
  network = test_backbone.opened(
      test_backbone.content_of(shape=("n", 3, "h", "w")),
      size=2000,
  )
  contents = folder.read(run.model)
  described = json.loads(contents[folder.MODEL])
  described["backbone"] = plain.to_plain(network.backbone) | {"features": 7}
  contents[folder.MODEL] = json.dumps(described).encode()
  contents[folder.BACKBONE] = network.content
  with pytest.raises(errors.RunError, match="of another size than"):
    export.Predictor.of_contents(contents, tmp_path)


def test_what_no_graph_computes_is_refused(run, tmp_path, monkeypatch):
  gradients = export.Predictor.load(run.model)
  support = run.splits.test.images[:10]
  shapes = NETWORKS["conv4"]
  ensemble = predictor_of(run, *shapes, members=2)
  alone = predictor_of(run, *shapes)
  mixing = dataclasses.replace(
      alone, description=dataclasses.replace(alone.description, moments=False)
  )
  own = dataclasses.replace(
      alone,
      description=dataclasses.replace(
          alone.description, network=options.Network(name="mine:make")
      ),
  )
  path = tmp_path / "model.onnx"
  for model, match in (
      (gradients, "maml changes the layers"),
      (gradients.adapt(support, [*range(5)] * 2), "maml"),
      (ensemble, "or export the last or"),
      (mixing, "norm=group"),
      (own, "own code .mine:make."),
  ):
    assert_refused(errors.RunError, match, onnx_graph.write, path, model)
  monkeypatch.setitem(sys.modules, "onnx", None)
  with pytest.raises(errors.RunError, match=r"pip install -e '.\[onnx\]'"):
    onnx_graph.write(path, alone)
  assert not path.exists()
