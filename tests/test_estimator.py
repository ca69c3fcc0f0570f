"""FewShotClassifier: arrays in, a private model and its guarantee out."""

import copy
import json
import pathlib
import pickle
import re
from unittest import mock
import warnings

import jax.numpy as jnp
import numpy as np
from PIL import Image
import pytest
from scipy import sparse
import sklearn
from sklearn import base
from sklearn import exceptions
from sklearn import model_selection
from sklearn import pipeline
from sklearn import preprocessing
from sklearn.utils import estimator_checks
from sklearn.utils import validation

import episodic_dp
from episodic_dp import errors
from episodic_dp import models
from episodic_dp import options
from episodic_dp import plan
from episodic_dp import training
from episodic_dp.accounting import report
from episodic_dp.data import backbone
from episodic_dp.errors import DataError
from episodic_dp.export import folder
from tests import processes
from tests.data import test_backbone
from tests.refusals import assert_refused

# Thirty people are few, which a warning says.
pytestmark = pytest.mark.filterwarnings("ignore:The run protects only")
once = pytest.mark.few(1)  # Of the networks of `fitted` the first.
OPTIONS = dict(epsilon=6.0, way=2, steps=np.int64(3), start="none")


def people_of(shape, count=30):
  """Return examples, labels that people share, and ragged people."""
  rng = np.random.default_rng(0)
  people = rng.integers(0, count, 12 * count)
  labels = rng.integers(0, 4, people.size)
  values = np.repeat(labels, np.prod(shape)).reshape(-1, *shape)
  values = values + rng.normal(0, 0.3, values.shape)
  if len(shape) == 1:
    return values, labels, people
  return np.clip(40 * values + 60, 0, 255).astype(np.uint8), labels, people


def make_model(outputs, input_shape):
  """Return a network of own code."""
  return models.mlp(6, (), input_shape)


@pytest.fixture(scope="module", params=[None, f"{__name__}:make_model"])
def fitted(request):
  """A classifier of features."""
  model = episodic_dp.FewShotClassifier(**OPTIONS, network=request.param)
  return model.fit(*people_of((6,))), people_of((6,))


@pytest.fixture
def place(tmp_path):
  """Where a model is saved."""
  return tmp_path / "model"


@once
def test_epsilon_is_spent_for_a_person(fitted):
  model, (_, _, people) = fitted
  found = model.guarantee
  assert 0.99 * OPTIONS["epsilon"] < found.epsilon <= OPTIONS["epsilon"]
  assert found.level == "person" and found.steps == OPTIONS["steps"]
  assert found.delta < 1 / (10 * len(set(people))) <= 10 * found.delta


@once
def test_adapts_to_classes_of_any_name_and_number(fitted):
  model, (features, labels, _) = fitted
  names = np.array(["a", "b", "c", "d"])[labels]
  model.adapt(features[:40], names[:40])
  assert set(model.predict(features[40:])) <= {*names}
  assert model.score(features[40:], names[40:]) > 0.8  # Chance is 1/4.


@once
def test_labels_are_compared_with_those_of_adapt(fitted):
  model, (features, labels, _) = fitted
  text = labels.astype(str)
  big = 2**60 + labels.astype(object)
  for names, other in ((labels, text), (text, labels), (big, labels > 0)):
    right = model.adapt(features[:40], names[:40]).score(features, names)
    assert right > 0.8
    for same in (names[:, None], [[name] for name in names]):
      assert model.score(features, same) == right
      model.adapt(features[:40], same[:40])
    for match, wrong in (
        ("shape", np.stack([names, names], 1)),
        ("360 images and 359 labels", names[1:]),
        ("row 0 of labels is None", [None, *names[1:]]),
        ("of one type in both", other),
        ("is none of the classes", [*names[1:], 2 * max(names)]),
    ):
      assert_refused(DataError, match, model.score, features, wrong)
  for match, wrong in (
      ("row 3 of labels is nan", np.where(np.arange(360) == 3, np.nan, 1.0)),
      ("row 1 of labels is '1', text", [1, "1", *[1] * 358]),
  ):
    assert_refused(DataError, match, model.adapt, features, wrong)


