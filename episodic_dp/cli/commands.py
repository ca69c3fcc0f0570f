"""The commands of `episodic-dp`, and the choice of one by its name."""

from collections.abc import Sequence
import importlib
import sys

import episodic_dp
from episodic_dp.cli import app

# Name -> what it does. The module of a command is imported when it is called,
# so that a command that only accounts never imports JAX.
COMMANDS = {
    "train": "train with differential privacy, or resume a run",
    "evaluate": "measure a run on its test tasks",
    "account": "say what a configuration costs, and draw curves of epsilon",
    "inspect": "draw what a plan samples and guarantees, before any training",
    "audit": "attack a configuration's guarantees",
    "membership": "attack trained runs: who took part in them",
    "fine-tune": "compare runs as initialisations on the same test tasks",
}


def main(argv: Sequence[str] | None = None) -> None:
  """Runs the command that the first argument names.

  Args:
    argv: the program and its arguments; None for those of the process.
  """
  program, *arguments = sys.argv if argv is None else argv
  name, *rest = arguments or ["--help"]
  if name in ("-h", "--help", "--helpshort", "help"):
    print(overview())
    return
  if name == "--version":
    print(f"episodic-dp {episodic_dp.__version__}")
    return
  if name not in COMMANDS:
    app.fail(
        f"'{name}' is not a command: use one of {', '.join(COMMANDS)}"
        " (episodic-dp --help says what they do)"
    )
  module = importlib.import_module(
      f"episodic_dp.cli.{name.replace('-', '_')}"
  )
  if hasattr(module, "define_flags"):
    module.define_flags()
  app.run(module.main, [f"episodic-dp {name}", *rest])


def overview() -> str:
  """What `episodic-dp --help` prints."""
  width = max(map(len, COMMANDS))
  lines = [f"  {name:<{width}}  {what}" for name, what in COMMANDS.items()]
  return "\n".join([
      "Differentially private meta-learning.",
      "",
      "usage: episodic-dp COMMAND [--flag=value ...]",
      "",
      *lines,
      "",
      "episodic-dp COMMAND --help lists the flags of a command.",
  ])
