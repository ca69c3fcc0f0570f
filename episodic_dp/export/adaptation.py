"""Adapt an exported model to a folder of examples, and classify another.

The readers of own data read the folders: one folder for each class, or a flat
folder, or a folder for each person with one for each class. Without `epsilon`
these images are not protected: the guarantee of a model covers the data that it
was trained on.
"""

from collections.abc import Iterator
import csv
import io
import os
import pathlib
from typing import Any, NamedTuple

from episodic_dp.data.own_data import readers
from episodic_dp.data.own_data import trees
from episodic_dp.errors import DataError
from episodic_dp.errors import RunError
from episodic_dp.export import folder
from episodic_dp.export.predictor import Adapted
from episodic_dp.export.predictor import Predictions
from episodic_dp.export.predictor import Predictor
from episodic_dp.output import files
from episodic_dp.output import phases
from episodic_dp.output import quoting
from episodic_dp.plan import labels as labels_lib

PREDICTIONS, ADAPTED = "predictions.csv", "adapted"


class ListedFolder(NamedTuple):
  """The examples of a folder, listed but not read.

  Attributes:
    root: the folder.
    names: the examples, in ascending order.
    labels: the class of each, the name of its folder; "" in a flat folder.
    people: the person of each, or None.
  """

  root: pathlib.Path
  names: list[str]
  labels: list[str]
  people: list[str] | None = None

  @property
  def classes(self) -> list[str]:
    """Return the names of the classes, sorted; none for a flat folder."""
    return sorted({*self.labels} - {""})


class Classified(NamedTuple):
  """Predictions for a query folder.

  Attributes:
    query: its examples.
    predictions: class probabilities of all of them.
    adapted: the adapted model.
    path: path of predictions.csv.
  """

  query: ListedFolder
  predictions: Predictions
  adapted: Adapted
  path: pathlib.Path


def listed(
    path: str | os.PathLike[str], *, people: bool = False
) -> ListedFolder:
  """List a flat folder of examples, or one with a folder for each class.

  Args:
    path: the folder.
    people: whether it may hold a folder for each person with these inside.

  Raises:
    DataError, OSError: it has another form; one sentence that names
      the place.
  """
  root = files.path_of(path)
  if not root.is_dir():
    fault = "is no folder" if root.exists() else "does not exist"
    raise DataError(f"{root} {fault}: give a folder of images")
  found = trees.scan(root)
  names = found.files
  if not names:
    raise DataError(
        f"{root} holds no file that can be read (such as .png, .jpg or .npy):"
        " give a folder of images"
    )
  depths = [len(owner) for owner in found.owners]
  by_person = people and {*depths} == {2}
  if {*depths} not in ({0}, {1}) and not by_person:
    wrong = next(name for name, depth in zip(names, depths) if depth != 1)
    raise DataError(
        f"{root / wrong} is at folder depth {wrong.count(os.sep)}: give a"
        " folder of images for each class, or images alone"
    )
  parts = [*zip(*found.owners)]  # People and classes, classes, or nothing.
  for part in parts:
    labels_lib.check_names(lambda _: f"a folder in {root}", part)
  if by_person:
    return ListedFolder(root, names, [*parts[1]], [*parts[0]])
  labels = ["".join(owner) for owner in found.owners]
  return ListedFolder(root, names, labels)


def read(
    shown: ListedFolder, *, invert: bool = False
) -> Iterator[readers.Example]:
  """Yield every example of a folder; each is read when asked for.

  Args:
    shown: the folder.
    invert: whether to exchange light and dark of images.

  Raises:
    DataError: an example cannot be read; names the file.
  """
  with phases.progress(len(shown.names), "image") as progress:
    for name in shown.names:
      example = readers.read(shown.root / name)
      if invert and example.image:
        example = example._replace(
            values=example.white - example.values, inverted=True
        )
      yield example
      progress.update()


def adapt(
    predictor: Predictor,
    support: str | os.PathLike[str] | None,
    query: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    invert: bool = False,
    public: str | os.PathLike[str] | None = None,
    **terms: Any,
) -> Classified:
  """Adapt to `support`, classify `query`, and write the predictions.

  Args:
    predictor: the model.
    support: a folder of images for each class; with epsilon also one for each
      person, with these inside. None for a model that is adapted already.
    query: images, or a folder of them for each class of the support.
    out: receives predictions.csv and, with epsilon, the adapted model.
    invert: whether to exchange light and dark first.
    public: with epsilon, a folder of public images, or None.
    **terms: none, or epsilon and others of `Predictor.adapt`.

  Raises:
    DataError: an input cannot be used; one sentence, and nothing is
      written.
    PlanError, UnsoundPlanError: as in `Predictor.adapt`.
    OSError: a file cannot be written.
  """
  asked = listed(query)
  shown, adapted = None, predictor.adapted
  if support is not None:
    shown = listed(support, people=bool(terms))
    if not shown.classes:
      raise DataError(
          "the support images are of 1 class: give images of at least two"
          " classes; files need a folder for each class"
      )
    classes = terms.get("classes") or shown.classes
  elif adapted is None:
    raise RunError(
        "the model holds no classes that it was adapted to: give --support, a"
        " folder of images for each class"
    )
  else:
    classes = [*map(str, adapted.classes)]
  for name in sorted({*asked.classes} - {*classes}):
    known = ", ".join(map(quoting.printable, classes))
    raise DataError(
        f"{asked.root / quoting.printable(name)} is not a class of the support"
        f" ({known}): add it there, or put all images right into {asked.root},"
        " to classify them without labels"
    )
  files.check_folder(out)
  place = files.path_of(out) / ADAPTED
  if terms:
    if (place / folder.ADAPTATION).exists():
      raise RunError(
          f"{place} is adapted already, and to adapt again costs the same"
          f" people again: classify with --model={place} and without --support,"
          " or give another --out"
      )
    files.check_new_folder(place)
  if public is not None:
    terms["public"] = read(listed(public), invert=invert)
  if shown is not None:
    with phases.phase(f"reading and adapting to {shown.root}"):
      adapted = predictor.adapt(
          read(shown, invert=invert), shown.labels, shown.people, **terms
      )
      if terms:
        adapted.save(place)
  assert adapted is not None  # Of the support, or of the folder.
  with phases.phase(f"reading and classifying {asked.root}"):
    predictions = adapted.predict(read(asked, invert=invert))
  path = files.path_of(out) / PREDICTIONS
  files.write_text(path, _table(asked, predictions))
  return Classified(asked, predictions, adapted, path)


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