@once
def test_a_saved_model_predicts_the_same_and_is_verified(
    fitted, tmp_path, monkeypatch, place
):
  model, (features, labels, _) = fitted
  monkeypatch.setenv("HOME", str(tmp_path))
  model.save("~/model")
  again = model.load("~/model", model=make_model)
  named = options.NETWORKS + (None,)
  assert again.get_params() == model.get_params() | {
      "network": model.network if model.network in named else None
  }
  assert again.guarantee == model.guarantee
  first, second = (
      m.adapt(features[:30], labels[:30]).predict(features[30:])
      for m in (model, again)
  )
  np.testing.assert_array_equal(first, second)
  path = place / "privacy_statement.json"
  path.write_text(path.read_text().replace("0", "1", 1))
  with pytest.raises((errors.RunError, plan.PlanError)):
    model.load(place, model=make_model)


@once
def test_people_of_adapt_have_a_guarantee_of_their_own(fitted, tmp_path, place):
  model, (features, labels, people) = fitted
  trained, labels = model.guarantee, labels > 1  # Two directions from the mean.
  model.adapt(features, labels, people, epsilon=500.0, public=features)
  found = model.adaptation_guarantee
  assert 0.99 * 500 < found.epsilon <= 500 and found.level == "person"
  assert model.guarantee == trained  # Beside it, and not added.
  assert model.score(features, labels) > 0.9  # Far apart.
  model.save(place)
  again = model.load(place, model=make_model)
  assert again.adaptation_guarantee == found and again.guarantee == trained
  np.testing.assert_array_equal(
      again.predict_proba(features), model.predict_proba(features)
  )
  model.adapt(features[:40], labels[:40])
  assert model.adaptation_guarantee is None
  model.save(tmp_path / "plain")  # Without the examples of `adapt`.
  with pytest.raises(exceptions.NotFittedError):
    model.load(tmp_path / "plain", model=make_model).predict(features)


@pytest.mark.slow
@pytest.mark.parametrize("channels", [1, 3])
def test_images_of_one_and_three_channels(channels, tmp_path):
  images, labels, people = people_of((16, 16, channels))
  model = episodic_dp.FewShotClassifier(
      **OPTIONS | dict(start="auto", workdir=tmp_path / "run")
  ).fit(images, labels, people)
  found = model.adapt(images, labels).predict(images[:9])
  alone = [model.predict(image[None])[0] for image in images[:9]]
  np.testing.assert_array_equal(alone, found)
  with open(tmp_path / "run" / "guarantee.json", encoding="utf-8") as file:
    stated = json.load(file)["guarantees"]["person"]
  assert model.guarantee.as_dict() == stated and "start" in stated["caveat"]
  again = model.fit(images, labels, people).adapt(images, labels)
  np.testing.assert_array_equal(again.predict(images[:9]), found)
  config = (tmp_path / "run" / "config.json").read_text()
  assert f'"start": "{options.STARTS[channels]}"' in config


# The checks of scikit-learn that need no people to fit, and predict before
# `adapt`: all others call fit(X, y) and then predict.
CHECKS = {
    "check_estimator_cloneable", "check_estimator_repr",
    "check_estimator_tags_renamed", "check_estimators_unfitted",
    "check_get_params_invariance", "check_mixin_order",
    "check_no_attributes_set_in_init", "check_parameters_default_constructible",
    "check_set_params", "check_valid_tag_types",
}


@pytest.mark.slow
def test_a_backbone_takes_images(tmp_path, place):
  (tmp_path / "b.onnx").write_bytes(test_backbone.content_of())
  images, labels, people = people_of((9, 9, 3))
  how = backbone.Backbone(file=str(tmp_path / "b.onnx"), mean=(0.5, 0.5, 0.5))
  model = episodic_dp.FewShotClassifier(**OPTIONS, backbone=how)
  model.fit(images, labels, people).adapt(images[:40], labels[:40])
  assert report.EMBEDDED in model.guarantee.caveat
  assert model.score(images[40:], labels[40:]) > 0.5
  model.save(place)
  again = episodic_dp.FewShotClassifier.load(place)
  again.adapt(images[:40], labels[:40])
  np.testing.assert_array_equal(
      again.predict_proba(images), model.predict_proba(images)
  )
  with pytest.raises(DataError, match="leave backbone out"):
    model.fit(images.reshape(len(images), -1), labels, people)


