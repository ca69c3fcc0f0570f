"""Adapt an exported model to a folder of examples, and classify another.

The readers of own data read the folders: one folder for each class, or a flat
folder. These images are not protected: a guarantee covers the data that the
model was trained on.
"""

import collections
from collections.abc import Iterator
import csv
import io
import os
import pathlib
from typing import NamedTuple

import numpy as np

from episodic_dp import errors
from episodic_dp.data.own_data import readers
from episodic_dp.data.own_data import trees
from episodic_dp.export import folder
from episodic_dp.export import preprocessing
from episodic_dp.export.predictor import Predictions
from episodic_dp.export.predictor import Predictor
from episodic_dp.output import files
from episodic_dp.output import phases
from episodic_dp.output import quoting
from episodic_dp.plan import labels as labels_lib

PREDICTIONS = "predictions.csv"


class ListedFolder(NamedTuple):
  """The examples of a folder, listed but not read.

  Attributes:
    root: the folder.
    names: the examples, in ascending order.
    labels: the class of each, the name of its folder; "" in a flat folder.
  """

  root: pathlib.Path
  names: list[str]
  labels: list[str]

  @property
  def classes(self) -> list[str]:
    """Return the names of the classes, sorted; none for a flat folder."""
    return sorted({*self.labels} - {""})


class Classified(NamedTuple):
  """Predictions for a query folder.

  Attributes:
    query: its examples.
    predictions: class probabilities of all of them.
    shots: class -> number of its support images.
    path: path of predictions.csv.
  """

  query: ListedFolder
  predictions: Predictions
  shots: dict[str, int]
  path: pathlib.Path


def listed(path: str | os.PathLike[str]) -> ListedFolder:
  """List a flat folder of examples, or one with a folder for each class.

  Raises:
    DataError, OSError: it has another form; one sentence that names
      the place.
  """
  root = files.path_of(path)
  found = trees.scan(root)
  names = found.files
  if not names:
    raise errors.DataError(
        f"{root} holds no file that can be read (such as .png, .jpg or .npy):"
        " give a folder of images"
    )
  depths = [len(owner) for owner in found.owners]
  if {*depths} not in ({0}, {1}):
    wrong = next(name for name, depth in zip(names, depths) if depth != 1)
    raise errors.DataError(
        f"{root / wrong} is {wrong.count(os.sep)} folders deep: give a folder"
        " of images for each class, or images alone"
    )
  labels = ["".join(owner) for owner in found.owners]
  labels_lib.check_names(lambda _: f"a folder in {root}", labels)
  return ListedFolder(root, names, labels)


def read(
    how: folder.Preprocessing, shown: ListedFolder, *, invert: bool = False
) -> Iterator[np.ndarray]:
  """Yield every example of a folder as a row; each is read when asked for.

  Raises:
    DataError: an example cannot be read, or has another form; names the file.
  """
  with phases.progress(len(shown.names), "image") as progress:
    for name in shown.names:
      example = readers.read(shown.root / name)
      yield preprocessing.row(how, example, invert=invert)
      progress.update()


def adapt(
    predictor: Predictor,
    support: str | os.PathLike[str],
    query: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    invert: bool = False,
) -> Classified:
  """Adapt to `support`, classify `query`, and write the predictions.

  Args:
    predictor: the model.
    support: a folder of images for each class.
    query: images, or a folder of them for each class of the support.
    out: receives predictions.csv.
    invert: whether to exchange light and dark first.

  Raises:
    DataError: an input cannot be used; one sentence, and nothing is
      written.
    OSError: the file cannot be written.
  """
  shown, asked = listed(support), listed(query)
  for name in sorted({*asked.classes} - {*shown.classes}):
    known = ", ".join(map(quoting.printable, shown.classes))
    raise errors.DataError(
        f"{asked.root / quoting.printable(name)} is not a class of the support"
        f" ({known}): add it there, or put all images right into {asked.root},"
        " to classify them without labels"
    )
  files.check_folder(out)
  how = predictor.description.preprocessing
  with phases.phase(f"reading and adapting to {shown.root}"):
    adapted = predictor.adapt_rows(
        np.stack([*read(how, shown, invert=invert)]), shown.labels
    )
  with phases.phase(f"reading and classifying {asked.root}"):
    predictions = adapted.predict_rows(read(how, asked, invert=invert))
  path = files.path_of(out) / PREDICTIONS
  files.write_text(path, _table(asked, predictions))
  counts = collections.Counter(shown.labels)
  shots = {name: counts[name] for name in shown.classes}
  return Classified(asked, predictions, shots, path)


def _table(asked: ListedFolder, predictions: Predictions) -> str:
  """Write predictions.csv: a line for each example."""
  lines = [[
      "file", *(["label"] if asked.classes else []), "prediction",
      "probability", *(f"p({name})" for name in predictions.classes),
  ]]
  for name, label, found, values in zip(
      asked.names, asked.labels, predictions.labels, predictions.probabilities
  ):
    shown = [f"{p:.6f}" for p in (values.max(), *values)]
    lines.append([name, *([label] if label else []), str(found), *shown])
  buffer = io.StringIO()
  # A name may hold any character, including some that text files cannot.
  csv.writer(buffer, lineterminator="\n").writerows(
      map(quoting.printable, line) for line in lines
  )
  return buffer.getvalue()
