"""Runs the benchmarks of this folder, one after the other.

  python -m experiments.benchmarks --list
  python -m experiments.benchmarks --run=all --out=DIR
  python -m experiments.benchmarks --run=overhead,sampling --smoke --out=DIR
  python -m experiments.benchmarks --write

Each writes DIR/NAME.json, in a process of its own. --write fills the table of
README.md from the JSON files in this folder (--out of the runs that count).
"""

import ast
from collections.abc import Sequence
import pathlib
import subprocess
import sys
import time

from absl import flags
from absl import logging

from episodic_dp.cli import app
from experiments.benchmarks import table

_RUN = flags.DEFINE_list("run", [], "Names of benchmarks, or all.")
_LIST = flags.DEFINE_bool("list", False, "Say what there is.")
_SMOKE = flags.DEFINE_bool("smoke", False, "Tiny sizes: do they work?")
_OUT = flags.DEFINE_string("out", "", "Folder of the JSON files.")
_WRITE = flags.DEFINE_bool("write", False, "Fill the table of README.md.")


def programs() -> dict[str, str]:
  """name -> first line of its text, of every benchmark of the folder."""
  found = {}
  for path in sorted(table.FOLDER.glob("*.py")):
    text = path.read_text(encoding="utf-8")
    if "\n  harness.main(" in text:
      about = ast.get_docstring(ast.parse(text)) or ""
      found[path.stem] = about.partition("\n")[0].partition(";")[0]
  return found


def run(names: Sequence[str], out: pathlib.Path, *, smoke: bool) -> list[str]:
  """Runs benchmarks; the names of those that failed."""
  out.mkdir(parents=True, exist_ok=True)
  failed = []
  for i, name in enumerate(names):
    logging.info("%d/%d %s", i + 1, len(names), name)
    began = time.monotonic()
    command = [
        sys.executable, "-m", f"experiments.benchmarks.{name}",
        f"--out={out / name}.json", *["--smoke"] * smoke,
    ]  # fmt: skip
    done = subprocess.run(command)
    took = time.monotonic() - began
    if done.returncode:
      failed.append(name)
    logging.info(
        "%d/%d %s: %s after %.0f s",
        i + 1, len(names), name, "failed" if done.returncode else "done", took,
    )  # fmt: skip
  return failed


def main(argv: Sequence[str]) -> None:
  del argv
  known, names = programs(), _RUN.value
  if _LIST.value:
    for name, about in known.items():
      print(f"{name:14}{about}")
  if names == ["all"]:
    names = list(known)
  for name in names:
    if name not in known:
      raise ValueError(
          f"unknown benchmark '{name}': choose all, or among"
          f" {', '.join(known)}"
      )
  if names and not _OUT.value:
    raise ValueError("the flag --out is missing: give a folder for the results")
  if names:
    out = pathlib.Path(_OUT.value)
    failed = run(names, out, smoke=_SMOKE.value)
    print(table.render(out))
    if failed:
      app.fail(f"{', '.join(failed)} failed: see above")
  if _WRITE.value:
    text = table.README.read_text(encoding="utf-8")
    table.README.write_text(
        table.replaced(text, table.render()), encoding="utf-8"
    )
  if not (names or _LIST.value or _WRITE.value):
    raise ValueError("nothing to do: give --list, --run=all or --write")


if __name__ == "__main__":
  app.run(main)