def test_the_checks_of_scikit_learn_that_apply():
  found = set()
  for model, check in estimator_checks.estimator_checks_generator(
      episodic_dp.FewShotClassifier()
  ):
    name = getattr(check, "func", check).__name__
    if name in CHECKS:
      found.add(name)
      check(model)
  assert found == CHECKS


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.* of the sampled tasks lack classes")
@pytest.mark.filterwarnings("ignore:epsilon .* needs noise_multiplier")
def test_people_are_routed_to_fit_and_score_of_a_search():
  features, labels, people = people_of((6,))
  model = episodic_dp.FewShotClassifier(**OPTIONS, verbose=0)
  with sklearn.config_context(enable_metadata_routing=True):
    model.set_fit_request(people=True).set_score_request(people=True)
    steps = pipeline.make_pipeline(
        preprocessing.FunctionTransformer(np.tanh), model
    )
    search = model_selection.GridSearchCV(
        steps, {"fewshotclassifier__shot": [1, 2]}, error_score="raise",
        cv=model_selection.GroupKFold(2), refit=False,
    ).fit(features, labels, people=people, groups=people)
  assert search.cv_results_["mean_test_score"].min() > 0.7  # Chance is 1/2.


@once
def test_the_score_of_a_person_depends_on_no_other_person(fitted):
  model, (features, labels, people) = fitted
  drawn = np.random.default_rng(0).permutation(labels)  # Scores differ.
  each = [
      model.score(features[own], drawn[own], people=people[own])
      for own in people == np.unique(people)[:, None]
  ]
  together = model.score(features, drawn, people=people)
  assert together == pytest.approx(np.mean(each))


@once
@pytest.mark.parametrize("weights", [[1], np.zeros(360), [-1] * 360, "a"])
def test_weights_that_are_no_weights_are_refused(fitted, weights):
  model, (features, labels, people) = fitted
  model.adapt(features[:40], labels[:40])
  for who in (None, people):
    with pytest.raises(DataError, match="sample_weight has shape"):
      model.score(features, labels, people=who, sample_weight=weights)
  with pytest.raises(TypeError, match="positional"):  # They are no people.
    model.score(features, labels, weights)
  once = np.arange(360) < 200
  assert model.score(features, labels, sample_weight=once) == model.score(
      features[:200], labels[:200]
  )


@once
def test_a_pickle_and_a_copy_predict_the_same(fitted):
  model, (features, labels, _) = fitted
  model.adapt(features[:40], labels[:40])
  expected = model.predict_proba(features[40:60])
  np.testing.assert_allclose(expected.sum(1), 1, rtol=1e-5)
  assert model.classes_.tolist() == sorted(set(labels[:40].tolist()))
  for again in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
    validation.check_is_fitted(again)
    assert again.guarantee == model.guarantee
    np.testing.assert_array_equal(
        again.predict_proba(features[40:60]), expected
    )
  unfitted = base.clone(model)
  assert unfitted.get_params() == model.get_params()
  with pytest.raises(exceptions.NotFittedError, match="call fit first"):
    unfitted.adapt(features, labels)
  # A search that does not route people, or names a score, says what to do.
  again._adapted = None
  with pytest.raises(exceptions.NotFittedError, match="set_score_request"):
    again.score(features, labels)


@once
@pytest.mark.parametrize("changed", [
    {"network": "json:loads"}, {"start": "/etc/passwd"}, {"workdir": "run"},
    {"way": "a"}, {"shot": [1]}, {"epsilon": float("nan")}, {"a__b": 1},
])
def test_hostile_options_of_a_folder_are_refused(fitted, changed, place):
  model, _ = fitted
  model.save(place)
  path = place / "estimator.json"
  path.write_text(json.dumps(json.loads(path.read_text()) | changed))
  (place / "digests.json").unlink()
  folder.seal(place)
  with pytest.raises(errors.RunError, match="estimator.json does not hold"):
    model.load(place, model=make_model)


