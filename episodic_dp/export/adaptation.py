"""Adapt an exported model to a folder of examples, and classify another.

Folders are read by the readers of own data: a folder for each class, or flat.
Nothing protects the images that are given here: a guarantee covers the data
that the model was trained on.
"""

from collections.abc import Sequence
import csv
import dataclasses
import io
import os
import pathlib

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

PREDICTIONS = "predictions.csv"


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Listing:
  """The examples of a folder, before any is read.

  Attributes:
    root: the folder.
    names: the examples, in rising order.
    labels: the class of each, the name of its folder; None for a flat folder.
  """

  root: pathlib.Path
  names: list[str]
  labels: tuple[str, ...] | None

  @property
  def classes(self) -> tuple[str, ...]:
    """Return the names of the classes, sorted; none for a flat folder."""
    return tuple(sorted(set(self.labels or ())))

  def rows(self, how: folder.Preprocessing) -> np.ndarray:
    """Read all examples as rows [n, ...].

    Raises:
      ValueError: one cannot be read, or is of another kind; names the file.
    """
    found = []
    with (
        phases.phase(f"reading {self.root}"),
        phases.progress(len(self.names), "image") as progress,
    ):
      for path in (self.root / name for name in self.names):
        example = readers.read(path)
        found.append(preprocessing.row(how, example))
        progress.update()
    return np.stack(found)


def listed(path: str | os.PathLike[str]) -> Listing:
  """List a folder of examples, or of a folder of examples for each class.

  Raises:
    RunError, ValueError: it is neither; one sentence that names the place.
  """
  root = pathlib.Path(path)
  if not root.is_dir():
    raise errors.RunError(f"{root} is no folder: give a folder of images")
  found = trees.scan(root)
  if not found.files:
    raise errors.RunError(
        f"{root} holds no file that is read (such as .png, .jpg, .dcm or .npy):"
        " give a folder of images"
    )
  depths = {len(owner) for owner in found.owners}
  for owner, (name, _) in zip(found.owners, found.files):
    if depths not in ({0}, {1}) and len(owner) != 1:
      raise errors.RunError(
          f"{root / name} is {len(owner)} folders deep: give a folder of images"
          " for each class, or images alone"
      )
  return Listing(
      root=root,
      names=[name for name, _ in found.files],
      labels=(
          tuple(name for (name,) in found.owners) if depths == {1} else None
      ),
  )


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Result:
  """Predictions of a query folder.

  Attributes:
    names: of the examples, below the folder.
    labels: their classes, or None for a flat folder.
    predictions: of all of them.
    shots: class -> number of its support images.
    path: of predictions.csv.
  """

  names: list[str]
  labels: tuple[str, ...] | None
  predictions: Predictions
  shots: dict[str, int]
  path: pathlib.Path

  @property
  def right(self) -> np.ndarray | None:
    """Return whether each is named correctly, bool[n]; None without labels."""
    if self.labels is None:
      return None
    pairs = zip(self.predictions.labels, self.labels, strict=True)
    return np.asarray([found == label for found, label in pairs])


def adapt(
    predictor: Predictor,
    support: str | os.PathLike[str],
    query: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    invert: bool = False,
) -> Result:
  """Adapt to `support`, classify `query`, and write the predictions.

  Args:
    predictor: the model.
    support: a folder of images for each class.
    query: images, or a folder of them for each class of the support.
    out: the folder of predictions.csv.
    invert: exchange light and dark first.

  Raises:
    RunError, ValueError: something cannot be used; one sentence, and nothing
      was written.
    OSError: the file cannot be written.
  """
  how = predictor.description.preprocessing
  if invert:
    how = dataclasses.replace(how, inverted=not how.inverted)
  shown = listed(support)
  if shown.labels is None or len(shown.classes) < 2:
    raise errors.RunError(
        f"{shown.root} has {len(shown.classes)} folders of images: give"
        " --support a folder for each of at least two classes"
    )
  asked = listed(query)
  for name in sorted({*asked.classes} - {*shown.classes}):
    known = ", ".join(map(quoting.printable, shown.classes))
    raise errors.RunError(
        f"{asked.root / quoting.printable(name)} is no class of the support"
        f" ({known}): add it there, or put all images right into {asked.root},"
        " to classify them without labels"
    )
  files.check_folder(out)
  rows, queries = shown.rows(how), asked.rows(how)
  with phases.phase("adapting and classifying"):
    adapted = predictor.adapt_rows(rows, shown.labels)
    predictions = adapted.predict_rows(queries)
  path = pathlib.Path(out) / PREDICTIONS
  files.write_text(path, _table(asked.names, asked.labels, predictions))
  return Result(
      names=asked.names,
      labels=asked.labels,
      predictions=predictions,
      shots={name: shown.labels.count(name) for name in shown.classes},
      path=path,
  )


def _table(
    names: Sequence[str],
    labels: Sequence[str] | None,
    predictions: Predictions,
) -> str:
  """Write predictions.csv: a line for each example."""
  head = ["file", *(["label"] if labels else []), "prediction", "probability"]
  lines = [[*head, *(f"p({name})" for name in predictions.classes)]]
  for number, (name, found) in enumerate(zip(names, predictions.labels)):
    values = predictions.probabilities[number]
    given = [labels[number]] if labels else []
    shown = [f"{p:.6f}" for p in (values.max(), *values)]
    lines.append([name, *given, str(found), *shown])
  buffer = io.StringIO()
  # A name may hold anything, also characters that no text file can.
  csv.writer(buffer, lineterminator="\n").writerows(
      map(quoting.printable, line) for line in lines
  )
  return buffer.getvalue()
