"""The commands of `episodic-dp`, selected by name."""

from collections.abc import Iterable, Sequence
import importlib
import sys
import textwrap
from types import ModuleType

from absl import flags

import episodic_dp
from episodic_dp.cli import app
from episodic_dp.config import reference

_HELP = ("-h", "-help", "--help", "--helpshort", "-helpshort")
_WIDTH = 80


# Summary of each command. Its module is imported when it is called, so that a
# command that only accounts never imports JAX.
COMMANDS = {
    "train": "train with differential privacy, or resume a run",
    "evaluate": "measure a run on its test tasks",
    "account": "compute the epsilon of a config or of several runs",
    "verify": "compute a privacy statement again",
    "calibrate": "find the noise, steps or tasks for an epsilon",
    "plan": "propose tasks, steps and noise for an epsilon",
    "inspect": "plot what a plan samples, before any training",
    "pvi": "learn one posterior from many clients, privately",
    "audit": "attack a config's guarantees",
    "membership": "attack trained runs: guess who took part",
    "compare": "compare trained runs",
    "export": "write a run as a folder that others can load",
    "data": "write a data set as a folder of pictures",
    "adapt": "classify your own folder with an exported model",
}
# Largest numbers of positional arguments.
_ARGUMENTS = {"verify": 1, "compare": sys.maxsize}


def main(argv: Sequence[str] | None = None) -> None:
  """Run the command named by the first argument.

  Args:
    argv: the program and its arguments; None for those of the process.
  """
  _, *arguments = sys.argv if argv is None else argv
  name, *rest = arguments or ["--help"]
  if name in (*_HELP, "help", "--helpfull", "-helpfull"):
    print(overview())
    return
  if name == "--version":
    print(f"episodic-dp {episodic_dp.__version__}")
    return
  if name not in COMMANDS:
    app.fail(
        f"'{name}' is not a command: use one of {', '.join(COMMANDS)}"
        " (episodic-dp --help describes them)"
    )
  try:
    command = module(name)
  except ModuleNotFoundError as e:
    text = app.sentence(e)
    if text is None:
      raise
    app.fail(text)
  own = define_flags(command)
  if any(argument in _HELP for argument in rest):
    print(explanation(command, own))
    return
  app.run(
      lambda argv: command.main(flags.FLAGS, *argv[1:]),
      [f"episodic-dp {name}", *rest],
      arguments=_ARGUMENTS.get(name, 0),
  )


def module(name: str) -> ModuleType:
  """Return the module of a command, with `define_flags` and `main`."""
  return importlib.import_module(f"episodic_dp.cli.{name}")


def define_flags(command: ModuleType) -> list[str]:
  """Define the flags of a command in `absl.flags.FLAGS`; return their names."""
  before = set(flags.FLAGS)
  command.define_flags()
  return [name for name in flags.FLAGS if name not in before]


def overview() -> str:
  """Return the text of `episodic-dp --help`."""
  width = max(map(len, COMMANDS))
  return "\n".join([
      "Differentially private meta-learning: train, account, attack.",
      "",
      "usage: episodic-dp COMMAND [--flag=value ...]",
      "",
      *(f"  {name:<{width}}  {purpose}" for name, purpose in COMMANDS.items()),
      "",
      "Start with the built-in data, which takes two minutes:",
      "  episodic-dp account --config=glyphs",
      "  episodic-dp train --config=glyphs --workdir=runs/mine",
      "  episodic-dp evaluate --workdir=runs/mine",
      "",
      "episodic-dp COMMAND --help explains a command and lists its flags;",
      "episodic-dp --version prints the version.",
  ])


def explanation(command: ModuleType, names: Sequence[str]) -> str:
  """Return the text of `episodic-dp COMMAND --help`.

  Args:
    command: its module. The docstring comes first, and the fields of its
      CONFIG, if it has one, come last.
    names: names of its flags.
  """
  heading = "The command has no flags."
  if names:
    heading = "flags:"
  lines = [(command.__doc__ or "").strip(), "", heading]
  lines += flag_lines(flags.FLAGS[name] for name in sorted(names))
  kind = getattr(command, "CONFIG", None)
  if kind is not None:
    lines += ["", "fields of a config, for --config.FIELD=VALUE:"]
    lines += reference.lines(kind, _WIDTH)
  return "\n".join([*lines, "", "--helpfull lists the flags of libraries too."])


def flag_lines(shown: Iterable[flags.Flag]) -> list[str]:
  """Return the lines of a command's help for flags."""
  lines = []
  for flag in shown:
    default = flag.default
    if app.is_required(flag):
      stated = " (required)"
    elif default in (None, False, []):
      stated = ""
    else:
      several = isinstance(default, list)
      stated = f" (default: {','.join(default) if several else default})"
    usage = f"[no]{flag.name}" if flag.boolean else f"{flag.name}=..."
    lines += [f"  --{usage}", *textwrap.wrap(
        # absl joins its own sentence with a semicolon.
        " ".join(f"{flag.help}{stated}".split()).replace(".;", ";"), _WIDTH,
        initial_indent=" " * 6, subsequent_indent=" " * 6,
        break_on_hyphens=False,
    )]
  return lines