@once
def test_a_fit_that_fails_leaves_the_model_whole(fitted):
  model, (features, labels, people) = fitted
  model.adapt(features[:40], labels[:40])
  expected, stated = model.predict(features[40:]), model.guarantee
  for epsilon, error in ((-1.0, ValueError), (6.0, KeyboardInterrupt)):
    model.set_params(epsilon=epsilon)
    with mock.patch.object(
        training, "train", return_value=mock.Mock(stopped="SIGINT")
    ), pytest.raises(error):
      model.fit(features, labels, people)
  assert model.guarantee == stated
  np.testing.assert_array_equal(model.predict(features[40:]), expected)


@pytest.mark.parametrize(
    "start", ["a,b/w.npz", pathlib.Path("x,noise_multiplier=0.01.npz")]
)
def test_a_start_is_one_file_whatever_its_name(start):
  model = episodic_dp.FewShotClassifier(**OPTIONS | dict(start=start))
  with pytest.raises(FileNotFoundError, match=re.escape(str(start))):
    model.fit(*people_of((6,)))


class Series(np.ndarray):
  """A column of pandas with an array in each row."""

  dtypes = np.dtype(object)  # One, not one a column.


def test_frames_of_several_types_are_features(fitted):
  model, (features, labels, _) = fitted
  rows = features[:40].astype(object)  # Such as of nullable columns.
  model.adapt(rows, labels[:40])
  expected = model.predict_proba(features[40:])
  model.adapt(features[:40], labels[:40])
  asked = np.asarray([*features[40:], None], object)[:-1].view(Series)
  for given in (features[40:].astype(object), asked):
    np.testing.assert_array_equal(model.predict_proba(given), expected)
  rows[3, 1] = None
  assert_refused(DataError, "number 3 of .* holds None", model.predict, rows)


@once
def test_a_frame_has_the_columns_of_fit_in_its_order(place):
  pyarrow = pytest.importorskip("pyarrow")
  names, (features, labels, people) = [*"abcdef"], people_of((6,))

  def frame(order):
    return pyarrow.table({k: features[:, names.index(k)] for k in order})

  model = episodic_dp.FewShotClassifier(**OPTIONS)
  with pytest.raises(Exception, match="unique column names"):
    model.fit(frame(names).rename_columns([*"aabcde"]), labels, people)
  assert not hasattr(model, "_predictor")  # Nothing was trained.
  model.fit(frame(names), labels, people).adapt(frame(names), labels)
  for method in (model.predict, model.predict_proba):
    with pytest.raises(ValueError, match="in the same order"):
      method(frame(reversed(names)))
  model.save(place)
  model = episodic_dp.FewShotClassifier.load(place)
  with pytest.raises(exceptions.NotFittedError, match="call adapt first"):
    model.predict(frame(names))
  with warnings.catch_warnings(action="error"):
    model.adapt(frame(names), labels).predict(frame(names))


def test_too_small_an_epsilon_is_a_warning_of_python(caplog):
  model = episodic_dp.FewShotClassifier(**(OPTIONS | dict(epsilon=1.5)))
  with pytest.warns(UserWarning, match="more than a tenth of the") as heard:
    model.fit(*people_of((6,)))
  assert heard[0].filename == __file__
  assert "--" not in str(heard[0].message)
  assert not [one for one in caplog.records if one.levelname != "INFO"]


class Elsewhere:
  """An array of a device that NumPy cannot read."""

  def __array__(self, dtype=None, copy=None):
    raise TypeError("not on this machine")


class Frame(Elsewhere):
  """A frame of polars, whose dates become numbers beside numbers."""

  columns = ["x", "day"]
  dtypes = [np.float64, mock.Mock(**{"is_temporal.return_value": True})]


