"""An exported model predicts what the run's learner does."""

import dataclasses
import sys
import types

import jax
import jax.numpy as jnp
import numpy as np
from PIL import Image
import pytest
import safetensors.numpy
from scipy import sparse

from episodic_dp import data
from episodic_dp import errors
from episodic_dp import export
from episodic_dp import models
from episodic_dp import options
from episodic_dp import run as run_lib
from episodic_dp import training
from episodic_dp.analysis import measure
from episodic_dp.data.own_data import readers
from episodic_dp.errors import DataError
from episodic_dp.export import folder
from episodic_dp.export import preprocessing
from episodic_dp.export import writing
from episodic_dp.models import parts
from episodic_dp.sampling import episodes
from tests import processes
from tests.cli import tiny_runs
from tests.export import test_onnx_graph
from tests.export.conftest import export_run
from tests.export.conftest import save_run
from tests.learners import bank
from tests.refusals import assert_refused
from tests.stored import json_of

WAY, SHOT, QUERY = 5, 2, 3


def task_of(splits, way=WAY):
  """Images of `way` glyphs of the first test writer, and their classes."""
  images = splits.test.images[: way * 6]
  images = images.reshape(way, 6, *images.shape[1:])
  names = [f"glyph {k}" for k in range(way)]
  support = images[:, :SHOT].reshape(-1, *images.shape[2:])
  query = images[:, SHOT : SHOT + QUERY].reshape(-1, *images.shape[2:])
  return support, np.repeat(names, SHOT).tolist(), query


def in_process(workdir, splits, support, query, way=WAY, *, divisor=255.0):
  """The probabilities of the learner that evaluation takes, by its own code."""
  config = run_lib.Run.read(workdir)
  learner, evaluated = config.make_learners(
      splits.test.image_shape, splits.validation
  )
  like = learner.init(jax.random.key(0))
  checkpoints = training.checkpoint.Checkpoints(workdir)
  params, _ = checkpoints.restore(checkpoints.latest(), like)
  labels = jnp.repeat(jnp.arange(way), SHOT)
  logits = jax.jit(evaluated.predict)(
      jax.tree.map(jnp.asarray, params),
      episodes.Examples(jnp.asarray(support, jnp.float32) / divisor, labels),
      jnp.asarray(query, jnp.float32) / divisor,
  )
  return np.asarray(jax.nn.softmax(logits, -1))


@pytest.fixture(scope="module")
def loaded(run):
  return export.Predictor.load(run.model)


def test_predictions_are_those_of_the_run(run, loaded):
  support, labels, query = task_of(run.splits)
  found = loaded.adapt(support, labels).predict(query)
  wanted = in_process(run.workdir, run.splits, support, query)
  np.testing.assert_allclose(found.probabilities, wanted, atol=2e-6)
  assert found.classes == tuple(f"glyph {k}" for k in range(WAY))
  assert found.labels == [found.classes[i] for i in wanted.argmax(-1)]
  assert loaded.guarantees["participant"]["epsilon"] > 0


def test_what_it_cannot_take_is_told(run, loaded):
  support, labels, query = task_of(run.splits)
  wrong = [
      ((support, labels[:-1]), "10 support images and 9 labels"),
      ((support[:4], labels[:4]), "has 2 classes .* has 5 outputs"),
      ((support[:2], labels[:2]), "at least two classes"),
      ((support[:0], []), "give an array"),
      ((support.astype(np.float32), labels), "not floating point from 0 to 1"),
      ((support.astype(np.int64), labels), "int64"),
      ((np.repeat(support, 2, -1), labels), "number 0 .* 2 channels"),
      (([*support[:9], support[0, :0]], labels), "number 9"),
      ((np.repeat(support[0], 3, -1), labels), "row of one image.*conv1d"),
      ((np.full(support.shape, np.nan), labels), r"holds nan .* at \[0, 0"),
      ((types.SimpleNamespace(collect=None), labels), r"X\.collect"),
  ]
  for arguments, match in wrong:
    assert_refused(DataError, match, loaded.adapt, *arguments)


