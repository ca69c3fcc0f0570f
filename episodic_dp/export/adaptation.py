"""What `episodic-dp adapt` does: adapts to a folder and classifies another.

Nothing protects the images that are given here: a guarantee is about the data
that the model was trained on.
"""

import csv
import dataclasses
import io
import math
import os
import pathlib

import numpy as np

from episodic_dp.export import description
from episodic_dp.export import image_folders
from episodic_dp.export import pictures
from episodic_dp.export import preprocessing
from episodic_dp.export.predictor import Predictions
from episodic_dp.export.predictor import Predictor
from episodic_dp.output import files
from episodic_dp.output import phases
from episodic_dp.output import quoting

PREDICTIONS, CONFUSION, SHEET = (
    "predictions.csv", "confusion.png", "contact_sheet.png",
)  # fmt: skip
_NORMAL = 1.96  # Of a 95 % interval.


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Result:
  """What was found of a query folder.

  Attributes:
    names: of the examples, below the folder.
    labels: their classes, or None where the folder says none.
    predictions: of all of them.
    shots: class -> how many support images it had.
    written: the files.
    backgrounds: "support" and "query" -> "light" or "dark", where the images of
      that folder look alike.
  """

  names: list[str]
  labels: tuple[str, ...] | None
  predictions: Predictions
  shots: dict[str, int]
  written: list[pathlib.Path]
  backgrounds: dict[str, description.Background]

  @property
  def right(self) -> np.ndarray | None:
    """bool[n], whether each is named rightly; None without labels."""
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
  """Adapts to `support`, classifies `query`, and writes what was found to out.

  Args:
    predictor: the model.
    support: a folder of images for each class.
    query: images, or a folder of them for each class of the support.
    out: the folder of the results: predictions.csv, of images a contact sheet,
      and where classes are known the confusion matrix. Those of an earlier call
      are removed first.
    invert: turn images from light to dark first.

  Raises:
    RunError, ValueError: something cannot be used; one sentence, and nothing
      was written.
    WriteError: a file cannot be written; those before it are whole.
  """
  how = predictor.description.preprocessing
  if invert:
    how = dataclasses.replace(how, inverted=not how.inverted)
  listed = image_folders.support(support)
  asked = image_folders.query(query, listed.classes)
  assert listed.labels is not None
  predictor.check_way(len(listed.classes))
  files.check_folder(out)
  rows = image_folders.rows(listed, how)
  queries = image_folders.rows(asked, how)
  with phases.phase("adapting and classifying"):
    adapted = predictor.adapt_rows(rows, listed.labels)
    predictions = adapted.predict_rows(queries)
  place = pathlib.Path(out)
  for name in (PREDICTIONS, CONFUSION, SHEET):
    files.remove(place / name)  # None of another query beside these.
  names = asked.names
  files.write_text(
      place / PREDICTIONS, _table(names, asked.labels, predictions)
  )
  written = [place / PREDICTIONS]
  if asked.labels is not None:
    pictures.confusion(asked.labels, predictions, place / CONFUSION)
    written.append(place / CONFUSION)
  if how.kind == "image":
    pictures.contact_sheet(
        queries, names, asked.labels, predictions, place / SHEET
    )
    written.append(place / SHEET)
  labels = list(listed.labels)
  return Result(
      names=names,
      labels=asked.labels,
      predictions=predictions,
      shots={name: labels.count(name) for name in listed.classes},
      written=written,
      backgrounds={
          folder: found
          for folder, those in (("support", rows), ("query", queries))
          if (found := preprocessing.background(how, those)) is not None
      },
  )


def wilson(right: int, count: int) -> tuple[float, float]:
  """The 95 % interval of a share, of images that were drawn alone.

  Wilson, "Probable Inference, the Law of Succession, and Statistical Inference"
  (1927): it stays within 0 and 1 and holds for few images too.
  """
  share, z = right / count, _NORMAL
  middle = share + z * z / (2 * count)
  half = z * math.sqrt(
      share * (1 - share) / count + z * z / (4 * count * count)
  )
  scale = 1 + z * z / count
  return max(0.0, (middle - half) / scale), min(1.0, (middle + half) / scale)


def _table(
    names: list[str],
    labels: tuple[str, ...] | None,
    predictions: Predictions,
) -> str:
  """predictions.csv: a line for each example."""
  lines: list[list[object]] = []
  head = ["file", *(["label"] if labels else []), "prediction", "probability"]
  lines.append([*head, *(f"p({name})" for name in predictions.classes)])
  for number, (name, found) in enumerate(zip(names, predictions.labels)):
    values = predictions.probabilities[number]
    given = [labels[number]] if labels else []
    lines.append([
        name, *given, found, f"{values.max():.6f}",
        *(f"{p:.6f}" for p in values),
    ])  # fmt: skip
  buffer = io.StringIO()
  # A name may hold anything, also what no text file can.
  csv.writer(buffer, lineterminator="\n").writerows(
      [quoting.printable(str(cell)) for cell in line] for line in lines
  )
  return buffer.getvalue()