def test_what_cannot_be_is_said():
  features, labels, people = people_of((6,))
  model = episodic_dp.FewShotClassifier(**OPTIONS)
  with pytest.raises(exceptions.NotFittedError, match="call fit first"):
    model.adapt(features, labels)
  with pytest.raises(DataError, match="one label and one person"):
    model.fit(features, labels[1:], people)
  images = people_of((9, 9))[0]
  closed = Image.new("L", (9, 9))
  closed.close()
  for match, wrong in (
      ("(of files, [PIL.Image.open(file).copy() for", ["a.png", "b.png"]),
      ("row 1 of the examples cannot be read as", [images[0], closed]),
      ("uint8, 0 to 255, or as float32, 0 to 1, and features", images / 3.0),
      ("features of one length as numpy.stack(X)",
       np.asarray([*features, None], object)[:-1]),
      ("give whole numbers or floating point, as X.astype('float32')",
       features.astype(jnp.bfloat16)),
      ("2 channels", np.stack([images, images], -1)),
      ("nearly black, with no value above 1 of 255", images.astype(np.uint16)),
      ("are nearly black", (images > 99).astype(np.uint8)),
      ("channels first: give numpy.moveaxis", images[:, None]),
      ("row 1 of the examples has shape", [images[0], images[0, 1:]]),
      ("a masked array", np.ma.masked_greater(features, 1.0)),
      ("have shape (): give an array", None),
      ("are no array (a generator): give a NumPy array", (i for i in images)),
      ("have shape (360,): give an array", features[:, 0]),
      ("give an array", np.zeros((360, 0, 0))),
      ("give X.toarray()", sparse.csr_array(features)),
      ("leave it out, or give numbers in a unit", Frame()),
      ("are no array (not on this machine): give a NumPy array", Elsewhere()),
      ("are no array (not on this machine): give a NumPy array", [Elsewhere()]),
      ("at [0], which is no number", features.astype(str).astype(object)),
  ):
    count = slice(2 if isinstance(wrong, list) else None)
    with pytest.raises(DataError, match=re.escape(match)):
      model.fit(wrong, labels[count], people[count])
  text = people.astype(str).astype(object)
  spelled = np.where(np.arange(people.size) % 2, text + " ", text)
  merged = [str(p) if i % 2 else p for i, p in enumerate(people)]
  broken = features.copy()
  broken[7] = np.nan
  for match, values, classes, who in (
      ("of people is .*differ only in blanks", features, labels, spelled),
      ("row 1 of people is '.*', text, and row 0", features, labels, merged),
      ("row 5 of people is nan", features, labels,
       np.where(np.arange(people.size) == 5, np.nan, people)),
      ("row 4 of labels is nan", features,
       np.where(np.arange(people.size) == 4, np.nan, labels), people),
      ("row 7 of the examples holds nan", broken, labels, people),
  ):
    assert_refused(DataError, match, model.fit, values, classes, who)
  for match, changed in (
      ("nothing would be learned", dict(way=5)),
      ("epsilon|noise", dict(way=2, epsilon=1e-6)),
      ("way=1: expected a whole number of at least 2", dict(way=1)),
      ("epsilon='2': expected a number$", dict(way=2, epsilon="2")),
      ("FewShotClassifier.steps=0: expected", dict(epsilon=6.0, steps=0)),
      ("network=<.*>: expected a name, a file or 'MODULE:F",
       dict(network=make_model, steps=2, epsilon=9.0)),
      ("^start='glyphs': expected none", dict(start="glyphs", network=None)),
  ):
    with pytest.raises(plan.PlanError, match=match):
      model.set_params(**changed).fit(features, labels, people)
  model.set_params(start="auto", epsilon=6.0, workdir="/proc/x")
  with pytest.raises(errors.RunError, match="/proc/x cannot be written"):
    model.fit(features, labels, people)


IN_A_POOL = """
import multiprocessing
import sys

import numpy as np

import episodic_dp

def fit(seed):
  rng = np.random.default_rng(seed)
  people = np.arange(360) // 12
  labels = np.arange(360) % 4
  values = rng.normal(0, 0.3, (360, 6)) + labels[:, None]
  model = episodic_dp.FewShotClassifier(
      epsilon=6.0, way=2, steps=2, start="none", verbose=0
  ).fit(values, labels, people)
  return model.adapt(values[:40], labels[:40]).score(values[40:], labels[40:])

if __name__ == "__main__":
  fit(0)  # JAX has started in the parent, too.
  with multiprocessing.get_context("spawn").Pool(2) as pool:
    print(*pool.map(fit, [1, 2]))
"""


@pytest.mark.slow  # Three processes that compile.
def test_a_pool_of_spawned_processes_fits(tmp_path):
  path = tmp_path / "pool.py"
  path.write_text(IN_A_POOL)
  scores = processes.printed("-W", "ignore", path).split()
  assert [float(score) > 0.5 for score in scores] == [True, True]
