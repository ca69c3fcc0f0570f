"""Export a trained run as a folder that others can load.

  episodic-dp export --workdir=DIR --out=MODEL \\
      [--checkpoint=last|best|ensemble] [--without_guarantee]

MODEL holds the weights, model.json (network, learner, preprocessing), the
privacy statement, a model card with the accuracy of episodic-dp evaluate, and
the digest of every file. It holds nothing private: no key, and no name of a
class or a file. `episodic-dp adapt` and `episodic_dp.export.Predictor` load it
and execute nothing in it. A run without a guarantee needs --without_guarantee,
and its card says so.
"""

import shlex
from typing import Any

from absl import flags

from episodic_dp.accounting import report
from episodic_dp.cli import shared_flags
from episodic_dp.export import writing


def define_flags() -> None:
  """Define the flags of the run and of the folder."""
  shared_flags.define_workdir("Folder of a run of episodic-dp train.")
  shared_flags.define_out("New folder of the model.", required=True)
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
  """Write the folder, and print its guarantees."""
  write(
      values.workdir,
      values.out,
      checkpoint=values.checkpoint,
      without_guarantee=values.without_guarantee,
  )


def write(
    workdir: str, out: str, data_dir: str | None = None, **choices: Any
) -> None:
  """Call `export.writing.write`, and print the guarantees.

  Args:
    workdir: folder of the run.
    out: the folder to make.
    data_dir: folder of the run's data, for a hint; None if it is not known.
    **choices: "checkpoint" and "without_guarantee".
  """
  done = writing.write(workdir, out, **choices)
  found = done.description
  print(
      f"{out}: {found.network.name} by {found.learner.name},"
      f" steps {', '.join(map(str, found.steps))}"
  )
  guarantees = done.statement["guarantees"]
  for level, stated in guarantees.items():
    epsilon = report.rounded_up(float(stated["epsilon"]))
    print(f"  {level}: epsilon = {epsilon} at delta = {stated['delta']:g}")
  for level in done.statement["no_guarantee"]:
    print(f"  {level}: no guarantee")
  caveats = dict.fromkeys(stated["caveat"] for stated in guarantees.values())
  for caveat in filter(None, caveats):
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
