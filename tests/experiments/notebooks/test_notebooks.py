"""The notebooks: the text of their scripts, run, and stored with outputs."""

import base64
import builtins
import importlib.util
import io
import pathlib
import re
import runpy
import subprocess
import sys

from IPython import display
import jupytext
import nbformat
import numpy as np
from PIL import Image
import pytest

from episodic_dp.output import plotting
from experiments import results_pages
from experiments.notebooks import __main__ as notebooks

FOLDER = notebooks.FOLDER
# A folder that only one machine has; "and/or" is none.
PATH = re.compile(r"(?<![\w/.])/(?:\w[\w.-]*/)+\w|[A-Z]:\\\w|file:/")
# At most; one of them has a picture for every target.
KILOBYTES = dict.fromkeys(notebooks.NAMES, 400) | {"tables": 800}


@pytest.fixture(params=notebooks.NAMES)
def stored(request):
  path = FOLDER / f"{request.param}.ipynb"
  return nbformat.read(path, as_version=nbformat.NO_CONVERT)


@pytest.fixture
def run(monkeypatch):
  """name -> the names that its script leaves, run at the smallest scale."""
  monkeypatch.setenv("EPISODIC_DP_SCALE", "smoke")
  monkeypatch.setattr(sys, "path", list(sys.path))
  monkeypatch.chdir(FOLDER)  # Where Jupyter opens them.
  return lambda name: runpy.run_path(str(FOLDER / f"{name}.py"))


def outputs_of(notebook):
  return [o for c in notebook.cells for o in c.get("outputs", ())]


def texts_of(notebook):
  """What the outputs say."""
  found = []
  for output in outputs_of(notebook):
    data = output.get("data", {})
    found += [output.get("text", ""), data.get("text/markdown", "")]
  return [text for text in found if text]


def picture(output):
  data = base64.b64decode(output["data"]["image/png"])
  return Image.open(io.BytesIO(data))


def test_every_notebook_has_a_script_and_a_line_in_the_index():
  index = (FOLDER / "README.md").read_text(encoding="utf-8")
  scripts = {path.stem for path in FOLDER.glob("[!_]*.py")}
  assert scripts == {path.stem for path in FOLDER.glob("*.ipynb")}
  assert scripts == {*notebooks.NAMES}
  assert all(f"({name}.ipynb)" in index for name in scripts)


@pytest.mark.parametrize("name", notebooks.NAMES)
def test_script_and_notebook_have_the_same_text(name):
  def body(text):
    return text.split("# ---\n")[2]  # Below the header, which has versions.

  notebook = jupytext.read(FOLDER / f"{name}.ipynb")
  script = (FOLDER / f"{name}.py").read_text(encoding="utf-8")
  made = jupytext.writes(notebook, fmt="py:percent")
  assert body(made) == body(script), "run make notebooks"


def test_stored_outputs_are_those_of_one_fresh_run(stored):
  cells = [cell for cell in stored.cells if cell.cell_type == "code"]
  assert [c.execution_count for c in cells] == [*range(1, len(cells) + 1)]
  outputs = outputs_of(stored)
  assert {o.output_type for o in outputs} <= {
      "stream", "display_data", "execute_result"
  }  # fmt: skip
  pictures = [o for o in outputs if "image/png" in o.get("data", ())]
  assert pictures
  for output in pictures:
    drawn = np.asarray(picture(output).convert("L"))
    assert drawn.std() > 5  # Not an empty sheet.


def test_stored_outputs_name_no_folder_of_a_machine(stored):
  assert [t for t in texts_of(stored) if PATH.search(t)] == []


@pytest.mark.parametrize(
    "text, found",
    [
        ("in /home/me/run.py", True),
        ("at C:\\Users", True),
        ("on 2 CPU cores, 9 / 68 visits, ε/δ, and/or", False),
        ("episodic-dp train --data_dir=DATA --workdir=DIR", False),
    ],
)
def test_folders_of_a_machine_are_seen(text, found):
  assert bool(PATH.search(text)) == found


@pytest.mark.parametrize("name", notebooks.NAMES)
def test_a_stored_notebook_is_small(name):
  assert (FOLDER / f"{name}.ipynb").stat().st_size < 1000 * KILOBYTES[name]


def test_all_begin_alike(stored):
  text, setup = stored.cells[:2]
  assert text.source.startswith("# ")
  assert "[![Open in Colab][badge]][colab]" in text.source
  first = nbformat.read(FOLDER / "epsilon.ipynb", as_version=4)
  assert setup.source == first.cells[1].source


