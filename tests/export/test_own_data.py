"""A model of own data reads a folder as its run did, and predicts the same."""

import numpy as np
import pytest

from episodic_dp import export
from episodic_dp.config.presets import own_data
from episodic_dp.export import adaptation
from episodic_dp.export import preprocessing
from tests.data import own_images
from tests.export.conftest import export_run
from tests.export.test_predictor import in_process

WAY, EACH = 3, 5


def write_images(root, rng, kind):
  """Folders of images of any size; or of arrays of one."""
  for number in range(15):
    for i in range(EACH):
      path = root / f"class {number:02d}" / f"{i}.png"
      shape = tuple(rng.integers(9, 20, 2))
      if kind == "color":
        values = rng.integers(0, 256, (*shape, 3), np.uint8)
        own_images.save(path.with_suffix(".webp"), values, lossless=True)
      elif kind == "deep":
        own_images.save(path, rng.integers(0, 65536, shape, np.uint16))
      else:
        own_images.save(path.with_suffix(".npy"), rng.normal(2, 3, (7, 2)))


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind, options, shape",
    [
        ("color", {"size": 11, "color": True}, [11, 11, 3]),
        ("deep", {}, [28, 28, 1]),
        ("features", {}, [7, 2]),
    ],
)
def test_files_are_read_as_the_run_did(
    kind, options, shape, tmp_path, monkeypatch
):
  monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path / "cache"))
  root = tmp_path / "data"
  write_images(root, np.random.default_rng(0), kind)
  config = own_data.own_data(way=WAY, tasks=1, shot=2, query=3).replace({
      "model.name": "features" if kind == "features" else "mlp",
      "model.widths": (8,),
  }).resolved(root).replace(
      {f"data.options.{name}": value for name, value in options.items()}
  )
  splits = config.data.load(data_dir=str(root))
  model = export_run(config, tmp_path, splits)
  held = b"".join(p.read_bytes() for p in model.iterdir())
  assert b"class 0" not in held and str(tmp_path).encode() not in held
  loaded = export.Predictor.load(model)
  how = loaded.description.preprocessing
  assert list(how.shape) == shape
  assert how.kind == ("features" if kind == "features" else "image")

  tested = [str(name) for name in splits.test.hierarchy.names[0]][:WAY]
  folder = tmp_path / "mine"
  folder.mkdir()
  for name in tested:
    (root / name).rename(folder / name)
  rows = preprocessing.of_arrays(
      how, adaptation.read(adaptation.listed(folder)), "they"
  )
  wanted = splits.test.images[: WAY * EACH]
  np.testing.assert_array_equal(rows, wanted)
  assert rows.dtype == wanted.dtype
  parts = rows.reshape(WAY, EACH, *rows.shape[1:])
  support = parts[:, :2].reshape(-1, *rows.shape[1:])
  query = parts[:, 2:].reshape(-1, *rows.shape[1:])
  found = loaded.adapt(support, np.repeat(tested, 2).tolist())
  divisor = 255.0 if rows.dtype == np.uint8 else 1.0
  np.testing.assert_allclose(
      found.predict(query).probabilities,
      in_process(
          tmp_path / "run", splits, support, query, WAY, divisor=divisor
      ),
      atol=2e-6,
  )
