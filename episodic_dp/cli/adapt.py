"""Adapts an exported model to a folder of images, and classifies another.

  episodic-dp adapt --model=DIR --support=FOLDER --query=FOLDER --out=OUT \\
      [--public_key=FILE] [--invert]

DIR is what episodic-dp export wrote: it is compared with its digests first, and
its privacy statement is computed again. --support holds a folder of images for
each class, of any number. --query holds images, or folders of the same names:
then the share that is named rightly is told, with a 95 % interval. Images of
any format and size are read as those of a training run with own data are.

Writes OUT/predictions.csv (a line for each image, with the probability of every
class), OUT/contact_sheet.png, and where classes are known OUT/confusion.png.

The guarantee of the model is about the data that it was trained on. Nothing
protects the images that are given here from whoever sees the results.
"""

from collections.abc import Sequence

from absl import flags

from episodic_dp.accounting import report
from episodic_dp.cli import shared_flags
from episodic_dp.export import adaptation
from episodic_dp.export.predictor import Predictor
from episodic_dp.output import files
from episodic_dp.output import tables


def define_flags() -> None:
  """Of the model and of the two folders."""
  flags.DEFINE_string(
      "model", None, "Folder of an exported model.", required=True
  )
  flags.DEFINE_string(
      "support", None, "Folder of a folder of images for each class.",
      required=True,
  )
  flags.DEFINE_string(
      "query", None, "Folder of the images to classify.", required=True
  )
  shared_flags.define_out("Folder of the results.", required=True)
  flags.DEFINE_string(
      "public_key", None, "The public key (PEM) of who should have signed."
  )
  flags.DEFINE_bool(
      "invert", False, "Turn the images from light to dark, or back, first."
  )


def main(argv: Sequence[str]) -> None:
  """Classifies, and prints what was found."""
  del argv
  values = flags.FLAGS
  for flag in ("model", "support", "query"):
    files.check_outside(values.out, str(values[flag].value), f"--{flag}")
  predictor = Predictor.load(values.model, public_key=values.public_key)
  result = adaptation.adapt(
      predictor,
      values.support,
      values.query,
      values.out,
      invert=values.invert,
  )
  print("\n".join(_lines(predictor, result, values.invert)))


def _lines(
    predictor: Predictor, result: adaptation.Result, invert: bool
) -> list[str]:
  """What is told of a result."""
  said = result.predictions.labels
  header, rows = ["class", "support", "said"], []
  right = result.right
  if result.labels is not None:
    header += ["is", "right"]
  for name, shot in result.shots.items():
    row = [name, shot, said.count(name)]
    if result.labels is not None and right is not None:
      of_class = [r for r, x in zip(right, result.labels) if x == name]
      row += [len(of_class), sum(of_class)]
    rows.append(row)
  lines = [tables.text(header, rows), ""]
  if right is not None:
    low, high = adaptation.wilson(int(right.sum()), len(right))
    lines.append(
        f"accuracy {100 * right.mean():.1f} % (95 % interval"
        f" {100 * low:.1f} to {100 * high:.1f} %): {int(right.sum())} of"
        f" {len(right)} images, chance {100 / len(result.shots):.0f} %"
    )
  lines += [f"wrote {path}" for path in result.written]
  lines += warnings(predictor, result, invert=invert)
  return [*lines, *_guarantee(predictor)]


def warnings(
    predictor: Predictor, result: adaptation.Result, *, invert: bool = False
) -> list[str]:
  """What may be wrong with the images, or with how they are judged.

  Args:
    predictor: the model.
    result: of these images.
    invert: whether they were turned from light to dark, or back.
  """
  lines = []
  known = predictor.description.preprocessing.background
  found = result.backgrounds
  if len(set(found.values())) > 1:
    lines.append(
        f"the images of --support have a {found['support']} background and"
        f" those of --query a {found['query']} one: invert those of one folder"
        " first"
    )
  elif known and found and known not in found.values():
    (other,) = set(found.values())
    lines.append(
        f"the model is of images on a {known} background, and these have a"
        f" {other} one: try the same with{'out' * invert} --invert"
    )
  if predictor.transductive:
    lines.append(
        "the network normalises by the batch: all images of --query were judged"
        " together"
    )
  return lines


def _guarantee(predictor: Predictor) -> list[str]:
  """A line for each level, of the data that the model was trained on."""
  lines = [
      f"model: epsilon = {report.rounded_up(float(g['epsilon']))} at delta ="
      f" {g['delta']:g} ({g['neighbours']}, of its training data)"
      for g in predictor.guarantees.values()
      if g["epsilon"] != "inf"
  ]
  if lines:
    lines += [
        f"model: no guarantee for one {level} of its training data"
        for level in predictor.statement["no_guarantee"]
    ]
  lines = lines or ["model: no privacy guarantee"]
  caveats = dict.fromkeys(
      g["caveat"] for g in predictor.guarantees.values() if g["caveat"]
  )
  if predictor.signed_by is not None:
    lines.append(f"signed by the key {predictor.signed_by}")
  return [*lines, *(f"  {caveat}" for caveat in caveats)]