def test_images_of_other_sizes_depths_and_colours_are_brought_to_its_own(
    run, loaded
):
  support, labels, query = task_of(run.splits)
  adapted = loaded.adapt(support, labels)
  plain = adapted.predict(query[:2]).probabilities
  others = [
      np.repeat(query[0], 3, -1),  # Grey as RGB.
      query[1, ..., 0].astype(np.float64) / 255,
  ]
  np.testing.assert_allclose(
      adapted.predict(others).probabilities, plain, atol=1e-6
  )
  dark = support.astype(">u2")
  with pytest.raises(DataError, match="support images are nearly black"):
    adapted.predictor.adapt(dark, labels)
  with pytest.warns(UserWarning, match="classify are nearly black"):
    found = adapted.predict(dark[:1]).probabilities
  with pytest.warns(UserWarning, match="dark, with no value above 6% of white"):
    adapted.predictor.adapt(support.astype(np.uint16) * 16, labels)
  both = [dark[0], support[0].astype(np.uint16) * 257]  # A dark one of two.
  np.testing.assert_array_equal(adapted.predict(both).probabilities[:1], found)
  large = query[:2].repeat(3, 1).repeat(3, 2)
  assert adapted.predict(large).probabilities.shape == (2, WAY)


def test_no_number_of_examples_compiles_again(run):
  support, labels, query = task_of(run.splits)
  loaded = export.Predictor.load(run.model)
  adapted = loaded.adapt(support, labels)
  wanted = adapted.predict(query).probabilities
  _, adapt, logits, _ = loaded.compiled[WAY]
  for count in (1, 7, 200, 257, 1000):
    many = query[np.arange(count) % len(query)]
    found = adapted.predict(many).probabilities
    np.testing.assert_allclose(
        found, wanted[np.arange(count) % len(query)], atol=1e-5
    )
  for count in (WAY, 11, 20, 32):
    which = np.arange(count) % len(labels)
    loaded.adapt(support[which], np.repeat(range(WAY), count)[:count * WAY:WAY])
  # The sizes of a support set are few: up to 8, 32, 128 examples.
  assert logits._cache_size() == 1 and adapt._cache_size() == 2


def test_a_metric_learner_compiles_its_network_for_all_numbers_of_classes(run):
  loaded = test_onnx_graph.predictor_of(
      run, *test_onnx_graph.NETWORKS["conv4 by groups"]
  )
  images = np.random.default_rng(0).random((8, *loaded.description.shape))
  for way in (2, 4, 8):
    adapted = loaded.adapt(images.astype(np.float32), np.arange(8) % way)
    assert adapted.predict(images[:3].astype(np.float32)).labels
  sizes = {way: made[-1]._cache_size() for way, made in loaded.compiled.items()}
  assert sizes == {2: 1, 4: 0, 8: 0}


def test_the_order_of_a_support_set_changes_no_bit(run, loaded):
  support, labels, query = task_of(run.splits)
  found, wanted = (
      loaded.adapt(support[::step], labels[::step]).predict(query).probabilities
      for step in (-1, 1)
  )
  np.testing.assert_array_equal(found, wanted)


def test_features_of_any_scale_have_probabilities(run):
  loaded = test_onnx_graph.predictor_of(
      run, *test_onnx_graph.NETWORKS["features"]
  )
  adapted = loaded.adapt(np.eye(6), list("abcabc"))
  query = np.full((6, 9), np.logspace(0, 16, 9)).T
  adapted.predict(query)  # It raises an error if one is not finite.
  query[7] = 1e38
  with pytest.raises(DataError, match="number 7 of the images to classify"):
    adapted.predict(query)


@pytest.mark.parametrize(
    "mode", ["L", "P", "RGB", "RGBA", "LA", "CMYK", "1", "I;16"]
)
def test_images_of_pillow_are_read_as_their_files(mode, loaded, tmp_path):
  colours = np.random.default_rng(0).integers(0, 256, (12, 12, 4), np.uint8)
  if mode == "I;16":
    image = Image.fromarray(colours[..., 0].astype(np.uint16) * 256)
  elif mode in ("RGBA", "LA"):
    image = Image.fromarray(colours, "RGBA").convert(mode)
  else:
    image = Image.fromarray(colours[..., :3]).convert(mode)
  path = tmp_path / "image.tif"
  image.save(path)
  how = loaded.description.preprocessing
  (found,) = preprocessing.of_arrays(how, [image], "they")
  wanted = preprocessing.row(how, readers.read(path))
  np.testing.assert_array_equal(found, wanted)
  if mode == "I;16":
    swapped = np.asarray(image).astype(">u2")
    (found,) = preprocessing.of_arrays(how, [swapped], "they")
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize(
    "examples, match",
    [
        ([Image.new("F", (12, 12))], "mode F of Pillow"),
        ([np.zeros((12, 12, 4), np.uint8)], r"4 channels.*convert\('RGB'\)"),
        ([np.zeros((12, 12, 2), np.uint8)], "2 channels"),
        ([np.full((12, 12), 3, np.int32)], "uint8, 0 to 255"),
        ([np.zeros(12, np.uint8)], r"\(12,\): .* \[image\] for one"),
        (["path/of/an.png"], "is <U14 of shape"),
        ([np.zeros((3, 12, 12), np.uint8)], "channels first: give numpy.move"),
        (Image.new("L", (12, 12)), r"one image: give a list, \[image\]"),
        ("path/of/an.png", "give an array"),
        (sparse.csr_array(np.eye(3)), "give X.toarray"),
        (np.ma.masked_greater(np.eye(3), 0.5), "a masked array"),
    ],
)
def test_what_holds_no_examples_is_refused(examples, match, loaded):
  how = loaded.description.preprocessing
  assert_refused(
      DataError, match, preprocessing.of_arrays, how, examples, "they"
  )


