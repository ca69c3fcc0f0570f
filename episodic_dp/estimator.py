"""Train a private few-shot classifier on arrays, for scikit-learn.

Example:
  model = FewShotClassifier(epsilon=2.0).fit(images, labels, people)
  model.adapt(support_images, support_labels).predict(other_images)
"""

from collections.abc import Callable, Iterator
import contextlib
import dataclasses
import functools
import json
import os
import pathlib
import signal
import tempfile
import threading
from types import FrameType
from typing import Any, Literal, NoReturn
import warnings
import zlib

import numpy as np
from sklearn import base
from sklearn import exceptions
from sklearn.utils import validation

from episodic_dp import _validate
from episodic_dp import accounting
from episodic_dp import backends
from episodic_dp import data
from episodic_dp import export
from episodic_dp import models
from episodic_dp import options
from episodic_dp import plain
from episodic_dp import plan
from episodic_dp import training
from episodic_dp.accounting import statement
from episodic_dp.config import solving
from episodic_dp.config.presets import own_data
from episodic_dp.data import backbone as backbone_lib
from episodic_dp.data import dataset as dataset_lib
from episodic_dp.data.own_data import readers
from episodic_dp.data.own_data import rows as rows_lib
from episodic_dp.errors import DataError
from episodic_dp.errors import RunError
from episodic_dp.errors import shown
from episodic_dp.export import preprocessing
from episodic_dp.export import writing
from episodic_dp.export.predictor import Adapted
from episodic_dp.models import builder
from episodic_dp.output import files
from episodic_dp.output import phases
from episodic_dp.plan import labels as labels_lib
from episodic_dp.run import Run

_LEVELS = ("person", "class", "example")
_OPTIONS = "estimator.json"  # Of a saved folder: the options of `fit`.
_MOST_BYTES = 4096  # Of these options.
_NAMES = ("auto", "none", *options.STARTS.values(), *options.NETWORKS)
_SEED = 0  # Of the tasks of `score`, which are the same in every call.


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Options:
  """The options in a saved folder: no path, and no code by name.

  Attributes are those of `FewShotClassifier`.
  """

  epsilon: plain.Positive
  delta: plain.Fraction | None
  way: plain.Count
  shot: plain.Count
  steps: plain.Count
  rate: plain.Rate
  start: Literal["auto", "none", "glyphs", "scenes"]
  network: Literal["conv4", "resnet12", "conv1d", "mlp", "features"] | None


