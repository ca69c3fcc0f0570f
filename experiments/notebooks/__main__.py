"""Execute the notebooks, and write each with its outputs next to its script.

  python -m experiments.notebooks [NAME ...]

The text of a notebook is its script, NAME.py, in Jupytext's percent format:
edit that, run this command (or `make notebooks`) and commit both files. The
error of a cell is shown, and nothing is written then. EPISODIC_DP_SCALE=smoke
takes seconds and learns nothing: for a try, not for committed files.
"""

from collections.abc import Sequence
import os
import pathlib
import sys

import jupytext
import nbclient
import nbformat

FOLDER = pathlib.Path(__file__).resolve().parent
NAMES = ("epsilon", "handwriting", "sampler", "tables", "pvi_adult")


def execute(name: str) -> nbformat.NotebookNode:
  """Run the cells of NAME.py in a fresh kernel, in the repository's folder.

  Returns:
    The notebook with its outputs, without the error stream and without what
    differs from machine to machine.
  """
  notebook = jupytext.read(FOLDER / f"{name}.py")
  nbclient.NotebookClient(
      notebook,
      timeout=1200,
      kernel_name="python3",
      resources={"metadata": {"path": os.fspath(FOLDER.parents[1])}},
      coalesce_streams=True,
  ).execute()
  notebook.metadata.pop("language_info", None)
  for number, cell in enumerate(notebook.cells):
    cell["id"] = f"{name}-{number}"
    cell.metadata.pop("execution", None)
    if cell.cell_type == "code":
      cell.outputs = [o for o in cell.outputs if o.get("name") != "stderr"]
  return notebook


def main(names: Sequence[str] = ()) -> None:
  """Execute these notebooks, all where none is named, and write them."""
  for name in names or NAMES:
    nbformat.write(execute(name), FOLDER / f"{name}.ipynb")
    print(f"wrote {name}.ipynb")


if __name__ == "__main__":
  main(sys.argv[1:])
