"""`export` and `adapt`: the commands, and the file of docs/export.md."""

import csv
import re
import shlex
import shutil

import onnxruntime
from PIL import Image
import pytest

from episodic_dp import data
from tests import processes
from tests import test_readme
from tests.cli import tiny_runs
from tests.data import own_images
from tests.export.conftest import export_run


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
  """A model of prototypes, and glyphs of a writer as support and query."""
  root = tmp_path_factory.mktemp("adapt")
  splits = tiny_runs.splits()
  config = tiny_runs.maml_config().replace({"learner.name": "protonet"})
  export_run(config, root, splits)
  images = splits.test.images[:24].reshape(4, 6, 12, 12)
  for glyph, drawings in enumerate(images):
    for number, drawing in enumerate(drawings):
      part = "support" if number < 2 else "query"
      for place in (f"{part}/glyph {glyph}", f"flat_{part}"):
        (root / place).mkdir(parents=True, exist_ok=True)
        name = f"{glyph}_{number}.png"
        Image.fromarray(drawing).save(root / place / name)
  return root


def adapt(call, root, out, *, query="query", model="model", more=()):
  return call(
      "adapt", f"--model={root / model}", f"--support={root / 'support'}",
      f"--query={root / query}", f"--out={out}", *more,
  )


def test_labelled_images_are_classified_and_measured(call, folders, tmp_path):
  done = adapt(call, folders, tmp_path / "out")
  assert done.returncode == 0, done.stderr
  written = {path.name for path in (tmp_path / "out").iterdir()}
  assert written == {"predictions.csv"}
  with open(tmp_path / "out" / "predictions.csv", newline="") as f:
    rows = list(csv.DictReader(f))
  assert len(rows) == 16
  right = sum(row["label"] == row["prediction"] for row in rows)
  assert f"accuracy {100 * right / 16:.1f} %" in done.stdout
  assert f"{right} of 16 images, chance 25 %" in done.stdout
  for row in rows:
    shares = {k[2:-1]: float(v) for k, v in row.items() if k[:2] == "p("}
    assert sum(shares.values()) == pytest.approx(1, abs=1e-5)
    assert row["prediction"] == max(shares, key=shares.get)
  assert "participant, of its training data" in done.stdout


def test_people_of_the_support_have_a_guarantee(call, folders, tmp_path):
  for glyph in range(4):
    for number in range(6):
      place = tmp_path / "people" / f"person {number % 3}" / f"glyph {glyph}"
      place.mkdir(parents=True, exist_ok=True)
      part = "support" if number < 2 else "query"
      name = f"{glyph}_{number}.png"
      shutil.copy(folders / part / f"glyph {glyph}" / name, place)
  model, query = f"--model={folders / 'model'}", f"--query={folders / 'query'}"
  support, out = f"--support={tmp_path / 'people'}", tmp_path / "out"
  private = ("--epsilon=500", f"--public={folders / 'flat_support'}")
  done = call("adapt", model, support, query, f"--out={out}", *private)
  assert done.returncode == 0, done.stderr
  assert "participant, of its training data" in done.stdout
  assert re.search(r"adaptation: epsilon = 49\d.* one person", done.stdout)
  first = (out / "predictions.csv").read_text()
  statement = out / "adapted" / "adaptation_statement.json"
  assert call("verify", statement).returncode == 0
  again = call(
      "adapt", f"--model={out / 'adapted'}", query, f"--out={tmp_path / 'more'}"
  )
  assert again.returncode == 0, again.stderr
  assert (tmp_path / "more" / "predictions.csv").read_text() == first
  assert "adaptation: epsilon = 49" in again.stdout
  # After a query that failed nobody is told to pay twice.
  twice = call("adapt", model, support, query, f"--out={out}", *private)
  assert twice.returncode == 1
  assert re.search("costs the same people .* --model=.*adapted", twice.stderr)
  for words, match in (
      ((model, query), "give --support"),
      ((model, query, support), "folder depth 2"),
      ((model, query, support, "--delta=0.1"), "need --epsilon"),
      (
          (model, query, support, "--neighbours=replace-one"), "need --epsilon"
      ),
      ((model, query, "--epsilon=1"), "needs --support"),
      ((model, query, support, "--epsilon=1", "--classes=a,b"), "glyph 0"),
  ):
    done = call("adapt", *words, f"--out={tmp_path / 'none'}")
    assert done.returncode == 1 and re.search(match, done.stderr), done.stderr