@dataclasses.dataclass(kw_only=True, eq=False, repr=False)
class FewShotClassifier(base.ClassifierMixin, base.BaseEstimator):
  """A prototypical network, trained with privacy for each person.

  Snell, Swersky and Zemel, "Prototypical Networks for Few-shot Learning" (NIPS
  2017). For features the network is by default a linear map that begins as the
  identity, so that untrained it is the nearest class mean.

  Batch normalisation takes the moments of generated images, which are public,
  and of a tenth of each image's own.

  Every step samples people by Poisson sampling, `way` classes of each, and
  `shot` + 1 examples of each class. People with fewer contribute nothing. The
  numbers of classes and examples of each person are public by assumption.

  It is an estimator of scikit-learn with one step more: `fit` trains the model,
  `adapt` gives it classes, and only then it predicts. In a pipeline a step
  before it that is fitted on people's data has no guarantee: use fixed ones.
  `cross_val_score` and `GridSearchCV` pass people to `fit` and `score` after
  `sklearn.set_config(enable_metadata_routing=True)`, `set_fit_request` and
  `set_score_request`. Every `fit` of a search spends `epsilon`, and every score
  is published without noise: search on public data.

  Attributes:
    epsilon: budget of a person over all steps, above 0.
    delta: delta of the guarantee; None for the largest power of ten below
      1 / (10 N), for N people.
    way: number of classes of a training task, at least 2.
    shot: number of support examples of a class in training, at least 1.
    start: public weights to start from: "glyphs", "scenes" or a file for
      images, "none" for random weights; "auto" for the start of the library
      that fits the network and the colours of the images, if any does.
    network: "conv4" or "resnet12" for images, "features" or "mlp" for both, or
      MODULE:FUNCTION of your own, imported as for --config.model.name; None for
      "conv4" on images and "features" on features. Series are trained by the
      preset `own_data` with network="conv1d".
    backbone: an ONNX file of a public network, whose features of the images are
      learned by "features"; a `data.backbone.Backbone` says what it takes. None
      learns the images.
    steps: number of training steps.
    rate: probability that a step samples a person.
    workdir: folder of the run, its checkpoints and its secret key, from which
      an interrupted `fit` resumes; None for a temporary folder.
    verbose: 0 for a `fit` without lines of progress.

  A saved folder holds the other options than `workdir`, `verbose`, `backbone`,
  files of weights and networks of your own.
  """

  epsilon: float = 2.0
  delta: float | None = None
  way: int = 5
  shot: int = 1
  start: str | os.PathLike[str] = "auto"
  network: str | None = None
  backbone: str | os.PathLike[str] | backbone_lib.Backbone | None = None
  steps: int = 60
  rate: float = 0.5
  workdir: str | os.PathLike[str] | None = None
  verbose: int = 1

  def fit(self, X: Any, y: Any, people: Any) -> "FewShotClassifier":
    """Train on private examples, and return the estimator.

    What a fit before it left is replaced at its end, or stays if it fails.

    Args:
      X: images, uint8 or float from 0 to 1 [n, H, W], [n, H, W, 1] or
        [n, H, W, 3], or a list of Pillow's; or features, numbers
        [n, features], scaled by public numbers. Data frames are features.
      y: [n] classes, numbers or text; the labels of different people are
        unrelated.
      people: [n] numbers or text, the person of each example.

    Raises:
      DataError: an array has a wrong shape or type; or a label or a person is
        missing, not exact, or alike another one (see `Hierarchy.from_labels`).
      PlanError: an option is out of range, or epsilon cannot be reached.
      RunError: the work directory cannot be used, or a signal ended the run.
      KeyboardInterrupt: Ctrl-C ended the run.
    """
    backends.ask_for_cores()
    saved = json.dumps(plain.to_plain(self._saved())).encode()
    backbone = self._backbone()
    train = _dataset(X, y, people, backbone)
    _with_columns(base.clone(self), X)  # Refused before epsilon is spent.
    run, _ = solving.spend(
        self._run(train, backbone), self.epsilon,
        warn=functools.partial(warnings.warn, stacklevel=3),
    )
    with contextlib.ExitStack() as stack:
      if not self.verbose:
        stack.enter_context(phases.quiet())
      stack.enter_context(_raised_sigterm())
      place = stack.enter_context(tempfile.TemporaryDirectory())
      workdir = self.workdir or pathlib.Path(place, "run")
      result = training.train(run.build(train=train), workdir)
      if result.stopped == "SIGINT":
        raise KeyboardInterrupt
      if result.stopped != "done":
        raise RunError(
            f"{result.stopped} ended fit after step {result.steps} of"
            f" {result.planned}: fit again; with workdir=DIR it resumes"
        )
      exported = pathlib.Path(place, "model")
      writing.write(workdir, exported, beside={_OPTIONS: saved})
      predictor = export.Predictor.load(
          exported, model=builder.imported(run.model),
          backbone=backbone.file if backbone else None,
      )
    for line in result.warnings:
      warnings.warn(line.strip(), stacklevel=2)
    self._set(predictor)
    _with_columns(self, X)
    return self

  def _set(self, predictor: export.Predictor) -> None:
    """Take another model, with the classes that it holds, if any."""
    self._predictor = predictor
    self._adapted: Adapted | None = predictor.adapted
    how = predictor.description.preprocessing
    if how.kind == "features":
      self.n_features_in_: int = how.shape[0]
    elif hasattr(self, "n_features_in_"):  # Of a model before this one.
      del self.n_features_in_

  def _saved(self) -> _Options:
    """Return the options that a saved folder holds, as Python's numbers."""
    found: dict[str, Any] = {"start": "auto", "network": None}
    for field in dataclasses.fields(_Options):
      value = getattr(self, field.name)
      if field.name not in found or value in _NAMES:
        found[field.name] = value
    return plain.from_plain(_Options, found, name=type(self).__name__)

  def __sklearn_is_fitted__(self) -> bool:
    return hasattr(self, "_predictor")

  def adapt(
      self, images: Any, labels: Any, people: Any = None, **private: Any
  ) -> "FewShotClassifier":
    """Adapt to labelled examples of any classes, and return the estimator.

    With `epsilon` the examples get a guarantee of their own,
    `adaptation_guarantee`, beside that of `fit`, and `save` writes both. Each
    such call costs the same people again.

    Args:
      images: examples as in `fit`, [k, ...].
      labels: [k] classes, numbers or text.
      people: with epsilon, [k], the person of each; None to protect examples.
      **private: `epsilon`, `delta`, `classes`, `public`, `neighbours` and
        `private_seed` of `Predictor.adapt`.

    Raises:
      NotFittedError: the estimator is not fitted.
      DataError: an example cannot be used, or there is only one class.
      PlanError, UnsoundPlanError: as in `Predictor.adapt`.
    """
    self._adapted = self.predictor.adapt(
        self._given(images), labels, people, **private
    )
    return self

  def predict(self, X: Any) -> np.ndarray:
    """Return the most probable class of each example, [n], as in `adapt`.

    A prediction depends on the fitted model, the examples of `adapt` and its
    own example, not on the others of the call.

    Args:
      X: examples as in `fit`, [n, ...].

    Raises:
      NotFittedError: the estimator is not adapted.
      DataError: an example cannot be used.
    """
    found = self._with_classes().predict(self._given(X)).labels
    return labels_lib.read("predictions", found)

  def predict_proba(self, X: Any) -> np.ndarray:
    """Return float32[n, classes], the probability of each of `classes_`."""
    return self._with_classes().predict(self._given(X)).probabilities

  def score(
      self, X: Any, y: Any, *, people: Any = None, sample_weight: Any = None
  ) -> float:
    """Return the share of examples that are classified correctly.

    Without `people` the examples are of the classes of `adapt`. With them, as
    in a search, each person is a task: `way` classes at most, `shot` examples
    of each to adapt to, and all others to predict. The share of each task
    counts the same, and what `adapt` did stays. The share is computed without
    noise, so people who are scored need to be public.

    Args:
      X: examples as in `fit`, [n, ...].
      y: [n], their classes.
      people: [n], the person of each, or None.
      sample_weight: float[n], the weight of each, or None for equal ones.

    Raises:
      NotFittedError, DataError: as in `predict`; or the labels are not as
        many, or of another type than those of `adapt`, or name another class;
        or no person has two classes of more than `shot` examples.
    """
    truth = labels_lib.read("labels", y)
    weights = _weights(sample_weight, len(truth))
    if people is not None:
      return self._score_of_people(X, truth, people, weights)
    found = self.predict(X)
    kinds = [labels_lib.kind_of(label) for label in (*found[:1], *truth[:1])]
    if len(found) != len(truth) or len(set(kinds)) > 1:
      raise DataError(
          f"there are {len(found)} images and {len(truth)} labels, and the"
          f" first labels of adapt and score are {' and '.join(kinds)}: give"
          " one label for each image, of one type in both"
      )
    unknown = np.setdiff1d(truth, self.classes_)
    if unknown.size:
      raise DataError(
          f"the label {shown(unknown[0])} is none of the classes of"
          " adapt: leave its images out, or adapt to some of them"
      )
    return float(np.average(found == truth, weights=weights))

  def _score_of_people(
      self, X: Any, labels: np.ndarray, people: Any, weights: np.ndarray
  ) -> float:
    """Return the mean share over the tasks of people; see `score`."""
    images = self._given(X)
    people = labels_lib.read("people", people)
    _check_rows(images, labels, people)
    shares = []
    for person in np.unique(people):
      # A person's task depends on no other person.
      name = zlib.crc32(ascii(str(person)).encode())
      rng = np.random.default_rng([_SEED, name])
      support: list[np.ndarray] = []
      query: list[np.ndarray] = []
      own = np.flatnonzero(people == person)
      for label in rng.permutation(np.unique(labels[own])):
        rows = rng.permutation(own[labels[own] == label])
        if len(rows) > self.shot and len(support) < self.way:
          support.append(rows[: self.shot])
          query.append(rows[self.shot :])
      if len(support) < 2:
        continue
      known, asked = np.concatenate(support), np.concatenate(query)
      if weights[asked].any():
        adapted = self.predictor.adapt(
            [images[i] for i in known], labels[known]
        )
        found = adapted.predict([images[i] for i in asked]).labels
        right = np.asarray(found) == labels[asked]
        shares.append(np.average(right, weights=weights[asked]))
    if not shares:
      raise DataError(
          f"no person has two classes of more than shot={self.shot} examples:"
          " give more examples of each person, or a smaller shot"
      )
    return float(np.mean(shares))

  @property
  def classes_(self) -> np.ndarray:
    """Return the classes of `adapt`, [classes], sorted."""
    return labels_lib.read("classes", self._with_classes().classes)

  @property
  def predictor(self) -> export.Predictor:
    """Return the trained model; NotFittedError if there is none."""
    return self._of("_predictor", "fit first")

  @property
  def guarantee(self) -> accounting.Guarantee:
    """Return a person's guarantee, as stated; see `predictor`."""
    return statement.guarantee_of(self.predictor.statement, _LEVELS[0])

  @property
  def adaptation_guarantee(self) -> accounting.Guarantee | None:
    """Return the guarantee of `adapt`; None if it was without `epsilon`."""
    return self._with_classes().guarantee

  def save(self, path: str | os.PathLike[str]) -> None:
    """Write the model and its privacy statement as a new folder.

    If `adapt` gave a guarantee, the folder holds its classes and its statement
    too; otherwise they are not saved, and a model that was loaded with such
    classes keeps those.

    Raises:
      NotFittedError: the estimator is not fitted.
      RunError: the folder exists and is not empty.
    """
    predictor = self.predictor
    if self._adapted is not None:
      predictor = self._adapted.predictor
    predictor.save(path)

  @classmethod
  def load(
      cls,
      path: str | os.PathLike[str],
      *,
      model: Callable[..., models.Model] | None = None,
      backbone: str | os.PathLike[str] | None = None,
  ) -> "FewShotClassifier":
    """Read a folder written by `save`; its statement is computed again.

    Args:
      path: path of the folder.
      model: the function of a network of your own, for a folder that names one.
        Nothing is imported by the name in a folder.
      backbone: the ONNX file of a folder that does not hold it.

    Raises:
      RunError, PlanError, DataError: a file is missing or changed, or `model`
        or `backbone` is missing.
    """
    predictor = export.Predictor.load(path, model=model, backbone=backbone)
    found = cls(way=predictor.description.way, shot=predictor.description.shot)
    if _OPTIONS in predictor.contents:
      place = files.path_of(path) / _OPTIONS
      content = predictor.contents[_OPTIONS][:_MOST_BYTES]
      try:
        saved = plain.from_plain(_Options, json.loads(content), name="options")
      except (ValueError, RecursionError) as e:
        raise RunError(
            f"{place} does not hold the options of an estimator: get the folder"
            " again from its publisher"
        ) from e
      found.set_params(**vars(saved))
    found._set(predictor)
    return found

  def _with_classes(self) -> Adapted:
    """Return the adapted model; NotFittedError if there is none."""
    self._of("_predictor", "fit, then adapt, first")
    return self._of(
        "_adapted", "adapt first; a search needs no scoring=, and"
        " sklearn.set_config(enable_metadata_routing=True) with"
        " set_fit_request(people=True) and set_score_request(people=True)"
    )

  def _of(self, name: str, methods: str) -> Any:
    if getattr(self, name, None) is None:
      raise exceptions.NotFittedError(f"call {methods}")
    return getattr(self, name)

  def _given(self, X: object) -> Any:
    """Return examples; ValueError for a frame with other columns than fit."""
    if hasattr(self, "feature_names_in_"):  # A loaded model has none.
      _with_columns(self, X, reset=False)
    return preprocessing.given(X)

  def _backbone(self) -> backbone_lib.Backbone | None:
    """Return the backbone with its digest, if there is one."""
    given = self.backbone
    if given is None:
      return None
    if not isinstance(given, backbone_lib.Backbone):
      given = backbone_lib.Backbone(file=os.fspath(given))
    return given.recorded()

  def _run(
      self, train: data.ArrayDataset, backbone: backbone_lib.Backbone | None
  ) -> Run:
    """Describe the run."""
    _validate.count("way", self.way, 2)
    for name, value in (("start", self.start), ("network", self.network)):
      if not isinstance(value, (str, os.PathLike, type(None))):
        raise _validate.refusal(
            name, value, "a name, a file or 'MODULE:FUNCTION'"
        )
    features = train.images.dtype != np.uint8
    changes: dict[str, Any] = {
        "hierarchy": train.hierarchy,
        "delta": self.delta,
        "model.name": self.network or ("features" if features else "conv4"),
    }
    if backbone is not None:  # With its digest and preprocessing.
      changes["data.options.backbone"] = plain.to_plain(backbone)
    run = own_data.own_data(
        levels=_LEVELS, way=self.way, shot=self.shot, steps=self.steps,
        rate=self.rate, start=os.fspath(self.start or ""),
        backbone=backbone.file if backbone else "",
    ).replace(changes)
    run = run.replace({"model": run.model.with_start(train.image_shape[-1])})
    if run.model.start is None:  # The preset's scale is that of a start.
      run = run.replace({"learner.metric_scale": 1.0})
    return run.resolved()


