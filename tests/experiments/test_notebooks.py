"""The notebooks: the text of their scripts, with the outputs of a run."""

import re
import runpy
import sys

import jax
import jupytext
import nbformat
import pytest

from experiments.notebooks import __main__ as notebooks

FOLDER = notebooks.FOLDER
# A folder that only one machine has; "and/or" is none.
PATH = re.compile(r"(?<![\w/.])/(?:\w[\w.-]*/)+\w|[A-Z]:\\\w|file:/")


@pytest.fixture
def run(monkeypatch):
  """Yield a function: name -> the names that its script leaves at smoke."""
  monkeypatch.setenv("EPISODIC_DP_SCALE", "smoke")
  monkeypatch.setattr(sys, "path", list(sys.path))
  monkeypatch.chdir(FOLDER)  # Where Jupyter opens them.
  with jax.numpy_dtype_promotion("standard"):  # As a user runs them.
    yield lambda name: runpy.run_path(str(FOLDER / f"{name}.py"))


@pytest.mark.parametrize("name", notebooks.NAMES)
def test_a_stored_notebook_is_one_run_of_its_script(name):
  def body(text):
    return text.split("# ---\n")[2]  # Below the header, which has versions.

  notebook = nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)
  script = (FOLDER / f"{name}.py").read_text(encoding="utf-8")
  made = jupytext.writes(notebook, fmt="py:percent")
  assert body(made) == body(script), "run make notebooks"
  cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
  assert [c.execution_count for c in cells] == [*range(1, len(cells) + 1)]
  outputs = [output for cell in cells for output in cell.outputs]
  texts = [output.get("text", "") for output in outputs]
  texts += [o.get("data", {}).get("text/markdown", "") for o in outputs]
  assert texts and not any(map(PATH.search, texts))


@pytest.mark.slow
def test_epsilon_runs(run):
  found = run("epsilon")
  assert found["most"] > found["STEPS"]


@pytest.mark.slow
def test_sampler_runs(run):
  found = run("sampler")
  assert found["printed"] < found["claimed"]["fixed size"]
  for name, epsilon in found["measured"].items():
    assert 0 <= epsilon < found["claimed"][name]


@pytest.mark.slow
def test_handwriting_runs(run):
  found = run("handwriting")
  assert found["result"].guarantees["participant"].epsilon <= found["EPSILON"]
  for points in found["CURVES"].values():
    assert [step for step, _ in points] == [0, 1, 2]


@pytest.mark.slow
def test_pvi_runs_on_rows_that_are_made_up(run, capsys):
  found = run("pvi_adult")
  assert "not Adult" in capsys.readouterr().out
  assert 0 < found["spent"] <= 8