@pytest.mark.slow
def test_names_may_hold_anything(call, folders, tmp_path):
  shutil.copytree(folders / "model", tmp_path / "model")
  odd = ["a\nb", "$x_1$", "f\udcffg", "=1+1,2"]
  for part in ("support", "query"):
    (tmp_path / part).mkdir()
    for name, old in zip(odd, sorted((folders / part).iterdir())):
      shutil.copytree(old, tmp_path / part / name)
  done = adapt(call, tmp_path, tmp_path / "out")
  assert done.returncode == 0, done.stderr
  with open(tmp_path / "out" / "predictions.csv", newline="") as f:
    labels = {row["label"] for row in csv.DictReader(f)}
  assert labels == {"a\\nb", "$x_1$", "f\\udcffg", "=1+1,2"}


def test_another_program_classifies_with_one_file(
    call, folders, tmp_path, capfd
):
  out, query = tmp_path / "out", folders / "query" / "glyph 1" / "1_3.png"
  done = adapt(call, folders, out, more=("--format=onnx",))
  assert done.returncode == 0, done.stderr
  scope = test_readme.executed("docs/export.md", "onnxruntime", {
      "runs/named/classifier.onnx": str(out / "classifier.onnx"),
      "runs/unseen/glyph0/drawing2.png": str(query),
  })
  with open(out / "predictions.csv", newline="") as f:
    rows = {row["file"]: row for row in csv.DictReader(f)}
  row = rows["glyph 1/1_3.png"]
  assert scope["classes"][scope["best"]] == row["prediction"]
  for name, probability in zip(scope["classes"], scope["probabilities"][0]):
    assert float(row[f"p({name})"]) == pytest.approx(probability, abs=1e-5)
  assert "'participant': 3.7" in capfd.readouterr().out


_MEMORY = """
import pathlib
import sys
from episodic_dp import __main__
sys.argv = ["episodic-dp", *sys.argv[1:]]
try:
  __main__.main()
finally:
  # Not `ru_maxrss`, which begins with that of the parent process.
  status = pathlib.Path("/proc/self/status").read_text()
  print(int(status.split("VmHWM:")[1].split()[0]) // 1024)
"""


@pytest.mark.slow
def test_twenty_thousand_images_are_read_a_few_at_a_time(tmp_path):
  config = tiny_runs.maml_config().replace(
      {"learner.name": "protonet", "data.options.size": 84}
  )
  splits = data.load(
      "glyphs", participants=4, glyphs=8, drawings=6, size=84,
      validation_participants=3, test_participants=5,
  )
  export_run(config, tmp_path, splits)
  own_images.tree(tmp_path / "support", {"a": 2, "b": 2})
  for name in "ab":
    (tmp_path / "query" / name).mkdir(parents=True)
    for i in range(10_000):
      (tmp_path / "query" / name / f"{i}.png").hardlink_to(
          tmp_path / "support" / name / f"00{i % 2}.png"
      )
  found = processes.printed(
      "-c", _MEMORY, "adapt", f"--model={tmp_path / 'model'}",
      f"--support={tmp_path / 'support'}", f"--query={tmp_path / 'query'}",
      f"--out={tmp_path / 'out'}",
  )
  assert "of 20000 images" in found
  assert int(found.split()[-1]) < 500  # MiB.


def test_what_is_wrong_ends_in_one_sentence(call, folders, tmp_path):
  def refused(done, match):
    assert done.returncode == 1
    (line,) = [x for x in done.stderr.splitlines() if "error: " in x]
    assert re.search(match, line), line

  out = tmp_path / "out"
  for query, match in (
      ("support", "the folder of --support: give other images"),
      ("nowhere", "nowhere does not exist: give a folder"),
      ("model", "holds no file"),
  ):
    refused(adapt(call, folders, out, query=query), match)
  refused(adapt(call, folders, out, model="run"), "no digests.json")
  assert not out.exists()


def test_export_says_what_left(call, folders, tmp_path):
  model = tmp_path / "model"
  export = ("export", f"--workdir={folders / 'run'}")
  done = call(*export, f"--out={model}")
  assert done.returncode == 0, done.stderr
  assert "mlp by protonet" in done.stdout and "epsilon = 3.7" in done.stdout
  assert "no accuracy on test tasks" in done.stdout
  for line in done.stdout.splitlines()[-1].split(" && "):
    _, *arguments = shlex.split(line)
    assert call(*arguments).returncode == 0, line
  card = (tmp_path / "model_evaluated" / "README.md").read_text()
  assert "% of the query images are classified" in card
  done = call(*export, f"--out={model}")
  assert done.returncode == 1 and "exists already" in done.stderr
  done = call(*export, "--format=onnx", f"--out={model}.onnx")
  assert done.returncode == 0, done.stderr
  assert "model.onnx: mlp by protonet" in done.stdout
  session = onnxruntime.InferenceSession(f"{model}.onnx")
  assert [one.name for one in session.get_outputs()] == ["embeddings"]
