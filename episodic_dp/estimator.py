"""Train a private few-shot classifier on arrays, in the style of scikit-learn.

Example:
  model = FewShotClassifier(epsilon=2.0).fit(images, labels, people)
  model.adapt(support_images, support_labels).predict(other_images)
"""

from collections.abc import Callable
import dataclasses
import os
import pathlib
import shutil
import sys
import tempfile
from typing import Any
import weakref

import numpy as np

from episodic_dp import accounting
from episodic_dp import backends
from episodic_dp import data
from episodic_dp import errors
from episodic_dp import export
from episodic_dp import models
from episodic_dp import plan
from episodic_dp import training
from episodic_dp.config import solving
from episodic_dp.config.presets import own_data
from episodic_dp.export import writing
from episodic_dp.models import builder
from episodic_dp.output import files
from episodic_dp.plan import labels as labels_lib
from episodic_dp.run import Run

_LEVELS = ("person", "class", "example")


@dataclasses.dataclass(kw_only=True, eq=False)
class FewShotClassifier:
  """A prototypical network, trained with privacy for each person.

  Snell, Swersky and Zemel, "Prototypical Networks for Few-shot Learning" (NIPS
  2017). For features the network is by default a linear map that begins as the
  identity, so that untrained it is the nearest class mean.

  Batch normalisation takes the moments of generated images, which are public,
  and of a tenth of each image's own.

  Every step samples people by Poisson sampling, `way` classes of each, and
  `shot` + 1 examples of each class. People with fewer contribute nothing. The
  numbers of classes and examples of each person are public by assumption.

  Attributes:
    epsilon: budget of a person over all steps, above 0.
    delta: delta of the guarantee; None for the largest power of ten below
      1 / (10 N), for N people.
    way: number of classes of a training task, at least 2.
    shot: number of support examples of a class in training, at least 1.
    start: public weights to start from: "glyphs", "scenes" or a file for
      images, "none" for random weights; "auto" for the start of the library
      that fits the network and the colours of the images, if any does.
    network: "conv4", "features" or another network of the library, or
      MODULE:FUNCTION of your own, imported as for --config.model.name; None for
      "conv4" on images and "features" on features.
    steps: number of training steps.
    rate: probability that a step samples a person.
    workdir: folder of the run, its checkpoints and its secret key, from which
      an interrupted `fit` resumes; None for a temporary folder.
  """

  epsilon: float = 2.0
  delta: float | None = None
  way: int = 5
  shot: int = 1
  start: str = "auto"
  network: str | None = None
  steps: int = 60
  rate: float = 0.5
  workdir: str | os.PathLike[str] | None = None

  def fit(self, images: Any, labels: Any, people: Any) -> "FewShotClassifier":
    """Train on private examples, and return the estimator.

    Args:
      images: uint8[n, H, W], [n, H, W, 1] or [n, H, W, 3]; or features,
        float[n, features], scaled by public numbers.
      labels: [n] classes, numbers or text; the labels of different people are
        unrelated.
      people: [n] numbers or text, the person of each example.

    Raises:
      DataError: an array has a wrong shape or type; or a label or a person is
        missing, not exact, or alike another one (see `Hierarchy.from_labels`).
      PlanError: an option is out of range, or epsilon cannot be reached.
      RunError: the work directory cannot be used.
    """
    backends.ask_for_cores()
    train = _dataset(np.asarray(images), labels, people)
    run, _ = solving.spend(self._run(train), self.epsilon)
    place = tempfile.mkdtemp()
    weakref.finalize(self, shutil.rmtree, place, ignore_errors=True)
    workdir = self.workdir or pathlib.Path(place, "run")
    for line in training.train(run.build(train=train), workdir).warnings:
      print(line.strip(), file=sys.stderr)
    self._exported = pathlib.Path(place, "model")
    writing.write(workdir, self._exported)
    self._predictor = export.Predictor.load(
        self._exported, model=builder.imported(run.model)
    )
    return self

  def adapt(self, images: Any, labels: Any) -> "FewShotClassifier":
    """Adapt to labelled examples of any classes, and return the estimator.

    Args:
      images: examples as in `fit`, [k, ...].
      labels: [k] classes, numbers or text.

    Raises:
      RunError: the estimator is not fitted.
      DataError: an example cannot be used, or there is only one class.
    """
    self._adapted = self._of("_predictor", "fit").adapt(images, labels)
    return self

  def predict(self, images: Any) -> np.ndarray:
    """Return the most probable class of each example, [n], as in `adapt`.

    A prediction depends on the fitted model, the examples of `adapt` and its
    own example, not on the others of the call.

    Args:
      images: examples as in `fit`, [n, ...].

    Raises:
      RunError: the estimator is not adapted.
      DataError: an example cannot be used.
    """
    found = self._of("_adapted", "adapt").predict(images).labels
    return labels_lib.read("predictions", found)

  def score(self, images: Any, labels: Any) -> float:
    """Return the share of examples that `predict` classifies correctly.

    Args:
      images: examples as in `fit`, [n, ...].
      labels: [n], their classes.

    Raises:
      RunError, DataError: as in `predict`; or the labels are not as many, or
        of another type than those of `adapt`.
    """
    found, truth = self.predict(images), labels_lib.read("labels", labels)
    kinds = [labels_lib.kind_of(label) for label in (*found[:1], *truth[:1])]
    if len(found) != len(truth) or len(set(kinds)) > 1:
      raise errors.DataError(
          f"there are {len(found)} images and {len(truth)} labels, and the"
          f" first labels of adapt and score are {' and '.join(kinds)}: give"
          " one label for each image, of one type in both"
      )
    return float(np.mean(found == truth))

  @property
  def guarantee(self) -> accounting.Guarantee:
    """Return a person's guarantee, as stated; RunError if nothing is fitted."""
    stated = self._of("_predictor", "fit").statement
    ledger = accounting.Ledger.from_dict(stated)
    return ledger.guarantee(_LEVELS[0], delta=stated["delta"]).of_run(
        seeded=stated["fixed_seed"], started=stated["start"] is not None
    )

  def save(self, path: str | os.PathLike[str]) -> None:
    """Write the model and its privacy statement as a new folder.

    Raises:
      RunError: the estimator is not fitted.
      FileExistsError: the folder exists.
    """
    shutil.copytree(self._of("_exported", "fit"), files.path_of(path))

  @classmethod
  def load(
      cls,
      path: str | os.PathLike[str],
      *,
      model: Callable[..., models.Model] | None = None,
  ) -> "FewShotClassifier":
    """Read a folder written by `save`; its statement is computed again.

    Args:
      path: path of the folder.
      model: the function of a network of your own, for a folder that names one.
        Nothing is imported by the name in a folder.

    Raises:
      RunError, PlanError: a file is missing or changed, or `model` is missing.
    """
    found = cls()
    found._exported = files.path_of(path)
    found._predictor = export.Predictor.load(path, model=model)
    return found

  def get_params(self, deep: bool = True) -> dict[str, Any]:
    """Return name -> value of every option."""
    return {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}

  def set_params(self, **values: Any) -> "FewShotClassifier":
    """Set options, and return the estimator.

    Raises:
      PlanError: there is no such option.
    """
    for name, value in values.items():
      if name not in self.get_params():
        raise errors.PlanError(
            f"{name!r} is no option: expected one of"
            f" {', '.join(self.get_params())}"
        )
      setattr(self, name, value)
    return self

  def _of(self, name: str, method: str) -> Any:
    if not hasattr(self, name):
      raise errors.RunError(f"call {method} first")
    return getattr(self, name)

  def _run(self, train: data.ArrayDataset) -> Run:
    """Describe the run."""
    features = train.images.dtype != np.uint8
    run = own_data.own_data(
        levels=_LEVELS, way=self.way, shot=self.shot, steps=self.steps,
        rate=self.rate, start=self.start,
    ).replace({
        "hierarchy": train.hierarchy,
        "delta": self.delta,
        "model.name": self.network or ("features" if features else "conv4"),
    })
    run = run.replace({"model": run.model.with_start(train.image_shape[-1])})
    if run.model.start is None:  # The preset's scale is that of a start.
      run = run.replace({"learner.metric_scale": 1.0})
    return run.resolved()


def _dataset(images: np.ndarray, labels: Any, people: Any) -> data.ArrayDataset:
  """Return the examples with the tree of people and their classes."""
  labels = labels_lib.read("labels", labels)
  people = labels_lib.read("people", people)
  if not len(images) == len(labels) == len(people):
    raise errors.DataError(
        f"images, labels and people have {len(images)}, {len(labels)} and"
        f" {len(people)} rows: give one label and one person for each image"
    )
  if images.dtype != np.uint8 and images.ndim > 2:
    raise errors.DataError(
        f"images are {images.dtype} of shape {images.shape}: give images as"
        " uint8, such as (255 * values).round().astype('uint8') of values from"
        " 0 to 1, and features as float32 [n, features]"
    )
  if images.ndim == 3:
    images = images[..., None]
  if images.dtype.kind == "f":
    images = images.astype(np.float32)
  return data.ArrayDataset(
      name="arrays",
      images=images,
      hierarchy=plan.Hierarchy.from_labels(
          dict(zip(_LEVELS, (people, labels))), leaf=_LEVELS[-1]
      ),
  )