def test_a_frame_is_its_rows_and_not_its_names(loaded):
  class Frame:
    __iter__ = "abc".__iter__

    def __array__(self, dtype=None, copy=None):
      return np.eye(3)

  how = dataclasses.replace(
      loaded.description.preprocessing,
      kind="features", shape=(3,), dtype="float32",
  )
  found = preprocessing.of_arrays(how, Frame(), "they")
  np.testing.assert_array_equal(found, np.eye(3))


_CONV4 = {"data.options.size": 16, "model.name": "conv4", "model.width": 4}


@pytest.fixture(scope="module")
def larger():
  """Glyphs of 16 x 16 pixels, which a conv4 takes."""
  return data.load(
      "glyphs", participants=4, glyphs=8, drawings=6, size=16,
      validation_participants=3, test_participants=5,
  )


@pytest.mark.slow
@pytest.mark.parametrize("network", ["mlp", "conv4"])
@pytest.mark.parametrize(
    "learner", [name for name in bank.LEARNERS if name != options.SUPERVISED]
)
def test_every_learner_predicts_the_same(learner, network, larger, tmp_path):
  config = tiny_runs.maml_config().replace(_CONV4 | {"model.name": network})
  config = dataclasses.replace(config, learner=bank.LEARNERS[learner])
  assert_same(config, tmp_path, larger)


def test_moments_belong_to_the_weights(larger, tmp_path):
  """Of the validation data; without some of them there is no model."""
  config = tiny_runs.maml_config().replace(
      _CONV4 | {"learner.name": "protonet"}
  )
  place = export_run(config, tmp_path, larger)
  arrays = parts.read_weights(place / "weights.safetensors")
  learner, _ = config.make_learners((16, 16, 1), larger.validation)
  images = larger.validation.images[np.linspace(0, 143, 144).astype(int)]
  params = parts.of_names(
      jax.eval_shape(learner.init, jax.random.key(0)), arrays
  )
  wanted = learner.model.moments(params, images / np.float32(255), None)
  np.testing.assert_allclose(
      arrays["moments/block_3/mean"], wanted["block_3"]["mean"], atol=1e-4
  )
  del arrays["moments/block_2/variance"]
  (place / "weights.safetensors").write_bytes(
      safetensors.numpy.save(arrays)
  )
  (place / folder.DIGESTS).unlink()
  folder.seal(place)
  with pytest.raises(errors.RunError, match="block_2/variance"):
    export.Predictor.load(place)


@pytest.mark.slow
def test_what_began_with_public_weights_predicts_the_same(tmp_path):
  start = tmp_path / "start.npz"
  network = models.mlp(5, (8,), (12, 12, 1))
  models.write_weights(start, network.init(jax.random.key(5)))
  config = tiny_runs.maml_config().replace(
      {"model.start": str(start), "model.trained": "head"}
  )
  assert_same(config, tmp_path, tiny_runs.splits())
  found = (tmp_path / "model" / "model.json").read_text()
  assert str(tmp_path) not in found and "start.safetensors" in found


_OWN = '''
from episodic_dp import models

def make_model(outputs, input_shape, width):
  return models.mlp(outputs, (width,), input_shape)
'''


def test_a_network_of_own_code_is_given_and_never_imported(
    tmp_path, monkeypatch
):
  (tmp_path / "own_of_export.py").write_text(_OWN)
  monkeypatch.syspath_prepend(tmp_path)
  config = tiny_runs.maml_config().replace({
      "model.name": "own_of_export:make_model", "model.options": {"width": 7},
      "learner.name": "protonet",  "model.outputs": 6,
  })
  splits, place = tiny_runs.splits(), tmp_path / "model"
  save_run(config, tmp_path / "run", splits)
  own = sys.modules.pop("own_of_export")
  writing.write(tmp_path / "run", place)
  line = "'own_of_export:make_model' .* trust it, load .*model=FUNCTION"
  assert_refused(errors.RunError, line, export.Predictor.load, place)
  loaded = export.Predictor.load(place, model=own.make_model)
  assert "own_of_export" not in sys.modules
  assert "own_of_export:make_model" in (place / folder.CARD).read_text()
  support, labels, query = task_of(splits)
  found = loaded.adapt(support, labels).predict(query).probabilities
  wanted = in_process(tmp_path / "run", splits, support, query)
  np.testing.assert_allclose(found, wanted, atol=2e-5)
  with pytest.raises(errors.RunError, match="head/bias"):
    export.Predictor.load(
        place, model=lambda outputs, shape, width: models.mlp(3, (2,), shape)
    )


