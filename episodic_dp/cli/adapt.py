"""Adapt an exported model to a folder of images, and classify another.

  episodic-dp adapt --model=DIR --support=FOLDER --query=FOLDER --out=OUT \\
      [--epsilon=1 [--delta=1e-5] [--public=FOLDER] [--classes=A,B]] \\
      [--invert] [--backbone=FILE] [--format=onnx]

DIR is a folder that episodic-dp export wrote. The command compares it with its
digests and computes its privacy statement again. --support holds one folder of
images for each class. --query holds images, or a folder of images for each
class; then the command prints the share of correct predictions with its 95 %
interval. Images may have any format and size.

The command writes OUT/predictions.csv: a line for each image, with the
probability of every class. If the classes of the images are known, it prints a
table of them against the predicted classes.

With --format=onnx it also writes OUT/classifier.onnx, the adapted model as one
file, which ONNX Runtime computes without this library: examples in,
probabilities out. Its metadata name the classes and hold the statements.

The model's guarantee covers the data that it was trained on. Without --epsilon
the images of --support are not protected from anyone who sees the results.

With --epsilon they get a guarantee of their own. --support then may hold a
folder for each person, with a folder for each class inside; all images of a
person are protected together, otherwise each image. The command makes class
prototypes under noise, once, and classifies by them. OUT/adapted is the model
with these prototypes and both privacy statements: --model=OUT/adapted without
--support classifies again, and costs nothing more. Each further --epsilon on
the same people is another release, whose cost adds up. The names of the classes
are public. Images of --query are not protected.
"""

import collections
from collections.abc import Mapping
from typing import Any

from absl import flags
import scipy

from episodic_dp.accounting import report
from episodic_dp.cli import app
from episodic_dp.cli import shared_flags
from episodic_dp.export import adaptation
from episodic_dp.export import onnx_graph
from episodic_dp.export.predictor import Predictor
from episodic_dp.output import files
from episodic_dp.output import tables


def define_flags() -> None:
  """Define the flags of the model and of the folders."""
  flags.DEFINE_string(
      "model", None, "Folder of an exported model.", required=True
  )
  flags.DEFINE_string(
      "support", None,
      "Folder with a folder of images for each class; with --epsilon also one"
      " for each person, with these inside. An adapted model needs none.",
  )
  flags.DEFINE_string(
      "query", None, "Folder of the images to classify.", required=True
  )
  shared_flags.define_out("Folder of the results.", required=True)
  flags.DEFINE_string(
      "backbone", None, "ONNX file of the backbone, if the model lacks it."
  )
  flags.DEFINE_bool("invert", False, "Exchange light and dark before all else.")
  flags.DEFINE_float(
      "epsilon", None, "Budget of a person, or an image, of --support."
  )
  flags.DEFINE_float(
      "delta", None,
      "Delta of --epsilon; by default the largest power of ten below"
      " 1 / (10 N).",
  )
  flags.DEFINE_string(
      "public", None,
      "With --epsilon, folder of public images of the same kind, whose mean"
      " embedding is the centre; by default generated images.",
  )
  flags.DEFINE_list(
      "classes", None,
      "With --epsilon, all public names of classes; by default the folders'.",
  )
  shared_flags.define_neighbours()
  shared_flags.define_format(("none", "onnx"), "of the adapted model")


def main(values: flags.FlagValues) -> None:
  """Classify, and print the results."""
  for flag in ("model", "support", "query"):
    place = values[flag].value
    if place is not None:
      files.check_outside(values.out, str(place), f"--{flag}")
  query = files.path_of(values.query).resolve()
  if values.support and query == files.path_of(values.support).resolve():
    app.fail(
        "--query is the folder of --support: give other images, which a model"
        " cannot have seen"
    )
  names = ("delta", "public", "classes")
  given = {name: values[name].value for name in names}
  terms = {}
  if values.epsilon is not None and values.support is not None:
    terms = given | {
        "epsilon": values.epsilon, "neighbours": values.neighbours,
    }
  elif (
      values.epsilon is not None
      or any(given.values())
      or values["neighbours"].present
  ):
    app.fail(
        "--delta, --public, --classes and --neighbours need --epsilon, and"
        " --epsilon needs --support: give both, or leave them out"
    )
  predictor = Predictor.load(values.model, backbone=values.backbone)
  result = adaptation.adapt(
      predictor, values.support, values.query, values.out,
      invert=values.invert, **terms,
  )
  if values.format == "onnx":
    path = files.path_of(values.out) / "classifier.onnx"
    onnx_graph.write(path, result.adapted)
    print(f"wrote {path}")
  print("\n".join(_lines(predictor, result)))


def _lines(predictor: Predictor, result: adaptation.Classified) -> list[str]:
  """Write the predictions, the accuracy and the guarantees."""
  pairs = collections.Counter(
      zip(result.query.labels, map(str, result.predictions.labels))
  )
  classes = [*map(str, result.predictions.classes)]
  table = [("unknown", *(pairs["", c] for c in classes))]
  if result.query.classes:
    table = [(row, *(pairs[row, c] for c in classes)) for row in classes]
  lines = [
      "images by class (rows) and prediction (columns)",
      tables.text(("class", *classes), table),
      "",
  ]
  if result.query.classes:
    right, total = sum(pairs[c, c] for c in classes), pairs.total()
    test = scipy.stats.binomtest(right, total)
    low, high = test.proportion_ci(method="wilson")
    lines.append(
        f"accuracy {100 * right / total:.1f} % (95 % interval"
        f" {100 * low:.1f} to {100 * high:.1f} %): {right} of"
        f" {total} images, chance {100 / len(classes):.0f} %"
    )
  lines.append(f"wrote {result.path}")
  lines += _stated("model", "its training data", predictor.guarantees)
  if result.adapted.released is not None:
    found = result.adapted.released.statement["guarantees"]
    lines += _stated("adaptation", "the support", found)
  return lines


def _stated(
    what: str, of: str, guarantees: Mapping[str, Mapping[str, Any]]
) -> list[str]:
  """Write the guarantees of a statement, and their caveats."""
  stated = [g for g in guarantees.values() if g["epsilon"] != "inf"]
  lines = [
      f"{what}: epsilon = {report.rounded_up(float(g['epsilon']))} at delta ="
      f" {report.rounded_delta(g['delta'])} ({g['neighbours']}, of {of})"
      for g in stated
  ] or [f"{what}: no privacy guarantee"]
  return [*lines, *map("  {}".format, report.stated_caveats(stated))]
