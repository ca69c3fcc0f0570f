"""Export a trained run as a folder that others can load, or as one file.

  episodic-dp export --workdir=DIR --out=MODEL [--format=onnx] \\
      [--checkpoint=last|best|ensemble] [--without_guarantee]

MODEL holds the weights, model.json (network, learner, preprocessing), the
privacy statement, a model card with the accuracy of episodic-dp evaluate, and
the digest of every file. It holds nothing private: no key, and no name of a
class or a file. `episodic-dp adapt` and `episodic_dp.export.Predictor` load it
and execute nothing in it. A run without a guarantee needs --without_guarantee,
and its card says so.

With --format=onnx MODEL is one file, which ONNX Runtime computes without this
library: examples in, embeddings out. Its metadata are model.json and the
privacy statement. `episodic-dp adapt --format=onnx` writes a classifier.
"""

import shlex
import tempfile
from typing import Any

from absl import flags

from episodic_dp.accounting import report
from episodic_dp.cli import shared_flags
from episodic_dp.export import onnx_graph
from episodic_dp.export import writing
from episodic_dp.export.predictor import Predictor
from episodic_dp.output import files


def define_flags() -> None:
  """Define the flags of the run and of the folder."""
  shared_flags.define_workdir("Folder of a run of episodic-dp train.")
  shared_flags.define_out("New folder or file of the model.", required=True)
  shared_flags.define_format(("folder", "onnx"), "of the model")
  flags.DEFINE_enum(
      "checkpoint",
      "last",
      writing.CHOICES,
      "last: the last checkpoint. best: the best one on public validation"
      " tasks. ensemble: up to five of the best together.",
  )
  flags.DEFINE_bool(
      "without_guarantee", False, "Export a run that has no guarantee."
  )


def main(values: flags.FlagValues) -> None:
  """Write the folder or the file, and print its guarantees."""
  write(
      values.workdir,
      values.out,
      kind=values.format,
      checkpoint=values.checkpoint,
      without_guarantee=values.without_guarantee,
  )


def write(
    workdir: str,
    out: str,
    data_dir: str | None = None,
    kind: str = "folder",
    **choices: Any,
) -> None:
  """Call `export.writing.write`, and print the guarantees.

  Args:
    workdir: folder of the run.
    out: the folder to make, or the file.
    data_dir: folder of the run's data, for a hint; None if it is not known.
    kind: "folder" or "onnx".
    **choices: "checkpoint" and "without_guarantee".
  """
  if kind == "onnx":
    files.check_outside(out, workdir, "--workdir")
    with tempfile.TemporaryDirectory() as place:
      done = writing.write(workdir, f"{place}/model", **choices)
      predictor = Predictor.load(f"{place}/model", backbone=done.backbone)
      onnx_graph.write(out, predictor)
  else:
    done = writing.write(workdir, out, **choices)
  found = done.description
  print(
      f"{out}: {found.network.name} by {found.learner.name},"
      f" steps {', '.join(map(str, found.steps))}"
  )
  guarantees = done.statement["guarantees"]
  for level, stated in guarantees.items():
    epsilon = report.rounded_up(float(stated["epsilon"]))
    delta = report.rounded_delta(stated["delta"])
    print(f"  {level}: epsilon = {epsilon} at delta = {delta}")
  for level in done.statement["no_guarantee"]:
    print(f"  {level}: no guarantee")
  for caveat in report.stated_caveats(guarantees.values()):
    print(f"  {caveat}")
  if done.scores is None:
    evaluate = ["episodic-dp", "evaluate", f"--workdir={workdir}"]
    if data_dir is not None:
      evaluate.append(f"--data_dir={data_dir}")
    elif found.data == "own_data":
      evaluate.append("--data_dir=PATH")
    again = ["episodic-dp", "export", f"--workdir={workdir}"]
    again += [f"--out={out.rstrip('/')}_evaluated"]
    if found.checkpoint != "last":
      again.append(f"--checkpoint={found.checkpoint}")
    if choices.get("without_guarantee"):
      again.append("--without_guarantee")
    print(
        "  the card has no accuracy on test tasks; to add it, run\n"
        f"  {shlex.join(evaluate)} && {shlex.join(again)}"
    )