@pytest.mark.slow
def test_supervised_learning_takes_another_number_of_classes(tmp_path):
  config = tiny_runs.supervised_config()
  config = config.replace({"evaluation.way": 3})
  assert_same(config, tmp_path, tiny_runs.splits(), 3)


def test_a_metric_learner_is_tested_on_another_number_of_classes(tmp_path):
  config = tiny_runs.maml_config().replace(
      {"learner.name": "protonet", "evaluation.way": 3}
  )
  splits = tiny_runs.splits()
  assert_same(config, tmp_path, splits, 3)
  learner, tested = config.make_learners((12, 12, 1), splits.validation)
  assert (learner.way, tested.way, config.task["way"]) == (5, 3, 3)
  of_three = measure.measure(tmp_path / "run", splits=splits)
  of_two = measure.measure(tmp_path / "run", splits=splits, task={"way": 2})
  written = json_of(tmp_path / "run" / "evaluation.json")
  mean = written["single"]["accuracy"]["mean"]
  assert mean == of_three["single"]["score"].mean
  assert mean < of_two["single"]["score"].mean


def assert_same(config, folder, splits, way=WAY):
  """Exports a run, and compares predictions with the run's own learner."""
  model = export.Predictor.load(export_run(config, folder, splits))
  support, labels, query = task_of(splits, way)
  found = model.adapt(support, labels)
  np.testing.assert_allclose(
      found.predict(query).probabilities,
      in_process(folder / "run", splits, support, query, way),
      atol=2e-5,
  )


_USE = """
import sys
import numpy as np
from episodic_dp import export
images = np.arange(10 * 144, dtype=np.uint8).reshape(10, 12, 12, 1)
labels = [i // 2 for i in range(10)]
found = export.Predictor.load(sys.argv[1]).adapt(images, labels).predict(images)
assert found.probabilities.shape == (10, 5)
print(" ".join(sys.modules))
"""
_MANY = """
import pathlib
import sys
import time
import numpy as np
from episodic_dp import export
rng = np.random.default_rng(0)
images = rng.integers(0, 256, (20_000, 28, 28, 1), np.uint8)
model = export.Predictor.load(sys.argv[1])
adapted = model.adapt(images[:5], list("abcde"))
adapted.predict(images[:1])
first = time.process_time()
for count in range(1, 201, 20):
  adapted.predict(images[:count])
each = (time.process_time() - first) / 10
adapted.predict(images)
# Not `ru_maxrss`, which begins with that of the process that started this one.
status = pathlib.Path("/proc/self/status").read_text()
memory = int(status.split("VmHWM:")[1].split()[0]) / 1024
print(first, each, memory)
"""
_TRAINING = (
    "orbax", "tensorflow_datasets", "dp_accounting",
    "matplotlib", "tensorboardX", "fsspec", "tensorstore",
    "episodic_dp.training", "episodic_dp.private", "episodic_dp.config",
    "episodic_dp.analysis", "episodic_dp.cli", "episodic_dp.auditing",
    "episodic_dp.pvi",
)


@pytest.mark.slow
def test_the_first_image_is_quick_and_many_are_few_at_a_time(tmp_path):
  config = tiny_runs.maml_config().replace({
      "data.options.size": 28, "model.name": "conv4", "model.width": 32,
      "learner.name": "protonet",
  })
  splits = data.load(
      "glyphs", participants=4, glyphs=8, drawings=6,
      validation_participants=3, test_participants=3,
  )
  found = processes.printed(
      "-c", _MANY, export_run(config, tmp_path, splits)
  )
  first, each, memory = map(float, found.split())
  # Seconds of a processor that other tests share (the goal of an idle one is
  # 2.5), and MiB of the process.
  assert first < 6 and each < 0.1 and memory < 500


@pytest.mark.slow  # A separate process.
def test_nothing_that_trains_is_loaded(run):
  loaded = processes.printed("-c", _USE, run.model).split()
  assert {*loaded} & {*_TRAINING} == set()
