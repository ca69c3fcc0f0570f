"""Adapt an exported model to a folder of images, and classify another.

  episodic-dp adapt --model=DIR --support=FOLDER --query=FOLDER --out=OUT \\
      [--invert]

DIR is a folder that episodic-dp export wrote. The command compares it with its
digests and computes its privacy statement again. --support holds one folder of
images for each class. --query holds images, or a folder of images for each
class; then the command prints the share of correct predictions with its 95 %
interval. Images may have any format and size.

The command writes OUT/predictions.csv: a line for each image, with the
probability of every class. If the classes of the images are known, it prints a
table of them against the predicted classes.

The model's guarantee covers the data that it was trained on. These images are
not protected from anyone who sees the results.
"""

import collections

from absl import flags
import scipy

from episodic_dp.accounting import report
from episodic_dp.cli import shared_flags
from episodic_dp.export import adaptation
from episodic_dp.export.predictor import Predictor
from episodic_dp.output import files
from episodic_dp.output import tables


def define_flags() -> None:
  """Define the flags of the model and of the folders."""
  flags.DEFINE_string(
      "model", None, "Folder of an exported model.", required=True
  )
  flags.DEFINE_string(
      "support", None, "Folder with a folder of images for each class.",
      required=True,
  )
  flags.DEFINE_string(
      "query", None, "Folder of the images to classify.", required=True
  )
  shared_flags.define_out("Folder of the results.", required=True)
  flags.DEFINE_bool("invert", False, "Exchange light and dark before all else.")


def main(values: flags.FlagValues) -> None:
  """Classify, and print the results."""
  for flag in ("model", "support", "query"):
    files.check_outside(values.out, str(values[flag].value), f"--{flag}")
  predictor = Predictor.load(values.model)
  result = adaptation.adapt(
      predictor, values.support, values.query, values.out, invert=values.invert
  )
  print("\n".join(_lines(predictor, result)))


def _lines(predictor: Predictor, result: adaptation.Classified) -> list[str]:
  """Write the predictions, the accuracy and the guarantees of the model."""
  pairs = collections.Counter(
      zip(result.query.labels, result.predictions.labels)
  )
  classes = [*result.shots]
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
        f" {total} images, chance {100 / len(result.shots):.0f} %"
    )
  lines.append(f"wrote {result.path}")
  stated = [g for g in predictor.guarantees.values() if g["epsilon"] != "inf"]
  lines += [
      f"model: epsilon = {report.rounded_up(float(g['epsilon']))} at delta ="
      f" {g['delta']:g} ({g['neighbours']}, of its training data)"
      for g in stated
  ] or ["model: no privacy guarantee"]
  caveats = dict.fromkeys(g["caveat"] for g in stated if g["caveat"])
  return [*lines, *(f"  {caveat}" for caveat in caveats)]