def _with_columns(
    model: base.BaseEstimator, X: object, *, reset: bool = True
) -> None:
  """Take the names of a frame's columns, or compare them with those of fit."""
  validation.validate_data(
      model, X, reset=reset, skip_check_array=True, ensure_2d=False
  )


def _weights(given: Any, n: int) -> np.ndarray:
  """Return float64[n], equal weights for None.

  Raises:
    DataError: they are not n finite numbers of at least 0, not all 0.
  """
  if given is None:
    return np.ones(n)
  try:
    found = np.asarray(given, np.float64)
  except (TypeError, ValueError):
    found = np.zeros(0)
  if found.shape != (n,) or not np.isfinite(found).all() or not (
      found.min() >= 0 and found.any()
  ):
    raise DataError(
        f"sample_weight has shape {np.shape(given)}: give {n} finite numbers of"
        " at least 0, one for each example, not all 0"
    )
  return found


@contextlib.contextmanager
def _raised_sigterm() -> Iterator[None]:
  """Raise SystemExit at SIGTERM, so that a temporary folder is removed.

  Python ignores an error in some callbacks; then it is raised at the end.
  """
  came = False

  def stop(number: int, frame: FrameType | None) -> NoReturn:
    nonlocal came
    came = True
    raise SystemExit(128 + number)

  usual = signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
  if not usual or threading.current_thread() != threading.main_thread():
    yield
    return
  signal.signal(signal.SIGTERM, stop)
  try:
    yield
    if came:
      raise SystemExit(128 + signal.SIGTERM)
  finally:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _check_rows(images: Any, labels: np.ndarray, people: np.ndarray) -> None:
  """Raise DataError unless there is one label and one person an image."""
  if not len(images) == len(labels) == len(people):
    raise DataError(
        f"images, labels and people have {len(images)}, {len(labels)} and"
        f" {len(people)} rows: give one label and one person for each image"
    )


