"""Writes a trained run as a folder that says all of itself.

  episodic-dp export --workdir=RUN --out=DIR \\
      [--checkpoint=last|best|ensemble] [--signing_key=FILE] [--data_dir=DATA]

DIR holds the weights (safetensors), model.json (network, learner,
preprocessing), the privacy statement, a model card and the digests of all of
them, and with --signing_key (episodic-dp sign --new_key=FILE makes one) a
signature. It is written whole or not at all. The secret key of the run, its
private diagnostics and the names of its classes stay where they are.

The statement is computed again first. A run without a guarantee is exported
with --without_guarantee alone, and the card says so. Of the data the shape is
read, and the background of public test images. `episodic-dp adapt --model=DIR`
and export.Predictor.load(DIR) use it.
"""

from collections.abc import Sequence
import math
import shlex

from absl import flags

from episodic_dp.accounting import report
from episodic_dp.cli import shared_flags
from episodic_dp.export import folder
from episodic_dp.export import writing
from episodic_dp.training import remote


def define_flags() -> None:
  """Of the run, and of what leaves."""
  shared_flags.define_workdir("Folder of a run of episodic-dp train.")
  shared_flags.define_out("The folder to make.", required=True)
  shared_flags.define_data()
  flags.DEFINE_enum(
      "checkpoint",
      "last",
      writing.CHOICES,
      "Which: the last, the best on public validation tasks, or up to five of"
      " the best together.",
  )
  flags.DEFINE_string(
      "signing_key", None, "Your private key (PEM, Ed25519) to sign with."
  )
  flags.DEFINE_string(
      "license", None, "The licence that the card names, such as apache-2.0."
  )
  flags.DEFINE_bool(
      "without_guarantee", False, "Export a run that has no guarantee."
  )


def main(argv: Sequence[str]) -> None:
  """Writes the folder, and says what it is."""
  del argv
  values = flags.FLAGS
  with remote.fetched(values.workdir) as workdir:
    done = writing.write(
        workdir,
        values.out,
        checkpoint=values.checkpoint,
        signing_key=values.signing_key,
        without_guarantee=values.without_guarantee,
        terms=values.license,
        data_dir=values.data_dir,
        download=values.download,
    )
  found = done.description
  step = "steps" if found.steps[1:] else "step"
  steps = ", ".join(map(str, found.steps))
  print(
      f"{values.out}: {found.network.name} by {found.learner.name},"
      f" {found.parameters} numbers, of {step} {steps}"
  )
  for level, stated in done.guarantees.items():
    said = "no guarantee"
    if math.isfinite(float(stated["epsilon"])):
      epsilon = report.rounded_up(float(stated["epsilon"]))
      said = f"epsilon = {epsilon} at delta = {stated['delta']:g}"
    print(f"  {level}: {said}")
  for level in done.unproved:
    print(f"  {level}: no guarantee")
  for caveat in dict.fromkeys(
      s["caveat"] for s in done.guarantees.values() if s["caveat"]
  ):
    print(f"  {caveat}")
  if done.evaluation is None:
    again = [f"--workdir={values.workdir}"]
    if values.data_dir is not None:
      again.append(f"--data_dir={values.data_dir}")
    print(
        "  not measured on test tasks: for a card with an accuracy run"
        f" episodic-dp evaluate {shlex.join(again)}, and export it again into"
        " another --out"
    )
  if done.public_key is not None:
    print(
        f"  signed by the key {done.public_key}: episodic-dp verify"
        f" {values.out}/{folder.STATEMENT} --public_key=KEY.pub"
        f" --weights={values.out}/{folder.DIGESTS}"
    )
