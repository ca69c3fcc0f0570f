"""Executes the notebooks, and writes each with its outputs beside its script.

  python -m experiments.notebooks [NAME ...]

The text of a notebook is its script, NAME.py, in Jupytext's percent format:
edit that, run this command (or `make notebooks`) and commit both files. What a
cell raises is shown, and nothing is written then. EPISODIC_DP_SCALE=smoke takes
seconds and learns nothing: for a try, not for what is committed.
"""

import base64
from collections.abc import Sequence
import io
import os
import pathlib
import sys

import jupytext
import nbclient
import nbformat
from PIL import Image

FOLDER = pathlib.Path(__file__).resolve().parent
NAMES = ("epsilon", "handwriting", "sampler", "tables", "pvi_adult")
_MINUTES = 20  # Of one cell at most, on a busy machine.
_COLORS = 256  # Of a picture: enough for any line, and a third of the bytes.


def execute(name: str) -> nbformat.NotebookNode:
  """Runs the cells of NAME.py in a fresh kernel, in the repository's folder.

  Returns:
    The notebook with its outputs, without what differs from machine to machine:
    times of execution, random names of cells, and the error stream, which tells
    whoever waits what is being done.

  Raises:
    nbclient.exceptions.CellExecutionError: a cell failed.
  """
  notebook = jupytext.read(FOLDER / f"{name}.py")
  nbclient.NotebookClient(
      notebook,
      timeout=60 * _MINUTES,
      kernel_name="python3",
      resources={"metadata": {"path": os.fspath(FOLDER.parents[1])}},
  ).execute()
  notebook.metadata.pop("language_info", None)
  for number, cell in enumerate(notebook.cells):
    cell["id"] = f"{name}-{number}"
    cell.metadata.pop("execution", None)
    if cell.cell_type == "code":
      cell.outputs = _whole(cell.outputs)
      for output in cell.outputs:
        _make_smaller(output.get("data", {}))
  return notebook


def _whole(
    outputs: Sequence[nbformat.NotebookNode],
) -> list[nbformat.NotebookNode]:
  """These without the error stream, and pieces of printed text joined.

  Only once all cells have run: a cell may still draw an earlier one's picture
  anew, and nbclient finds that by its place among the outputs.
  """
  joined: list[nbformat.NotebookNode] = []
  for output in outputs:
    if output.get("name") == "stderr":
      continue
    if joined and "stdout" == output.get("name") == joined[-1].get("name"):
      joined[-1]["text"] += output["text"]
    else:
      joined.append(output)
  return joined


def _make_smaller(data: dict[str, str]) -> None:
  """Replaces an output's picture by the same in fewer colours."""
  if "image/png" not in data:
    return
  picture = Image.open(io.BytesIO(base64.b64decode(data["image/png"])))
  buffer = io.BytesIO()
  fewer = picture.convert("RGB").quantize(_COLORS, dither=Image.Dither.NONE)
  fewer.save(buffer, format="PNG", optimize=True)
  data["image/png"] = base64.b64encode(buffer.getvalue()).decode()


def main(names: Sequence[str] = ()) -> None:
  """Executes these notebooks, all where none is named, and writes them."""
  for name in names:
    if name not in NAMES:
      sys.exit(f"error: '{name}' is no notebook: choose of {', '.join(NAMES)}")
  for name in names or NAMES:
    notebook = execute(name)
    path = FOLDER / f"{name}.ipynb"
    nbformat.write(notebook, path)
    print(f"{path.name}: {path.stat().st_size / 1e3:.0f} kB")


if __name__ == "__main__":
  main(sys.argv[1:])
