"""Embeddings of a network that a package ships, trained on with privacy."""

import importlib.util
import pathlib

import numpy as np
import pytest

import episodic_dp
from episodic_dp import data

pytestmark = pytest.mark.slow

_LAYER = "transpose_51.tmp_0"  # Before the layer that tells characters apart.


def backbone():
  """Return the recogniser of text in rapidocr-onnxruntime: images -> [n, 120].

  The package is not imported, since it needs others; its file of weights is.
  """
  for package in ("onnx", "onnxruntime", "rapidocr_onnxruntime"):
    if importlib.util.find_spec(package) is None:
      pytest.skip(f"pip install onnx onnxruntime; pip install --no-deps"
                  f" rapidocr-onnxruntime==1.4.4: {package} is absent")
  import onnx
  import onnxruntime

  (root,) = importlib.util.find_spec(
      "rapidocr_onnxruntime"
  ).submodule_search_locations
  found = onnx.load(pathlib.Path(root, "models/ch_PP-OCRv4_rec_infer.onnx"))
  found.graph.output.append(onnx.ValueInfoProto(name=_LAYER))
  session = onnxruntime.InferenceSession(found.SerializeToString())

  def embed(images):
    dark_on_light = 1 - 2 * np.float32(images) / 255
    margin = ((0, 0), (2, 2), (2, 2), (0, 0))
    padded = np.pad(dark_on_light, margin, constant_values=1)
    inputs = np.repeat(padded, 3, -1).transpose(0, 3, 1, 2)
    return np.concatenate([
        session.run([_LAYER], {"x": part})[0].mean(1)
        for part in np.array_split(inputs, len(inputs) // 100 + 1)
    ])

  return embed


def test_embeddings_train_with_privacy_and_name_unseen_classes():
  embed = backbone()
  glyphs = data.load(
      "glyphs", participants=500, drawings=2, validation_participants=1,
      test_participants=40,
  )
  features = embed(glyphs.train.images)
  people, labels = np.divmod(np.arange(len(features)) // 2, 8)
  model = episodic_dp.FewShotClassifier(epsilon=2.0)
  model.fit(features, labels, people)
  assert 1.9 < model.guarantee.epsilon <= 2

  tested = embed(glyphs.test.images).reshape(40, 8, -1, features.shape[1])
  trained, nearest = [], []
  for drawings in tested:  # Glyphs of another person, by one drawing of each.
    first, second = drawings[:, 0], drawings[:, 1]
    model.adapt(first, np.arange(8))
    trained.append(model.score(second, np.arange(8)))
    squares = np.square(second[:, None] - first).sum(-1)
    nearest.append(np.mean(squares.argmin(1) == np.arange(8)))
  # Chance is 1 / 8.
  assert np.mean(nearest) > 0.5 and np.mean(trained) > 0.5