def _dataset(
    images: Any,
    labels: Any,
    people: Any,
    backbone: backbone_lib.Backbone | None,
) -> data.ArrayDataset:
  """Return the examples with the tree of people and their classes.

  With a backbone they are its features.
  """
  images = preprocessing.given(images)
  labels = labels_lib.read("labels", labels)
  people = labels_lib.read("people", people)
  _check_rows(images, labels, people)
  rows = _rows(images)
  if backbone is not None:
    rows = _features(rows, backbone)
  return data.ArrayDataset(
      name="arrays",
      images=rows,
      hierarchy=plan.Hierarchy.from_labels(
          dict(zip(_LEVELS, (people, labels))), leaf=_LEVELS[-1]
      ),
  )


def _features(
    images: np.ndarray, backbone: backbone_lib.Backbone
) -> np.ndarray:
  """Return the features of images [n, H, W, C], float32[n, d]."""
  network = backbone.opened()
  if images.ndim != 4:
    raise DataError(
        "a backbone takes images, and the examples are features: give images,"
        " or leave backbone out"
    )
  return np.stack([*rows_lib.features(images, network)])


def _rows(images: Any) -> np.ndarray:
  """Return images as uint8[n, H, W, C], and features as float32[n, features].

  What `adapt` would refuse is refused here, before any epsilon is spent.

  Raises:
    DataError: one cannot be used; one sentence.
  """
  features = isinstance(images, np.ndarray) and images.ndim == 2
  rows, bright = np.empty(0), []
  for number, given in enumerate(images):
    name = f"row {number} of the examples"
    if features:
      values = readers.features_of(given, name).values
    else:
      example = preprocessing.image(given, name)
      bright.append(readers.brightest(example))
      values = rows_lib.rounded(example.values)
    if not number:
      rows = dataset_lib.empty((len(images), *values.shape), values.dtype)
    if values.shape != rows.shape[1:]:
      raise DataError(
          f"{name} has shape {values.shape}, and the first {rows.shape[1:]}:"
          " resize all to one size and colour"
      )
    rows[number] = values
  if not features:
    readers.check_bits(bright, "the images")
  return rows