def test_the_first_cell_goes_on_in_the_folder_that_it_cloned(
    monkeypatch, tmp_path
):
  """After an installation that failed, and after a restart of the runtime."""
  clone, told = tmp_path / "episodic_dp_source", []

  def run(command, check):
    told.append(command[:2])
    if command[0] == "git":
      (clone / "experiments").mkdir(parents=True)
    elif len(told) == 2:  # The first installation.
      raise subprocess.CalledProcessError(1, command)

  def cell():
    monkeypatch.chdir(tmp_path)
    names = {}
    exec(jupytext.read(FOLDER / "tables.py").cells[1].source, names)
    assert names["ROOT"] == pathlib.Path.cwd() == clone

  monkeypatch.setattr(sys, "path", list(sys.path))
  monkeypatch.setattr(subprocess, "run", run)
  monkeypatch.setattr(builtins, "input", lambda _: "address")
  monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
  with pytest.raises(subprocess.CalledProcessError):
    cell()
  cell()
  install = [sys.executable, "-m"]
  assert told == [["git", "clone"], install, install]
  monkeypatch.setattr(importlib.util, "find_spec", lambda _: "installed")
  cell()
  assert len(told) == 3


def test_pictures_are_stored_in_fewer_bytes():
  noise = np.random.default_rng(0).integers(0, 255, (60, 80, 3), np.uint8)
  buffer = io.BytesIO()
  Image.fromarray(noise).save(buffer, format="PNG")
  data = {"image/png": base64.b64encode(buffer.getvalue()).decode()}
  before = len(data["image/png"])
  notebooks._make_smaller(data)
  assert len(data["image/png"]) < before / 2
  assert picture({"data": data}).size == (80, 60)


def test_an_unknown_notebook_is_named():
  """In a sentence, before any is executed."""
  with pytest.raises(SystemExit) as ended:
    notebooks.main(["tables", "nothing"])
  told = str(ended.value)
  assert told.startswith("error: 'nothing' is no notebook: choose of epsilon,")


def test_epsilon_runs(run):
  found = run("epsilon")
  assert found["ROOT"] == pathlib.Path(notebooks.__file__).parents[2]
  assert found["most"] > found["STEPS"]


def test_tables_says_what_the_results_give(run, monkeypatch, capsys):
  """All but its pictures, which take a while."""
  shown = []
  monkeypatch.setenv("EPISODIC_DP_SCALE", "cpu")
  monkeypatch.setattr(results_pages, "picture", lambda *_: None)
  monkeypatch.setattr(plotting, "png", lambda *_, **__: b"")
  monkeypatch.setattr(display, "display", shown.append)
  found = run("tables")
  printed = capsys.readouterr().out
  shown.insert(0, found["words"](found["PAGES"]["README.md"]))
  fresh = [x.data for x in shown if isinstance(x, display.Markdown) and x.data]
  path = FOLDER / "tables.ipynb"
  kept = texts_of(nbformat.read(path, as_version=nbformat.NO_CONVERT))
  size = len(fresh)
  assert fresh == kept[:size], "run make notebooks NOTEBOOKS=tables"
  assert printed == "".join(kept[size:])
  assert "episodic-dp train" in printed


@pytest.mark.slow
def test_sampler_runs(run):
  found = run("sampler")
  # What the stored outputs refute, by more runs than these.
  assert found["printed"] < found["claimed"]["fixed size"]
  for name, epsilon in found["measured"].items():
    assert 0 <= epsilon < found["claimed"][name]


@pytest.mark.slow
def test_handwriting_runs(run):
  found = run("handwriting")
  assert found["result"].guarantees["participant"].epsilon <= found["EPSILON"]
  for points in found["live"].curves.values():
    assert [step for step, _ in points] == [0, 1, 2]


@pytest.mark.slow
def test_pvi_runs_on_rows_that_are_made_up(run, capsys):
  found = run("pvi_adult")
  assert "not Adult" in capsys.readouterr().out
  assert 0 < found["spent"] <= 8
  assert set(found["found"].visits) == {2}


@pytest.mark.slow
def test_a_fresh_kernel_gives_what_is_stored(monkeypatch):
  """The accountant's notebook: the same numbers each time."""
  monkeypatch.setenv("EPISODIC_DP_SCALE", "cpu")
  fresh = notebooks.execute("epsilon")
  path = FOLDER / "epsilon.ipynb"
  kept = nbformat.read(path, as_version=nbformat.NO_CONVERT)
  assert texts_of(fresh) == texts_of(kept)
  assert [c.id for c in fresh.cells] == [c.id for c in kept.cells]


def test_a_picture_is_drawn_anew_from_a_later_cell(monkeypatch, tmp_path):
  folder = tmp_path / "some" / "folder"
  folder.mkdir(parents=True)
  (folder / "live.py").write_text("""# %%
import sys
for words in ("one", "two"):
  print(words, flush=True)
  print("progress", file=sys.stderr, flush=True)
shown = display("before", display_id=True)
# %%
shown.update("after")
""")
  monkeypatch.setattr(notebooks, "FOLDER", folder)
  monkeypatch.setattr(notebooks, "NAMES", ("live",))
  first, second = notebooks.execute("live").cells
  printed, drawn = first.outputs
  assert printed.text == "one\ntwo\n"
  assert drawn.data == {"text/plain": "'after'"}
  assert not second.outputs
